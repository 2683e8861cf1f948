//! Reports: an analysis with its name, views and options, as `hodo report --list` shows them.

use serde::{Deserialize, Serialize};

use crate::{Analysis, FastFlow, Intervals, Period, Plain, Selection};

/// The interval between samples.
///
/// Both kinds count from a fixed origin, the clock's zero or the thread's first instruction, and not from the
/// beginning of a task. So samples do not depend on how the trace is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    /// A sample at each multiple of this many nanoseconds of the clock; not 0.
    Nanoseconds(u64),
    /// A sample at each multiple of this many instructions of a thread; not 0.
    Instructions(u64),
}

/// The options that a report accepts, besides the time window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// `--tid`, `--pid` and `--comm`: rows belong to threads.
    pub threads: bool,
    /// `--cpu-list`: rows belong to CPUs.
    pub cpus: bool,
    /// `--every`: the sampling interval.
    pub every: bool,
    /// `--begin` and `--end`, which are required.
    pub period: bool,
    /// `--event` and `--where`: events can be filtered.
    pub events: bool,
    /// `--function` and `--syscall`: its rows can begin at the executions of a function.
    pub root: bool,
    /// Options such as `--from` and `--to`, which say what to measure as intervals.
    pub intervals: bool,
}

impl Takes {
    /// No options.
    pub const NOTHING: Takes = Takes {
        threads: false,
        cpus: false,
        every: false,
        period: false,
        events: false,
        root: false,
        intervals: false,
    };
    /// Filters by thread and by CPU.
    pub const THREADS_AND_CPUS: Takes = Takes { threads: true, cpus: true, ..Takes::NOTHING };
    /// Filters by thread.
    pub const THREADS: Takes = Takes { threads: true, ..Takes::NOTHING };
    /// Filters by CPU.
    pub const CPUS: Takes = Takes { cpus: true, ..Takes::NOTHING };
}

/// The values of a report's options.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The view, and the filters for threads and CPUs.
    pub selection: Selection,
    /// The sampling interval.
    pub every: Option<Every>,
    /// The period to measure.
    pub period: Option<Period>,
    /// The kind of intervals.
    pub intervals: Option<Intervals>,
    /// Whether the partial serves this view and selection only. A cheaper analysis with the same table will do then.
    pub alone: bool,
}

/// A callback for the analysis that a report makes, generic over its type.
pub trait Maker {
    /// The result.
    type Made;

    /// Receives an analysis of events or of counts.
    fn analysis<A: Analysis>(self, analysis: A) -> Self::Made;

    /// Receives an analysis of control flow; one without fast paths is wrapped in [`Plain`].
    fn fast<A: FastFlow>(self, analysis: A) -> Self::Made;
}

/// The name, help and options of a report.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Names of its views (`--by`), the default first.
    pub views: &'static [&'static str],
    /// The options it accepts.
    pub takes: Takes,
    /// Whether `hodo report all` includes it.
    pub in_all: bool,
    /// The lanes that its rows become in the history on disk, which the viewer and `hodo serve` show over time.
    pub lanes: Option<Lanes>,
}

impl Description {
    /// A description to begin with: no views, no options, not in `all`, no lanes.
    pub const EMPTY: Description =
        Description { name: "", help: "", views: &[], takes: Takes::NOTHING, in_all: false, lanes: None };
}

/// How the rows of a view become records of lanes in the history on disk.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The view. Its rows [settle](Analysis::settle), so that they are written in bounded memory.
    pub view: &'static str,
    /// What the records are, for people.
    pub title: &'static str,
    /// The columns that identify a lane.
    pub lane: &'static [&'static str],
    /// What becomes the value of a record.
    pub value: LaneValue,
    /// The path of a lane in the tree of all lanes, with the names of its columns in braces.
    pub path: &'static [&'static str],
}

impl Lanes {
    /// The path of a thread in the tree of lanes. All of its lanes are below it.
    pub const THREAD: [&'static str; 3] = ["Threads", "process {pid}", "{comm} ({tid})"];
}

/// The value of a record.
#[derive(Clone, Copy, Debug)]
pub enum LaneValue {
    /// The cell of a column.
    Column(&'static str),
    /// The lane that these columns identify: the record is a link to it.
    Lane(&'static [&'static str]),
}

/// A kind of report.
pub trait Report: Sync {
    /// Its name, help and options.
    fn description(&self) -> &Description;

    /// Makes the analysis for the parameters and passes it to `maker`.
    fn make<M: Maker>(&self, parameters: &Parameters, maker: M) -> M::Made;
}

/// A report of events or counts that uses the same analysis for all parameters.
#[derive(Clone, Copy, Debug)]
pub struct Simple<A> {
    /// Its name, help and options.
    pub description: Description,
    /// The analysis.
    pub analysis: A,
}

impl<A: Analysis + Copy> Report for Simple<A> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn make<M: Maker>(&self, _: &Parameters, maker: M) -> M::Made {
        maker.analysis(self.analysis)
    }
}

/// A report of events whose view `interval` has every row, and needs another analysis than the others.
#[derive(Clone, Copy, Debug)]
pub struct WithIntervals<A, I> {
    /// Its name, help and options.
    pub description: Description,
    /// The analysis of all other views.
    pub analysis: A,
    /// The analysis of the view `interval`.
    pub intervals: I,
}

impl<A: Analysis + Copy, I: Analysis + Copy> Report for WithIntervals<A, I> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn make<M: Maker>(&self, parameters: &Parameters, maker: M) -> M::Made {
        match parameters.selection.view.as_str() {
            "interval" => maker.analysis(self.intervals),
            _ => maker.analysis(self.analysis),
        }
    }
}

/// A report of control flow that uses the same analysis, which has no fast paths, for all parameters.
#[derive(Clone, Copy, Debug)]
pub struct SimpleFlow<A> {
    /// Its name, help and options.
    pub description: Description,
    /// The analysis.
    pub analysis: A,
}

impl<A: Analysis + Copy> Report for SimpleFlow<A> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn make<M: Maker>(&self, _: &Parameters, maker: M) -> M::Made {
        maker.fast(Plain(self.analysis))
    }
}

/// A callback for each report of a list.
pub trait Visitor {
    /// The next report.
    fn visit<R: Report>(&mut self, report: &'static R);
}
