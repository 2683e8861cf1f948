//! The contract of an analysis: how it makes a table from the items of a trace.
//!
//! ```text
//! begin ──fold each item──► partial ──merge with its neighbours──► partial of the whole ──finish──► Table
//! ```
//!
//! The law: the table is the same as that of a single task, however the trace is split into tasks and the merges are
//! grouped. So `merge` is associative, and folding a whole equals merging the partials of its tasks.

use hodo_clock::Nanos;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    AnyAnalysis, AnyPartial, CountInterest, Counts, FlowEvent, FunctionRun, Heading, Names, Numbering,
    Period, Root, Run, Sources, Table, TableBuilder,
    kernel::{KernelEvent, Kind, Threads, Wakeups},
};

/// What an analysis receives at once: an event, a piece of control flow, or counts.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A software event. The events of all streams arrive in order of time.
    Event(&'a KernelEvent<'a>),
    /// Control flow of one thread, in execution order.
    Flow(FlowEvent<'a>),
    /// Event counts, in any order.
    Counts(&'a Counts<'a>),
}

/// The control flow that an analysis reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowInterest {
    /// Nothing.
    #[default]
    None,
    /// Runs of instructions, calls, returns and gaps.
    Runs,
    /// As [`Runs`](FlowInterest::Runs), plus the [number](FlowEvent::Number) of the first instruction. Numbers cost
    /// another decoding pass.
    Numbered,
}

/// The items that an analysis reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest<'a> {
    /// Kinds of events, and the positions of the fields that the analysis reads.
    pub events: &'a [(Kind, &'static [usize])],
    /// Kinds of events that the analysis reads too, without fields, but only events that contain their thread; see
    /// [`KernelEvent::reported`].
    pub reporting: &'a [Kind],
    /// Whether the analysis reads `KernelEvent::thread` and thread names.
    pub threads: bool,
    /// The period whose ends the analysis reads, as [`Kind::PeriodBegin`] and [`Kind::PeriodEnd`].
    pub period: Option<&'a Period>,
    /// Another analysis whose partial [`Analysis::finish`] reads. Analyses with the same base share its partial.
    pub base: Option<&'static dyn AnyAnalysis>,
    /// Control flow.
    pub flow: FlowInterest,
    /// Event counts.
    pub counts: CountInterest,
}

impl<'a> Interest<'a> {
    const NOTHING: Interest<'a> = Interest {
        events: &[],
        reporting: &[],
        threads: false,
        period: None,
        base: None,
        flow: FlowInterest::None,
        counts: CountInterest::None,
    };

    /// Reads events, and the thread that ran at each.
    pub const fn events(events: &'a [(Kind, &'static [usize])]) -> Interest<'a> {
        Interest { events, threads: true, ..Interest::NOTHING }
    }

    /// Reads control flow.
    pub const fn flow(flow: FlowInterest) -> Interest<'a> {
        Interest { flow, ..Interest::NOTHING }
    }

    /// Reads event counts.
    pub const fn counts(counts: CountInterest) -> Interest<'a> {
        Interest { counts, ..Interest::NOTHING }
    }

    /// Leaves out the thread that ran at each event.
    pub const fn without_threads(self) -> Interest<'a> {
        Interest { threads: false, ..self }
    }

    /// Adds kinds of events, of which only those that contain their thread are read.
    pub const fn with_reporting(self, reporting: &'a [Kind]) -> Interest<'a> {
        Interest { reporting, ..self }
    }

    /// Adds the ends of a period.
    pub const fn with_period(self, period: Option<&'a Period>) -> Interest<'a> {
        Interest { period, ..self }
    }

    /// Adds the partial of another analysis.
    pub const fn with_base(self, base: &'static dyn AnyAnalysis) -> Interest<'a> {
        Interest { base: Some(base), ..self }
    }
}

/// The context of a task at its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start<'a> {
    /// The variable parts of event names (such as `openat` in `syscall_entry_openat`), indexed by
    /// `KernelEvent::name`.
    pub names: &'a [String],
    /// Whether the task starts at the beginning of the trace.
    pub is_first: bool,
    /// The events from which wake-ups are known.
    pub wakeups: Wakeups,
}

/// The view, threads, processes and CPUs that a table covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The name of one of the report's views; empty for the default.
    pub view: String,
    /// Thread ids; empty for all.
    pub tids: Vec<u32>,
    /// Process ids; empty for all.
    pub pids: Vec<u32>,
    /// Thread names; empty for all.
    pub comms: Vec<String>,
    /// CPUs; empty for all.
    pub cpus: Vec<u32>,
    /// If given, only executions of these functions.
    pub root: Option<Root>,
    /// Only from this time to this time, in a table of the whole trace.
    pub window: Option<(Nanos, Nanos)>,
}

