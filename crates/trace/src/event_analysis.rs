//! The contract between kernel events and what is computed from them.

use std::any::{Any, TypeId};

use hodo_clock::Nanos;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Period, Table,
    kernel::{Chosen, KernelEvent, Kind, Threads},
};

/// What of the whole its table is made of.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// One of [`EventAnalysis::views`]; the first where it is empty.
    pub view: String,
    /// Only these threads; all where there are none.
    pub tids: Vec<u32>,
    /// Only these processes.
    pub pids: Vec<u32>,
    /// Only threads with these names.
    pub comms: Vec<String>,
    /// Only what happened on these CPUs.
    pub cpus: Vec<u32>,
}

impl Choice {
    /// Whether nothing is left out.
    pub fn is_of_all(&self) -> bool {
        self.tids.is_empty() && self.pids.is_empty() && self.comms.is_empty() && self.cpus.is_empty()
    }

    /// Whether a list asks for one of a kind.
    pub fn wants_cpu(&self, cpu: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpu)
    }
}

/// The whole that was folded.
#[derive(Clone, Debug)]
pub struct Whole<'a> {
    /// What follows the prefixes of events' names, by the index that events have.
    pub names: &'a [String],
    /// The time of the first event of any kind, and of the last.
    pub span: (Nanos, Nanos),
    /// What is asked for.
    pub choice: &'a Choice,
    /// Who ran, and what is known of threads.
    pub threads: &'a Threads,
    /// The state of what the analysis rests on.
    pub base: Option<&'a AnyPartial>,
}

impl Whole<'_> {
    /// The state of what the analysis rests on, which it knows.
    pub fn base<P: 'static>(&self) -> &P {
        let base = self.base.and_then(|base| base.downcast_ref());
        base.expect("a pass follows what its analyses rest on")
    }
}

/// What is known before the first event of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// What follows the prefixes of events' names, by the index that events have.
    pub names: &'a [String],
    /// Whether the trace begins here.
    pub is_first: bool,
}

/// A computation over the events of a kernel, cut anywhere in time.
///
/// The law is that of [`Analysis`](crate::Analysis): for every way to cut the events into chunks and to group
/// the merges, the result is exactly that of one chunk.
pub trait EventAnalysis: Sync {
    /// What is known after some events; travels between threads, processes and machines.
    type Partial: Send + Sync + Serialize + DeserializeOwned + 'static;

