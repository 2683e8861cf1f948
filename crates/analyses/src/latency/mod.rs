//! `latency`: measures the time between two points, for each occurrence.
//!
//! ```text
//! control flow ──► executions: calls of a function ──┐
//!              └─► marks: markers that are passed ───┼──► Interval… ──► percentiles, histogram, by thread, by caller
//! software events ──► periods ───────────────────────┘
//! ```
//!
//! Rules: an interval is of one thread (for events: of one value of the matched fields). It is *complete* if both of
//! its ends are known and nothing is missing between them. Other intervals are counted separately and are not part of
//! percentiles.

mod executions;
mod functions;
mod humps;
mod kernel;
mod library;
mod marker;
mod marks;
mod matcher;
mod outermost;
mod periods;
mod summary;
mod tables;

use std::sync::Arc;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Description, FastFlow, FinishContext, FlowInterest, FlowLoop, FunctionId, FunctionRun,
    Interest, Intervals, Item, Made, Marker, Nesting, Numbering, Report, Role, Run, Start, Table, Takes,
    kernel::Threads,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::{
    executions::{CompletedExecution, Which},
    marks::{MarkedInterval, MarkedIntervals},
    matcher::{MarkerMatcher, MatchCache},
    periods::PeriodLatency,
    tables::FoundIntervals,
};

use crate::mark::Mark;

pub use humps::{Hump, Humps, humps};
pub use library::{NamedPair, PairsError, shipped, user_pairs};
pub use marker::{Named, may_be_written, nearest_of, parse};
pub use matcher::is_like;
pub use summary::{HistogramBin, Measure, Scale, bins, percentile};
pub use tables::{Grouping, PERCENTILES, grouped, histogram, of_table, summary};

/// How an interval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IntervalEnd {
    /// Normally: the function returned, or the marker was reached.
    Returned,
    /// By an exception, `longjmp`, or the like.
    Unwound,
    /// Control flow is missing inside.
    Lost,
    /// The trace of the thread ends inside.
    Cut,
    /// It began before the trace of the thread, or in a gap.
    Begun,
}

impl IntervalEnd {
    const ALL: [Self; 5] = [Self::Returned, Self::Unwound, Self::Lost, Self::Cut, Self::Begun];

    /// Returns whether its length is known.
    pub fn is_complete(self) -> bool {
        self == IntervalEnd::Returned
    }

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            IntervalEnd::Returned => "returned",
            IntervalEnd::Unwound => "unwound",
            IntervalEnd::Lost => "gap",
            IntervalEnd::Cut => "cut",
            IntervalEnd::Begun => "begun before",
        }
    }

    fn of_name(name: &str) -> Option<IntervalEnd> {
        IntervalEnd::ALL.into_iter().find(|ended| ended.name() == name)
    }
}

/// A measured interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Process and thread, as `PID/TID`; for events, the values of the matched fields.
    pub thread: Arc<str>,
    /// Its number in the thread, from 1 in order of begin.
    pub number: u64,
    /// Begin in nanoseconds, if known.
    pub begin: Option<u64>,
    /// Duration in nanoseconds, if known.
    pub time: Option<u64>,
    /// Number of instructions executed in it; `None` for events.
    pub instructions: Option<u64>,
    /// Core cycles, if they are recorded.
    pub cycles: Option<u64>,
    /// The number of its first instruction in the thread.
    pub first: Option<u64>,
    /// The caller of the function; for events, the group.
    pub caller: Arc<str>,
    /// The CPU on which it began, if known.
    pub cpu: Option<u64>,
    /// Number of executions of the same function below it on the stack.
    pub level: u64,
    /// How it ended.
    pub ended: IntervalEnd,
}

impl Interval {
    fn between(begin: &Mark, end: &Mark, ended: IntervalEnd) -> Interval {
        let (from, until) = (begin.time(), end.time());
        Interval {
            thread: Arc::default(),
            number: 0,
            begin: from,
            time: from.zip(until).map(|(from, until)| until.saturating_sub(from)),
            instructions: Some(end.before.saturating_sub(begin.before)),
            cycles: begin.cycles_until(end),
            first: Some(begin.before),
            caller: Arc::default(),
            cpu: None,
            level: 0,
            ended,
        }
    }

    fn of(
        done: &CompletedExecution,
        names: &mut FxHashMap<FunctionId, Arc<str>>,
        context: &FinishContext<'_>,
    ) -> Interval {
        let caller = match done.ended {
            IntervalEnd::Begun => Arc::default(),
            // A system call whose begin is known, but not who called it.
            _ if done.caller == done.function && done.level == 0 => Arc::default(),
            _ => Arc::clone(
                names.entry(done.caller).or_insert_with(|| context.functions().names(done.caller).0.into()),
            ),
        };
        let level = done.level.into();
        Interval { caller, level, ..Interval::between(&done.begin, &done.end, done.ended) }
    }
}