impl Selection {
    /// Whether every thread and CPU is selected.
    pub fn is_of_all(&self) -> bool {
        self.is_of_any_thread() && self.cpus.is_empty()
    }

    /// Whether every thread is selected.
    pub fn is_of_any_thread(&self) -> bool {
        self.tids.is_empty() && self.pids.is_empty() && self.comms.is_empty()
    }

    /// Whether a CPU is selected.
    pub fn wants_cpu(&self, cpu: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpu)
    }
}

/// A thread whose control flow was recorded.
#[derive(Clone, Debug)]
pub struct FlowThread {
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// Its last name, if known.
    pub comm: Option<String>,
}

/// The context for [`Analysis::finish`].
#[derive(Clone)]
pub struct FinishContext<'a> {
    /// See [`Start::names`].
    pub names: &'a [String],
    /// Times of the first and the last event of any kind. While rows [settle](Analysis::settle), the last one is the last
    /// so far.
    pub span: (Nanos, Nanos),
    /// The events from which wake-ups are known.
    pub wakeups: Wakeups,
    /// The view and filters of the table.
    pub selection: &'a Selection,
    /// Thread names, and the thread behind a placeholder in a partial.
    pub threads: &'a Threads,
    /// The partial of [`Interest::base`].
    pub base: Option<&'a AnyPartial>,
    /// Functions and source lines of executed code.
    pub sources: &'a dyn Sources,
    /// For control flow, the thread of each partial, in order.
    pub flow_threads: &'a [FlowThread],
    /// Bytes of trace that the control flow was decoded from; `None` if not all of it was requested.
    pub trace_bytes: Option<u64>,
}

impl<'a> FinishContext<'a> {
    /// The context for control flow or counts, without events.
    pub fn without_events(
        selection: &'a Selection,
        threads: &'a Threads,
        sources: &'a dyn Sources,
    ) -> FinishContext<'a> {
        FinishContext {
            names: &[],
            span: Default::default(),
            wakeups: Wakeups::default(),
            selection,
            threads,
            base: None,
            sources,
            flow_threads: &[],
            trace_bytes: None,
        }
    }

    /// The partial of [`Interest::base`], downcast to its type.
    pub fn base<P: 'static>(&self) -> &P {
        let base = self.base.and_then(|base| base.downcast_ref());
        base.expect("a pass folds the bases of its analyses")
    }

    /// Function names.
    pub fn functions(&self) -> &'a dyn Names {
        self.sources
    }
}

