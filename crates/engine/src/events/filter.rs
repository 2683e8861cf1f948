//! Which events are to be seen.

use hodo_formats::ctf::{Event, Stream, Trace, schema::EventClass};

use super::{
    EventTraces,
    condition::{Condition, Test, is_like},
};

/// What the command line asks for; everything where it asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Patterns of names of events.
    pub events: Vec<String>,
    /// A condition on fields.
    pub condition: Option<Condition>,
    /// Threads, by the context `tid` or `vtid`.
    pub tids: Vec<u32>,
    /// Processes, by the context `pid` or `vpid`.
    pub pids: Vec<u32>,
    /// CPUs, by the packets' context `cpu_id`.
    pub cpus: Vec<u32>,
}

/// What is wanted, looked up in every class of events of every stream.
pub(super) struct Filter {
    /// By trace, stream and class: `None` where no event of the class is wanted.
    tests: Vec<Vec<Vec<Option<Test>>>>,
    /// Whether anything is left out, so that lines about lost events of other classes would mislead nobody.
    is_all: bool,
}

impl Wanted {
    /// Whether it asks for nothing in particular.
    pub fn is_all(&self) -> bool {
        let lists = self.tids.is_empty() && self.pids.is_empty() && self.cpus.is_empty();
        self.events.is_empty() && self.condition.is_none() && lists
    }

    /// The context fields that are asked for but that no stream has, such as `tid`.
    pub fn missing_contexts(&self, traces: &EventTraces<'_>) -> Option<&'static str> {
        let has = |names: &[&str]| {
            traces.traces.iter().any(|trace| {
                trace.streams.iter().any(|stream| {
                    let events = &trace.stream_class(stream).events;
                    events.first().is_some_and(|event| {
                        names.iter().any(|name| context(trace, stream, event, &[name]).is_some())
                    })
                })
            })
        };
        match self {
            _ if !self.tids.is_empty() && !has(&["tid", "vtid"]) => Some("tid"),
            _ if !self.pids.is_empty() && !has(&["pid", "vpid"]) => Some("pid"),
            _ if !self.cpus.is_empty() && !has(&["cpu_id"]) => Some("cpu_id"),
            _ => None,
        }
    }

    /// Whether events of this name are wanted.
    pub(super) fn wants_name(&self, name: &str) -> bool {
        let named = |pattern: &String| is_like(name.as_bytes(), pattern.as_bytes());
        self.events.is_empty() || self.events.iter().any(named)
    }

    /// All of it as one condition.
    fn condition(&self) -> Option<Condition> {
        let either = |names: [&str; 2], numbers: &[u32]| {
            let conditions = names.map(|name| Condition::one_of(name, numbers));
            (!numbers.is_empty()).then(|| Condition::Any(conditions.to_vec()))
        };
        let cpus = (!self.cpus.is_empty()).then(|| Condition::one_of("cpu_id", &self.cpus));
        let lists = [either(["tid", "vtid"], &self.tids), either(["pid", "vpid"], &self.pids), cpus];
        let all: Vec<Condition> = lists.into_iter().flatten().chain(self.condition.clone()).collect();
        (!all.is_empty()).then_some(Condition::All(all))
    }
}

/// A field of a context; where the payload has one of the same name, it stays hidden behind that.
pub(super) fn context(
    trace: &Trace<'_>,
    stream: &Stream<'_>,
    event: &EventClass,
    names: &[&str],
) -> Option<hodo_formats::ctf::FieldPath> {
    let outside = EventClass { payload: None, ..event.clone() };
    trace.find(stream, &outside, names)
}

impl Filter {
    pub(super) fn new(traces: &EventTraces<'_>, wanted: &Wanted) -> Filter {
        let condition = wanted.condition();
        let of_class = |trace: &Trace<'_>, stream: &Stream<'_>, event: &EventClass| {
            if !wanted.wants_name(&event.name) {
                return None;
            }
            let find = |names: &[&str], in_context| match in_context {
                true => context(trace, stream, event, names),
                false => trace.find(stream, event, names),
            };
            let test =
                condition.as_ref().map_or(Test::All(Vec::new()), |condition| Test::bind(condition, &find));
            (!test.is_never()).then_some(test)
        };
        let of_stream = |trace: &Trace<'_>, stream: &Stream<'_>| {
            trace.stream_class(stream).events.iter().map(|event| of_class(trace, stream, event)).collect()
        };
        let of_trace =
            |trace: &Trace<'_>| trace.streams.iter().map(|stream| of_stream(trace, stream)).collect();
        Filter { tests: traces.traces.iter().map(of_trace).collect(), is_all: wanted.is_all() }
    }

    /// Whether events of a class of a stream can be wanted.
    pub(super) fn wants_class(&self, trace: usize, stream: usize, class: usize) -> bool {
        self.tests[trace][stream][class].is_some()
    }

    /// Whether an event is wanted.
    #[inline]
    pub(super) fn wants(&self, trace: usize, stream: usize, event: &Event<'_, '_, '_>) -> bool {
        self.is_all
            || self.tests[trace][stream][event.parts.class as usize]
                .as_ref()
                .is_some_and(|test| test.holds(event))
    }
}
