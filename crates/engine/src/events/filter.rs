//! Filters events by name, condition, thread and CPU.

use hodo_formats::events::{
    Event, FieldPath, Stream, Trace,
    schema::{Environment, EventClass},
};
use hodo_model::vocabulary::{self, system_calls::Machine};

use super::{
    Traces,
    condition::{Condition, Test, is_like},
};

/// The filter of the command line; the default includes every event.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Patterns of names of events: the tracer's own, or the vocabulary's.
    pub events: Vec<String>,
    /// A condition on fields.
    pub condition: Option<Condition>,
    /// Threads, by the context `tid` or `vtid`.
    pub tids: Vec<u32>,
    /// Processes, by the context `pid` or `vpid`.
    pub pids: Vec<u32>,
    /// Names of threads, by the context `procname` or `comm`.
    pub comms: Vec<String>,
    /// CPUs, by the packets' context `cpu_id`.
    pub cpus: Vec<u32>,
}

/// A filter, bound to every event class of every stream.
#[derive(Debug)]
pub struct Filter {
    /// By trace, stream and class: `None` if no event of the class passes.
    tests: Vec<Vec<Vec<Option<Test>>>>,
    /// Whether every event passes.
    is_all: bool,
}

impl Wanted {
    /// Returns whether the filter includes every event.
    pub fn is_all(&self) -> bool {
        let threads = self.tids.is_empty() && self.pids.is_empty() && self.comms.is_empty();
        let lists = threads && self.cpus.is_empty();
        self.events.is_empty() && self.condition.is_none() && lists
    }

