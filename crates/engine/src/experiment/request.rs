//! A request to an experiment, and its outcome.

use hodo_model::{AnyAnalysis, CountInterest, FlowInterest, Parameters, Root, Selection, Table, Value};

use super::time::TimeSpan;
use crate::{
    events::{Condition, Wanted},
    flow::{calls::NthCalls, passes::Executions},
    reading::Chunks,
    refusal::Refusal,
    registry::{AnyFlow, AnyReport, RunnableAnalysis},
};

/// A selection by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Only this span of time.
    pub span: Option<TimeSpan>,
    /// Only while these calls execute; for control flow only.
    pub calls: Option<NthCalls>,
}

/// A request to an experiment.
#[derive(Clone)]
pub struct Request {
    /// The reports. One may occur several times, with different [`views`](Request::views).
    pub reports: Vec<&'static AnyReport>,
    /// The view of each report. If empty, all have the view of the selection, and reports whose rows do not belong to threads
    /// refuse a selection of threads instead of ignoring it.
    pub views: Vec<&'static str>,
    /// The parameters of all reports.
    pub parameters: Parameters,
    /// Patterns of event names to include; empty includes all events.
    pub events: Vec<String>,
    /// A condition on fields; only events that satisfy it are included.
    pub condition: Option<Condition>,
    /// The selected times.
    pub times: Times,
    /// The number of decoding threads.
    pub threads: usize,
    /// The chunks.
    pub chunks: Chunks,
}

/// The outcome of a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A table for each report: control-flow reports first, per trace, then counts, then event reports.
    pub tables: Vec<Table>,
    /// Notes beside the tables, such as that a report found none of the events that it needs.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Returns whether nothing is missing: everything was read, and the tracer lost no events.
    pub fn is_lossless(&self) -> bool {
        let lost = |table: &Table, name| {
            table.figure(name).is_some_and(|value| !matches!(value, Value::Integer(0) | Value::Null))
        };
        let is_lossless = |table: &Table| {
            table.loss.is_empty() && !lost(table, "events_lost") && !lost(table, "packets_lost")
        };
        self.tables.iter().all(is_lossless)
    }
}

/// An analysis of a request, with the name of its report and the selection of its table.
pub(super) struct Requested {
    pub(super) name: &'static str,
    pub(super) selection: Selection,
    pub(super) made: RunnableAnalysis,
}

impl Requested {
    pub(super) fn analysis(&self) -> &dyn AnyAnalysis {
        self.made.analysis()
    }

    /// Returns the analysis of control flow.
    ///
    /// # Panics
    /// If it reads none.
    pub(super) fn flow(&self) -> &dyn AnyFlow {
        self.made.flow().expect("the analysis reads control flow")
    }
}

/// The analyses of a request, grouped by their input.
#[derive(Default)]
pub(super) struct Analyses {
    /// Control flow.
    pub(super) flow: Vec<Requested>,
    /// Events.
    pub(super) events: Vec<Requested>,
    /// Counts of events.
    pub(super) counts: Vec<Requested>,
}

impl Analyses {
    /// Returns all analyses, in the order of their tables.
    pub(super) fn all(&self) -> impl Iterator<Item = &Requested> {
        self.flow.iter().chain(&self.counts).chain(&self.events)
    }

    /// Returns whether any analysis reads events or counts of events.
    pub(super) fn read_events(&self) -> bool {
        !self.events.is_empty() || !self.counts.is_empty()
    }

    /// Returns the event analyses, for a pass.
    pub(super) fn of_events(&self) -> Vec<&dyn AnyAnalysis> {
        self.events.iter().map(Requested::analysis).collect()
    }
}

impl Request {
    /// A request for these reports over the whole trace, on one thread.
    pub fn of(reports: Vec<&'static AnyReport>, parameters: Parameters) -> Request {
        Request {
            reports,
            views: Vec::new(),
            parameters,
            events: Vec::new(),
            condition: None,
            times: Times::default(),
            threads: 1,
            chunks: Chunks::Default,
        }
    }