/// The view of all functions without times, which takes less work.
const INSTRUCTIONS: &str = "instructions";

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "latency",
            roles: &[Role::Intervals],
            help: "exact counts of function executions, the heaviest tails first; see `hodo latency` for one function",
            views: &["histogram", "executions", "thread", "caller", "cpu", "time", INSTRUCTIONS],
            takes: Takes { threads: true, intervals: true, ..Takes::NOTHING },
            ..Description::EMPTY
        },
        make: |parameters| match &parameters.intervals {
            None | Some(Intervals::Functions) => Made::of_flow(match parameters.selection.view.as_str() {
                INSTRUCTIONS => Executions::untimed(),
                _ => Executions { which: Which::Each },
            }),
            Some(Intervals::Function(function)) => Made::of_flow(Executions { which: Which::One(*function) }),
            Some(Intervals::SystemCalls { name, functions }) => {
                let (name, mut functions) = (name.clone(), functions.clone());
                functions.sort_unstable();
                Made::of_flow(Executions { which: Which::SystemCalls { name, functions } })
            }
            Some(Intervals::Markers { from, to, nesting }) => Made::of_flow(Marked::new(from, to, *nesting)),
            Some(Intervals::Period(period)) => Made::of_events(PeriodLatency { period: period.clone() }),
            Some(Intervals::Syscalls(name)) => Made::of_events(kernel::SyscallLatency { name: name.clone() }),
            Some(Intervals::Interrupts(number)) => {
                Made::of_events(kernel::InterruptLatency { number: *number })
            }
            Some(Intervals::State(state)) => Made::of_events(kernel::StateLatency { state: *state }),
        },
    }
}

/// An analysis of the executions of functions, or of system calls.
#[derive(Clone, Debug)]
pub struct Executions {
    which: Which,
}

impl Executions {
    /// Returns the analysis of all functions without times.
    pub fn untimed() -> Executions {
        Executions { which: Which::EachUntimed }
    }

    /// Returns whether its paths are memoized: it is that of all functions without times.
    pub fn takes_paths(&self) -> bool {
        self.which == Which::EachUntimed
    }
}

impl Analysis for Executions {
    type Partial = executions::ExecutionsPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> Self::Partial {
        executions::ExecutionsPartial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(&self.which, &event);
        }
    }

    fn merge(&self, earlier: Self::Partial, later: Self::Partial, _: &Threads) -> Self::Partial {
        earlier.merge(&self.which, later)
    }

    fn is_sound(&self, partial: &Self::Partial) -> bool {
        partial.is_sound(&self.which)
    }

    fn finish(&self, threads: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table {
        let subject = match &self.which {
            Which::Each | Which::EachUntimed => return functions::table(threads, context),
            Which::One(function) => context.functions().names(*function).0,
            Which::SystemCalls { name, .. } => name.clone(),
        };
        let (mut found, mut names) = (FoundIntervals::default(), FxHashMap::default());
        for (index, thread) in threads.into_iter().enumerate() {
            found.instructions = found.instructions.saturating_add(thread.instructions());
            let done = thread.close(&self.which).done;
            found.add(index, context, done.iter().map(|done| Interval::of(done, &mut names, context)));
        }
        found.subject = subject;
        found.table(context)
    }
}

impl FastFlow for Executions {
    type Memory = executions::ExecutionPaths;

    const TAKES_FUNCTION_RUNS: bool = true;

    fn exchange(&self, partial: &mut Self::Partial, memory: &mut Self::Memory) {
        partial.exchange(memory);
    }

    fn state(&self, partial: &mut Self::Partial) -> Option<u32> {
        if self.takes_paths() { partial.state() } else { None }
    }

    fn learn(
        &self,
        partial: &mut Self::Partial,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        partial.learn(state, runs)
    }

    fn join(&self, partial: &mut Self::Partial, first: u32, second: u32) -> Option<u32> {
        Some(partial.join(first, second))
    }

    #[inline]
    fn fold_path(&self, partial: &mut Self::Partial, path: u32) {
        partial.fold_path(path);
    }

    fn resume(&self, partial: &mut Self::Partial, state: u32) {
        partial.resume(state);
    }

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut Self::Partial,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        partial.fold_function_runs(&self.which, functions, runs, until);
    }
}

/// An analysis of the intervals between markers.
#[derive(Clone, Debug)]
pub struct Marked {
    matcher: MarkerMatcher,
    nesting: Nesting,
}

impl Marked {
    fn new(from: &[Marker], to: &[Marker], nesting: Nesting) -> Marked {
        Marked { matcher: MarkerMatcher::new(from, to), nesting }
    }
}

impl Analysis for Marked {
    type Partial = marks::MarkersPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> Self::Partial {
        marks::MarkersPartial::default()
    }

    #[inline]
    fn fold(&self, partial: &mut Self::Partial, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(&self.matcher, &event);
        }
    }

    fn merge(&self, earlier: Self::Partial, later: Self::Partial, _: &Threads) -> Self::Partial {
        earlier.merge(&self.matcher, later)
    }

    fn is_sound(&self, partial: &Self::Partial) -> bool {
        partial.is_sound()
    }

    fn finish(&self, threads: Vec<Self::Partial>, context: &FinishContext<'_>) -> Table {
        let mut found = FoundIntervals::default();
        let has_interrupts = threads.iter().any(marks::MarkersPartial::has_interrupts);
        found.popf =
            self.matcher.has_popf().then_some(if has_interrupts { "MODE.Exec.IF" } else { "pairing" });
        for (index, thread) in threads.into_iter().enumerate() {
            found.instructions = found.instructions.saturating_add(thread.instructions());
            let MarkedIntervals { intervals, unmatched, passed } = thread.close(self.nesting, has_interrupts);
            found.unmatched += unmatched;
            let all_passed = found.passed.get_or_insert_default();
            all_passed.begins += passed.begins;
            all_passed.ends += passed.ends;
            let interval = |&MarkedInterval { begin, end, ended }: &_| Interval::between(&begin, &end, ended);
            found.add(index, context, intervals.iter().map(interval));
        }
        found.table(context)
    }
}

impl FastFlow for Marked {
    type Memory = MatchCache;

    fn exchange(&self, partial: &mut Self::Partial, memory: &mut MatchCache) {
        std::mem::swap(&mut partial.cache, memory);
    }
}
