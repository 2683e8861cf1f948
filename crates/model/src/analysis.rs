//! The contract of an analysis: how the items of a trace become a table.
//!
//! ```text
//! begin ──fold each item──► partial ──merge with its neighbours──► partial of the whole ──finish──► Table
//! ```
//!
//! The law: for every way to cut a trace into tasks and to group the merges, the table is exactly that of one task.
//! So `merge` is associative, and a fold of the whole equals any merge of its parts.

use hodo_clock::Nanos;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    AnyAnalysis, AnyPartial, CountInterest, Counts, FlowEvent, FunctionRun, Names, Numbering, Period, Run,
    Sources, Table,
    kernel::{KernelEvent, Kind, Threads},
};

/// One item of a task.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A software event. Events of all streams come in order of time.
    Event(&'a KernelEvent<'a>),
    /// Control flow of one thread, in the order of execution.
    Flow(FlowEvent<'a>),
    /// How many events there were; in any order.
    Counts(&'a Counts<'a>),
}

/// What of the control flow an analysis reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowInterest {
    /// Nothing.
    #[default]
    None,
    /// Runs of instructions, calls, returns and gaps.
    Runs,
    /// The same, and the [number](FlowEvent::Number) of the first instruction. Numbers cost another pass of decoding.
    Numbered,
}

/// What an analysis reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest<'a> {
    /// Kinds of events, and the places of the fields that are read of them.
    pub events: &'a [(Kind, &'static [usize])],
    /// Whether [`KernelEvent::thread`] and the names of threads are used.
    pub threads: bool,
    /// The period whose ends are read, as [`Kind::PeriodBegin`] and [`Kind::PeriodEnd`].
    pub period: Option<&'a Period>,
    /// Another analysis whose partial [`Analysis::finish`] reads. Analyses with the same base share it.
    pub base: Option<&'static dyn AnyAnalysis>,
    /// Control flow.
    pub flow: FlowInterest,
    /// Counts of events.
    pub counts: CountInterest,
}

impl<'a> Interest<'a> {
    const NOTHING: Interest<'a> = Interest {
        events: &[],
        threads: false,
        period: None,
        base: None,
        flow: FlowInterest::None,
        counts: CountInterest::None,
    };

    /// Events, and which thread ran when each happened.
    pub const fn events(events: &'a [(Kind, &'static [usize])]) -> Interest<'a> {
        Interest { events, threads: true, ..Interest::NOTHING }
    }

    /// Control flow.
    pub const fn flow(flow: FlowInterest) -> Interest<'a> {
        Interest { flow, ..Interest::NOTHING }
    }

    /// Counts of events.
    pub const fn counts(counts: CountInterest) -> Interest<'a> {
        Interest { counts, ..Interest::NOTHING }
    }

    /// The same without following threads.
    pub const fn without_threads(self) -> Interest<'a> {
        Interest { threads: false, ..self }
    }

    /// The same with the ends of a period.
    pub const fn with_period(self, period: Option<&'a Period>) -> Interest<'a> {
        Interest { period, ..self }
    }

    /// The same with the partial of another analysis.
    pub const fn with_base(self, base: &'static dyn AnyAnalysis) -> Interest<'a> {
        Interest { base: Some(base), ..self }
    }
}

/// What is known where a task begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start<'a> {
    /// The variable parts of events' names (such as `openat` of `syscall_entry_openat`), by [`KernelEvent::name`].
    pub names: &'a [String],
    /// Whether the trace begins here.
    pub is_first: bool,
}

/// Which threads, CPUs and rows a table is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Which of the report's views; empty for the default one.
    pub view: String,
    /// Thread ids; empty for all.
    pub tids: Vec<u32>,
    /// Process ids; empty for all.
    pub pids: Vec<u32>,
    /// Names of threads; empty for all.
    pub comms: Vec<String>,
    /// CPUs; empty for all.
    pub cpus: Vec<u32>,
}

impl Selection {
    /// Whether nothing is left out.
    pub fn is_of_all(&self) -> bool {
        self.tids.is_empty() && self.pids.is_empty() && self.comms.is_empty() && self.cpus.is_empty()
    }

    /// Whether a CPU is selected.
    pub fn wants_cpu(&self, cpu: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpu)
    }
}

/// What [`Analysis::finish`] may look up.
#[derive(Clone)]
pub struct FinishContext<'a> {
    /// As [`Start::names`].
    pub names: &'a [String],
    /// The time of the first event of any kind, and of the last.
    pub span: (Nanos, Nanos),
    /// What to make the table of.
    pub selection: &'a Selection,
    /// Names of threads, and which thread ran where a partial did not know it.
    pub threads: &'a Threads,
    /// The partial of [`Interest::base`].
    pub base: Option<&'a AnyPartial>,
    /// Functions and lines of the code that ran.
    pub sources: &'a dyn Sources,
    /// Of control flow, the process and the thread of each partial, in their order.
    pub flow_threads: &'a [(u32, u32)],
}