    /// Returns the analyses of the reports.
    pub(super) fn analyses(&self) -> Analyses {
        let mut analyses = Analyses::default();
        for (index, report) in self.reports.iter().enumerate() {
            let mut parameters = self.parameters.clone();
            if let Some(view) = self.views.get(index) {
                parameters.selection.view = (*view).to_owned();
            }
            let (name, made) = (report.description().name, report.make(&parameters));
            let requested = Requested { name, selection: parameters.selection, made };
            let list = match (requested.made.flow(), requested.analysis().interest().counts) {
                (None, CountInterest::None) => &mut analyses.events,
                (None, _) => &mut analyses.counts,
                _ => &mut analyses.flow,
            };
            list.push(requested);
        }
        analyses
    }

    /// Returns the system call whose executions are selected, if any.
    pub(super) fn system_call(&self) -> Option<&Root> {
        self.parameters.selection.root.as_ref().filter(|root| matches!(root, Root::SystemCall(_)))
    }

    /// Returns the executions that it selects for these analyses of control flow.
    pub(super) fn executions(&self, flow: &[Requested]) -> Executions<'_> {
        let is_numbered =
            |requested: &Requested| requested.analysis().interest().flow == FlowInterest::Numbered;
        Executions {
            calls: self.times.calls.as_ref(),
            system_call: self.system_call(),
            numbered: flow.iter().any(is_numbered),
        }
    }

    /// Returns the filter of the events to count.
    pub(super) fn wanted(&self) -> Wanted {
        let Selection { tids, pids, comms, cpus, .. } = self.parameters.selection.clone();
        Wanted { events: self.events.clone(), condition: self.condition.clone(), tids, pids, comms, cpus }
    }

    /// Checks that every report supports the requested options.
    ///
    /// # Errors
    /// Returns the option and the report that does not support it.
    pub fn check(&self) -> Result<(), Refusal> {
        let Parameters { selection, every, period, intervals, icache, .. } = &self.parameters;
        let Selection { tids, pids, comms, cpus, .. } = selection;
        let selects_threads = !(tids.is_empty() && pids.is_empty() && comms.is_empty());
        for about in self.reports.iter().map(|report| report.description()) {
            let (name, takes) = (about.name, about.takes);
            let wrong = if selects_threads && !takes.threads && self.views.is_empty() {
                format!(
                    "--tid, --pid and --comm select threads, but the rows of `{name}` do not belong to threads"
                )
            } else if !cpus.is_empty() && !takes.cpus {
                format!("--cpu-list selects CPUs, but the rows of `{name}` do not belong to CPUs")
            } else if (!self.events.is_empty() || self.condition.is_some()) && !takes.events {
                format!("--event and --where select single events, but `{name}` needs all of its events")
            } else if every.is_some() && !takes.every {
                format!("--every samples functions and call paths, which `{name}` does not have")
            } else if icache.is_some() && !takes.icache {
                format!("--icache is for `hodo report models`, not for `{name}`")
            } else if period.is_some() && !takes.period {
                format!("--begin, --end, --match and --group are for `hodo report periods`, not for `{name}`")
            } else if selection.root.is_some() && !takes.root {
                format!("--function and --syscall are for `hodo report paths`, not for `{name}`")
            } else if intervals.is_some() && !takes.intervals {
                format!("--function, --from and --to are for `hodo latency`, not for `{name}`")
            } else if period.is_none() && takes.period {
                format!("`{name}` needs --begin EVENT and --end EVENT: see `hodo report --help`")
            } else {
                continue;
            };
            return Err(Refusal(wrong));
        }
        if self.chunks == Chunks::Streams && !self.analyses().events.is_empty() {
            return Err(Refusal(
                "--chunk-size stream is for `report count` and `export`: everything else merges the streams; give bytes or seconds".to_owned(),
            ));
        }
        let view = selection.view.as_str();
        match self.reports.as_slice() {
            reports if !self.views.is_empty() => {
                reports.iter().zip(&self.views).try_for_each(|(report, view)| check_view(report, view))
            }
            _ if view.is_empty() => Ok(()),
            [report] => check_view(report, view),
            _ => Err(Refusal("--by applies to a single report, and these are several".to_owned())),
        }
    }
}

/// Refuses a view that a report does not have; empty is the default view.
fn check_view(report: &AnyReport, view: &str) -> Result<(), Refusal> {
    let about = report.description();
    match about.views {
        _ if view.is_empty() => Ok(()),
        [] => Err(Refusal(format!("--by {view}: `{}` has one kind of rows", about.name))),
        views if views.contains(&view) => Ok(()),
        views => Err(Refusal(format!("--by {view}: expected {}", views.join(", ")))),
    }
}