/// A computation over a trace that can be split anywhere; see the law at the top of this file.
pub trait Analysis: Send + Sync + 'static {
    /// The result of folding some items. It is sent between threads, processes and machines.
    type Partial: Send + Sync + Serialize + DeserializeOwned + 'static;

    /// Returns the items that the analysis reads. `fold` must accept items outside this interest: another analysis of
    /// the pass may request them.
    fn interest(&self) -> Interest<'_>;

    /// The partial of a task before its first item. Earlier state is unknown, unless the task starts the trace.
    fn begin(&self, start: &Start<'_>) -> Self::Partial;

    /// Adds one item.
    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>);

    /// Merges two adjacent partials. `threads` is the thread state at the end of `earlier`.
    fn merge(&self, earlier: Self::Partial, later: Self::Partial, threads: &Threads) -> Self::Partial;

    /// Whether [`Analysis::merge`] accepts its arguments in either order, as sums do.
    fn is_commutative(&self) -> bool {
        false
    }

    /// The heading of a table whose rows can [leave early](Analysis::settle). `None` if all rows stay until the end.
    fn heading(&self) -> Option<Heading> {
        None
    }

    /// Moves rows that no later item can change out of the partial, in table order. The partial covers the trace from
    /// its beginning to the end of the [span](FinishContext::span). [`Analysis::finish`] then returns a table of the
    /// remaining rows, which follow the moved ones; its summary covers all rows.
    fn settle(&self, _partial: &mut Self::Partial, _context: &FinishContext<'_>, _rows: &mut TableBuilder) {}

    /// Whether a deserialized partial is consistent: every reference in it resolves. Inconsistent partials are
    /// rejected before `merge` and `finish`, which may rely on this.
    fn is_sound(&self, _partial: &Self::Partial) -> bool {
        true
    }

    /// Makes the table of a whole trace. An analysis of events gets one partial; an analysis of control flow gets one
    /// per thread, in the order of the recording.
    fn finish(&self, partials: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table;

    /// Makes the tables of several traces of control flow: one for each in their order, or one of all together.
    fn finish_several(&self, traces: Vec<(Vec<Self::Partial>, FinishContext<'_>)>) -> Vec<Table> {
        traces.into_iter().map(|(partials, context)| self.finish(partials, &context)).collect()
    }
}

/// The partial of an analysis of events, which several analyses may have in common.
pub trait EventPartial: Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Returns the events that change it.
    fn interest() -> Interest<'static>;

    /// The partial of a task before its first event.
    fn begin(start: &Start<'_>) -> Self;

    /// Adds an event.
    fn see(&mut self, event: &KernelEvent<'_>);

    /// Adds the partial of the next task. `threads` is the thread state where that begins.
    fn add(&mut self, later: Self, threads: &Threads);
}

/// An [`Analysis`] of events that only adds its table to what an [`EventPartial`] keeps.
pub trait EventAnalysis: Send + Sync + 'static {
    /// See [`Analysis::Partial`].
    type Partial: EventPartial;

    /// See [`Analysis::interest`].
    fn interest(&self) -> Interest<'_> {
        Self::Partial::interest()
    }

    /// See [`Analysis::heading`].
    fn heading(&self) -> Option<Heading> {
        None
    }

    /// See [`Analysis::settle`].
    fn settle(&self, _partial: &mut Self::Partial, _context: &FinishContext<'_>, _rows: &mut TableBuilder) {}

    /// Makes the table of the whole trace.
    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table;
}

impl<A: EventAnalysis> Analysis for A {
    type Partial = A::Partial;

    fn interest(&self) -> Interest<'_> {
        EventAnalysis::interest(self)
    }

    fn begin(&self, start: &Start<'_>) -> A::Partial {
        A::Partial::begin(start)
    }

    #[inline]
    fn fold(&self, partial: &mut A::Partial, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        partial.see(event);
    }

    fn merge(&self, mut earlier: A::Partial, later: A::Partial, threads: &Threads) -> A::Partial {
        earlier.add(later, threads);
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        EventAnalysis::heading(self)
    }

    fn settle(&self, partial: &mut A::Partial, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        EventAnalysis::settle(self, partial, context, rows);
    }

    fn finish(&self, partials: Vec<A::Partial>, context: &FinishContext<'_>) -> Table {
        EventAnalysis::finish(self, only(partials), context)
    }
}

/// Returns the single partial of an analysis of events or counts.
///
/// # Panics
/// If there is not exactly one partial.
pub fn only<P>(partials: Vec<P>) -> P {
    let [partial] = partials.try_into().ok().expect("events are merged into one partial");
    partial
}

/// An analysis of control flow. Its methods are optional fast paths: they take batches that are cheaper to fold than
/// their [`Item::Flow`]s, with the same result.
pub trait FastFlow: Analysis {
    /// The memoized paths of a thread, kept from one task to the next; `()` without fast paths.
    type Memory: Default;

    /// Whether to call [`FastFlow::fold_function_runs`]. For analyses that ignore the executed code.
    const TAKES_FUNCTION_RUNS: bool = false;

    /// Adds a batch of consecutive function runs, then a [`FlowEvent::Time`] if `_until` is given. Equal to folding
    /// each run's [`FlowEvent::Run`]s and its final transfer.
    fn fold_function_runs(
        &self,
        _partial: &mut Self::Partial,
        _functions: &impl Numbering,
        _function_runs: &[FunctionRun],
        _until: Option<Nanos>,
    ) {
    }

    /// Swaps the memoized paths of a partial, after adding everything they accumulated to the partial.
    fn exchange(&self, _partial: &mut Self::Partial, _memory: &mut Self::Memory) {}

    /// A number that determines what runs do to the partial. `None` if items must be folded.
    fn state(&self, _partial: &mut Self::Partial) -> Option<u32> {
        None
    }

    /// Memoizes what consecutive runs do in `_state`, which may differ from the current state. Returns the number of
    /// the path and the state after it, or `None` if the runs must be folded.
    fn learn(
        &self,
        _partial: &mut Self::Partial,
        _state: u32,
        _runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        None
    }

    /// Memoizes a path that is two memoized ones, `_first` and then `_second`; returns its number. `None` if they must
    /// be folded one by one.
    fn join(&self, _partial: &mut Self::Partial, _first: u32, _second: u32) -> Option<u32> {
        None
    }

    /// Adds the runs of a memoized path. Equal to folding its items, except for the state, which [`FastFlow::resume`]
    /// sets.
    fn fold_path(&self, _partial: &mut Self::Partial, _path: u32) {}

    /// Sets the state after a sequence of paths.
    fn resume(&self, _partial: &mut Self::Partial, _state: u32) {}
}