impl<'a> FinishContext<'a> {
    /// The whole of control flow or counts, of which no events are known.
    pub fn without_events(
        selection: &'a Selection,
        threads: &'a Threads,
        sources: &'a dyn Sources,
    ) -> FinishContext<'a> {
        FinishContext {
            names: &[],
            span: Default::default(),
            selection,
            threads,
            base: None,
            sources,
            flow_threads: &[],
        }
    }

    /// The partial of [`Interest::base`], of a type that the analysis knows.
    pub fn base<P: 'static>(&self) -> &P {
        let base = self.base.and_then(|base| base.downcast_ref());
        base.expect("a pass folds the bases of its analyses")
    }

    /// Names of functions.
    pub fn functions(&self) -> &'a dyn Names {
        self.sources
    }
}

/// A computation over a trace that may be cut anywhere; see the [law](self).
pub trait Analysis: Send + Sync + 'static {
    /// What is known after some items; travels between threads, processes and machines.
    type Partial: Send + Sync + Serialize + DeserializeOwned + 'static;

    /// What it reads. An item that it does not ask for may be folded all the same, if another analysis of the pass
    /// asks for it.
    fn interest(&self) -> Interest<'_>;

    /// The partial of a task before its first item. What came before is unknown, unless the trace begins here.
    fn begin(&self, start: &Start<'_>) -> Self::Partial;

    /// Adds an item.
    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>);

    /// Joins two neighbours; `earlier` ends where `later` begins, and where `threads` run.
    fn merge(&self, earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial;

    /// Whether [`Analysis::merge`] may take its neighbours in either order, as sums may.
    fn is_commutative(&self) -> bool {
        false
    }

    /// Whether a partial that came from bytes holds together: what it refers to is there. Another one is refused, so
    /// that whoever merges and finishes may rely on it.
    fn is_sound(&self, _partial: &Self::Partial) -> bool {
        true
    }

    /// The table of a whole trace. An analysis of events gets one partial; an analysis of control flow gets one for
    /// each thread, in the order of the recording.
    fn finish(&self, partials: Vec<Self::Partial>, of: &FinishContext<'_>) -> Table;
}

/// The partial of an analysis of events or counts, of which there is one.
///
/// # Panics
/// Where there is not exactly one.
pub fn only<P>(partials: Vec<P>) -> P {
    let [partial] = partials.try_into().ok().expect("events are merged into one partial");
    partial
}

/// An analysis of control flow that takes cheaper items than [`Item::Flow`]: optional, and equal to folding those by
/// law. [`Plain`] is for analyses that do without.
pub trait FastFlow: Analysis {
    /// What a thread remembers of paths from one task to the next.
    type Memory: Default;

    /// Whether [`FastFlow::fold_function_runs`] is used. For analyses that do not look into the code.
    const TAKES_FUNCTION_RUNS: bool = false;

    /// Adds function runs that follow each other, the first of which begins what they count: the same as folding the
    /// [`FlowEvent::Run`]s that each is made of, and what its last instruction was; then [`FlowEvent::Time`], if one is given.
    fn fold_function_runs(
        &self,
        _partial: &mut Self::Partial,
        _functions: &impl Numbering,
        _function_runs: &[FunctionRun],
        _until: Option<Nanos>,
    ) {
    }

    /// Swaps what a partial remembers of paths; all that those paths added is then part of the partial.
    fn exchange(&self, _partial: &mut Self::Partial, _memory: &mut Self::Memory) {}

    /// A number for everything that decides what runs do to a partial; `None` where items have to be folded.
    fn state(&self, _partial: &mut Self::Partial) -> Option<u32> {
        None
    }

    /// Learns what runs that follow each other do in a state, which need not be the present one: the number of that
    /// path, and the state behind it. `None` where the runs have to be folded.
    fn learn(
        &self,
        _partial: &mut Self::Partial,
        _state: u32,
        _runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        None
    }

    /// Adds the runs of a learned path: the same as folding its items, except for the state, which
    /// [`FastFlow::resume`] sets.
    fn fold_path(&self, _partial: &mut Self::Partial, _path: u32) {}

    /// Sets the state that paths led to.
    fn resume(&self, _partial: &mut Self::Partial, _state: u32) {}
}

/// An analysis of control flow without [fast paths](FastFlow).
#[derive(Clone, Copy, Debug)]
pub struct Plain<A>(pub A);

impl<A: Analysis> Analysis for Plain<A> {
    type Partial = A::Partial;

    fn interest(&self) -> Interest<'_> {
        self.0.interest()
    }

    fn begin(&self, start: &Start<'_>) -> A::Partial {
        self.0.begin(start)
    }

    #[inline]
    fn fold(&self, partial: &mut A::Partial, item: Item<'_>) {
        self.0.fold(partial, item);
    }

    fn merge(&self, earlier: A::Partial, later: A::Partial, threads: &Threads) -> A::Partial {
        self.0.merge(earlier, later, threads)
    }

    fn is_commutative(&self) -> bool {
        self.0.is_commutative()
    }

    fn is_sound(&self, partial: &A::Partial) -> bool {
        self.0.is_sound(partial)
    }

    fn finish(&self, partials: Vec<A::Partial>, of: &FinishContext<'_>) -> Table {
        self.0.finish(partials, of)
    }
}

impl<A: Analysis> FastFlow for Plain<A> {
    type Memory = ();
}