    /// The events that it needs, and the places of the fields that it needs of them.
    fn interest(&self) -> &'static [(Kind, &'static [usize])];

    /// Whether it needs to know who runs, and what threads are called.
    fn needs_threads(&self) -> bool {
        true
    }

    /// Another analysis, on whose state its table rests as well. Those that rest on the same share it.
    fn base(&self) -> Option<&'static dyn AnyEventAnalysis> {
        None
    }

    /// The periods whose begins and ends it needs, as [`Kind::PeriodBegin`] and [`Kind::PeriodEnd`].
    fn period(&self) -> Option<&Period> {
        None
    }

    /// The names of the tables that it can make, the usual one first.
    fn views(&self) -> &'static [&'static str];

    /// Whether what it tells is of CPUs, among which one can choose.
    fn of_cpus(&self) -> bool {
        true
    }

    /// The state at the start of a chunk, where nothing is known of what came before.
    fn unknown(&self) -> Self::Partial;

    /// The same where more is known.
    fn begin(&self, start: &Start<'_>) -> Self::Partial {
        let _ = start;
        self.unknown()
    }

    /// Who makes the table of a choice, where that needs other events or fields than the usual tables do.
    fn of_choice(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        let _ = choice;
        None
    }

    /// Who makes the same table of a choice with less work, where nobody asks for another one.
    fn alone(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        let _ = choice;
        None
    }

    /// Adds an event. Events come in order of time.
    fn fold(&self, partial: &mut Self::Partial, event: &KernelEvent<'_>);

    /// Joins the states of two neighbouring spans of time; `earlier` ends where `later` begins, and where `threads`
    /// run.
    fn merge(&self, earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial;

    /// The result.
    fn finish(&self, whole: Self::Partial, of: &Whole<'_>) -> Table;
}

/// A state whose analysis is not known where it is handed on.
pub type AnyPartial = Box<dyn Any + Send + Sync>;

/// An [`EventAnalysis`] beside others, whose states differ in type.
pub trait AnyEventAnalysis: Sync {
    /// See [`EventAnalysis::interest`].
    fn interest(&self) -> &'static [(Kind, &'static [usize])];
    /// See [`EventAnalysis::needs_threads`].
    fn needs_threads(&self) -> bool;
    /// See [`EventAnalysis::base`].
    fn base(&self) -> Option<&'static dyn AnyEventAnalysis>;
    /// See [`EventAnalysis::period`].
    fn period(&self) -> Option<&Period>;
    /// See [`EventAnalysis::views`].
    fn views(&self) -> &'static [&'static str];
    /// See [`EventAnalysis::of_cpus`].
    fn of_cpus(&self) -> bool;
    /// See [`EventAnalysis::unknown`].
    fn unknown(&self) -> AnyPartial;
    /// See [`EventAnalysis::begin`].
    fn begin(&self, start: &Start<'_>) -> AnyPartial;
    /// See [`EventAnalysis::of_choice`].
    fn of_choice(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>>;
    /// See [`EventAnalysis::alone`].
    fn alone(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>>;
    /// See [`EventAnalysis::fold`].
    fn fold(&self, partial: &mut AnyPartial, events: Chosen<'_>);
    /// See [`EventAnalysis::merge`].
    fn merge(&self, earlier: AnyPartial, later: AnyPartial, threads: &Threads) -> AnyPartial;
    /// See [`EventAnalysis::finish`].
    fn finish(&self, whole: AnyPartial, of: &Whole<'_>) -> Table;
    /// The type of its states.
    fn state(&self) -> TypeId;
    /// A state as bytes, to travel to another process.
    fn pack(&self, partial: &AnyPartial) -> Vec<u8>;
    /// The state that bytes stand for, `None` where they are none of this analysis.
    fn unpack(&self, bytes: &[u8]) -> Option<AnyPartial>;
}

impl<A: EventAnalysis> AnyEventAnalysis for A {
    fn interest(&self) -> &'static [(Kind, &'static [usize])] {
        EventAnalysis::interest(self)
    }

    fn needs_threads(&self) -> bool {
        EventAnalysis::needs_threads(self)
    }

    fn base(&self) -> Option<&'static dyn AnyEventAnalysis> {
        EventAnalysis::base(self)
    }

    fn period(&self) -> Option<&Period> {
        EventAnalysis::period(self)
    }

    fn views(&self) -> &'static [&'static str] {
        EventAnalysis::views(self)
    }

    fn of_cpus(&self) -> bool {
        EventAnalysis::of_cpus(self)
    }

    fn unknown(&self) -> AnyPartial {
        Box::new(EventAnalysis::unknown(self))
    }

    fn begin(&self, start: &Start<'_>) -> AnyPartial {
        Box::new(EventAnalysis::begin(self, start))
    }

    fn of_choice(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        EventAnalysis::of_choice(self, choice)
    }

    fn alone(&self, choice: &Choice) -> Option<Box<dyn AnyEventAnalysis>> {
        EventAnalysis::alone(self, choice)
    }

    fn fold(&self, partial: &mut AnyPartial, events: Chosen<'_>) {
        let partial = partial.downcast_mut::<A::Partial>().expect("a state of this analysis");
        events.iter().for_each(|event| EventAnalysis::fold(self, partial, &event));
    }

    fn merge(&self, earlier: AnyPartial, later: AnyPartial, threads: &Threads) -> AnyPartial {
        let own = |partial: AnyPartial| *partial.downcast().expect("a state of this analysis");
        Box::new(EventAnalysis::merge(self, own(earlier), own(later), threads))
    }

    fn state(&self) -> TypeId {
        TypeId::of::<A::Partial>()
    }

    fn finish(&self, whole: AnyPartial, of: &Whole<'_>) -> Table {
        EventAnalysis::finish(self, *whole.downcast().expect("a state of this analysis"), of)
    }

    fn pack(&self, partial: &AnyPartial) -> Vec<u8> {
        let partial: &A::Partial = partial.downcast_ref().expect("a state of this analysis");
        postcard::to_allocvec(partial).expect("memory does not refuse what is written to it")
    }

    fn unpack(&self, bytes: &[u8]) -> Option<AnyPartial> {
        Some(Box::new(postcard::from_bytes::<A::Partial>(bytes).ok()?))
    }
}