    /// Returns a requested context field that no stream has, such as `tid`.
    pub fn missing_contexts(&self, traces: &Traces<'_>) -> Option<&'static str> {
        let has = |names: &[&str]| {
            traces.events.iter().any(|trace| {
                trace.streams.iter().any(|stream| {
                    let events = &trace.stream_class(stream).events;
                    events.first().is_some_and(|event| {
                        names.iter().any(|name| trace.find_context(stream, event, &[name]).is_some())
                    })
                })
            })
        };
        let contexts = [
            ("tid", !self.tids.is_empty()),
            ("pid", !self.pids.is_empty()),
            ("procname", !self.comms.is_empty()),
            ("cpu_id", !self.cpus.is_empty()),
        ];
        let missing =
            |&(name, is_requested): &(&'static str, bool)| is_requested && !has(vocabulary::context(name));
        contexts.into_iter().find(missing).map(|(name, _)| name)
    }

    /// Returns whether events of this name are included.
    pub fn wants_name(&self, name: &str) -> bool {
        self.events.is_empty() || vocabulary::names(name).iter().any(|name| self.has_pattern_of(name))
    }

    fn has_pattern_of(&self, name: &str) -> bool {
        self.events.iter().any(|pattern| is_like(name.as_bytes(), pattern.as_bytes()))
    }

    /// Combines everything but names into one condition.
    fn condition(&self) -> Option<Condition> {
        let either = |name: &str, numbers: &[u32]| {
            let names = vocabulary::context(name).iter();
            let in_context = true;
            let conditions = names.map(|name| Condition::one_of(name, numbers, in_context)).collect();
            (!numbers.is_empty()).then_some(Condition::Any(conditions))
        };
        let lists = [either("tid", &self.tids), either("pid", &self.pids), either("cpu_id", &self.cpus)];
        let names = vocabulary::context("procname").iter().map(|name| Condition::one_name(name, &self.comms));
        let comms = (!self.comms.is_empty()).then(|| Condition::Any(names.collect()));
        let all: Vec<Condition> =
            lists.into_iter().flatten().chain(comms).chain(self.condition.clone()).collect();
        (!all.is_empty()).then_some(Condition::All(all))
    }

    /// Returns the conditions under which events of a class are included by name: none if all of them are. `None` if no
    /// event is.
    fn name_conditions(&self, trace: &Trace<'_>, event: &EventClass) -> Option<Vec<Condition>> {
        if self.wants_name(&event.name) {
            return Some(Vec::new());
        }
        // An event of all system calls has the call's number in place of its name.
        let prefixes = vocabulary::every_call(&event.name)?;
        let is_wanted =
            |call: &str| prefixes.iter().any(|prefix| self.has_pattern_of(&format!("{prefix}{call}")));
        let calls = machine(trace)?.all().filter(|(_, call)| is_wanted(call));
        let numbers: Vec<u32> = calls.map(|(number, _)| number).collect();
        let in_context = false;
        (!numbers.is_empty()).then(|| vec![Condition::one_of("id", &numbers, in_context)])
    }
}

/// The name of system calls with unknown numbers; LTTng's word.
const UNKNOWN_CALL: &str = "unknown";

/// Returns the names of system calls by number, then that of unknown numbers.
pub(super) fn call_names(trace: &Trace<'_>) -> Vec<&'static str> {
    let known = machine(trace).into_iter().flat_map(Machine::all);
    let mut names = Vec::new();
    for (number, name) in known {
        names.resize(number as usize, UNKNOWN_CALL);
        names.push(name);
    }
    names.push(UNKNOWN_CALL);
    names
}

/// Returns the machine that defines the numbers of system calls.
pub(super) fn machine(trace: &Trace<'_>) -> Option<Machine> {
    trace.class.environment.iter().find_map(|(_, value)| match value {
        Environment::Text(text) => text.split_whitespace().find_map(Machine::of),
        Environment::Integer(_) => None,
    })
}

/// Resolves a field by the tracer's own name or by the vocabulary's: first in the event's payload, then in contexts.
pub(crate) fn find(
    trace: &Trace<'_>,
    stream: &Stream<'_>,
    event: &EventClass,
    names: &[&str],
) -> Option<FieldPath> {
    let (&first, inner) = names.split_first()?;
    let path = |first| [&[first], inner].concat();
    let is_member = |name: &str| {
        event.payload.iter().flat_map(|payload| &payload.members).any(|member| member.name == name)
    };
    let other = vocabulary::field(&event.name, first);
    if let Some(member) = [Some(first), other].into_iter().flatten().find(|name| is_member(name)) {
        return trace.find(stream, event, &path(member));
    }
    let mut contexts = std::iter::once(first).chain(vocabulary::context(first).iter().copied());
    contexts.find_map(|name| trace.find_context(stream, event, &path(name)))
}

impl Filter {
    /// Binds a filter to the classes of some traces.
    pub fn new(traces: &Traces<'_>, wanted: &Wanted) -> Filter {
        let condition = wanted.condition();
        let of_class = |trace: &Trace<'_>, stream: &Stream<'_>, event: &EventClass| {
            let name_conditions = wanted.name_conditions(trace, event)?;
            let find = |names: &[&str], in_context| match in_context {
                true => trace.find_context(stream, event, names),
                false => find(trace, stream, event, names),
            };
            let conditions = condition.iter().chain(&name_conditions);
            let test = Test::All(conditions.map(|condition| Test::bind(condition, &find)).collect());
            (!test.is_never()).then_some(test)
        };
        let of_stream = |trace: &Trace<'_>, stream: &Stream<'_>| {
            trace.stream_class(stream).events.iter().map(|event| of_class(trace, stream, event)).collect()
        };
        let of_trace =
            |trace: &Trace<'_>| trace.streams.iter().map(|stream| of_stream(trace, stream)).collect();
        Filter { tests: traces.events.iter().map(of_trace).collect(), is_all: wanted.is_all() }
    }

    /// Returns whether an event of a class can pass.
    pub fn wants_class(&self, trace: usize, stream: usize, class: usize) -> bool {
        self.tests[trace][stream][class].is_some()
    }

    /// Returns whether an event passes.
    #[inline]
    pub fn wants(&self, trace: usize, stream: usize, event: &Event<'_, '_, '_>) -> bool {
        self.is_all
            || self.tests[trace][stream][event.parts.class as usize]
                .as_ref()
                .is_some_and(|test| test.holds(event))
    }
}
