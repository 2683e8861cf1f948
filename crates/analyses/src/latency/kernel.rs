//! Intervals of kernel events: system calls, interrupt handlers, and states of threads.

use std::sync::Arc;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, EventAnalysis, FinishContext, Interest, Item, Start, Table, ThreadState,
    kernel::{Kind, Thread, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use super::{Interval, IntervalEnd, tables::FoundIntervals};
use crate::{
    pairs::{Pairs, Unpaired},
    system_calls::{CallsPartial, EndedCall},
    thread_states::{Activity, Observer, ThreadStatesDelta, WaitKind},
};

/// An interval of software events.
fn interval(thread: Arc<str>, (begin, time): (Nanos, u64), cpu: Option<u32>) -> Interval {
    Interval {
        thread,
        number: 0,
        begin: Some(begin.0),
        time: Some(time),
        instructions: None,
        cycles: None,
        first: None,
        caller: Arc::default(),
        cpu: cpu.map(u64::from),
        level: 0,
        ended: IntervalEnd::Returned,
    }
}

/// Makes the table of intervals, in order of begin.
fn table(mut intervals: Vec<Interval>, unmatched: u64, subject: &str, context: &FinishContext<'_>) -> Table {
    intervals.sort_by(|x, y| {
        let key = |interval: &Interval| (interval.begin, interval.cpu, interval.time);
        key(x).cmp(&key(y)).then_with(|| x.thread.cmp(&y.thread))
    });
    intervals.iter_mut().zip(1..).for_each(|(interval, number)| interval.number = number);
    FoundIntervals { intervals, unmatched, subject: subject.to_owned(), ..FoundIntervals::default() }
        .table(context)
}

/// An analysis of the system calls of this name.
#[derive(Clone, Debug)]
pub(super) struct SyscallLatency {
    pub(super) name: String,
}

impl EventAnalysis for SyscallLatency {
    type Partial = CallsPartial<Vec<(u64, EndedCall)>>;

    fn finish(&self, whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        let Unpaired { unmatched, unfinished } = whole.left();
        let calls = whole.complete();
        let own = calls.iter().filter(|(_, call)| context.names.get(call.name as usize) == Some(&self.name));
        let intervals = own.filter_map(|(time, call)| {
            let thread = context.threads.settled(call.thread);
            if !context.threads.wanted(thread, context.selection) {
                return None;
            }
            let name = thread.tid().map_or_else(|| "?".into(), |tid| tid.to_string().into());
            Some(interval(name, (call.begin, *time), Some(call.cpu)))
        });
        table(intervals.collect(), unmatched + unfinished, &self.name, context)
    }
}

/// An analysis of the handler runs of the interrupt with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterruptLatency {
    pub(super) number: u32,
}

/// The state after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct KernelIntervals {
    /// By CPU.
    pairs: Pairs<Nanos, (Nanos, u32)>,
    runs: Vec<HandlerRun>,
}

/// A run of a handler.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct HandlerRun {
    begin: Nanos,
    /// Duration in nanoseconds.
    time: u64,
    cpu: u32,
}

impl HandlerRun {
    fn new(begin: Nanos, (end, cpu): (Nanos, u32)) -> HandlerRun {
        HandlerRun { begin, time: end.0.saturating_sub(begin.0), cpu }
    }
}

impl Analysis for InterruptLatency {
    type Partial = KernelIntervals;

    fn interest(&self) -> Interest<'_> {
        Interest::events(&[(Kind::IrqEntry, &[field::irq::IRQ]), (Kind::IrqExit, &[field::irq::IRQ])])
            .without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> KernelIntervals {
        KernelIntervals::default()
    }

    fn fold(&self, partial: &mut KernelIntervals, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let KernelIntervals { pairs, runs } = partial;
        let is_irq = matches!(event.kind, Kind::IrqEntry | Kind::IrqExit);
        if !is_irq || event.integer(field::irq::IRQ) != Some(self.number.into()) {
            return;
        }
        let (time, cpu) = (event.time, event.cpu);
        match event.kind {
            Kind::IrqEntry => pairs.begin(cpu.into(), time),
            _ => {
                if let Some((begin, end)) = pairs.end(cpu.into(), (time, cpu)) {
                    runs.push(HandlerRun::new(begin, end));
                }
            }
        }
    }

    fn merge(&self, mut earlier: KernelIntervals, later: KernelIntervals, _: &Threads) -> KernelIntervals {
        let KernelIntervals { pairs, runs } = &mut earlier;
        pairs.add(later.pairs, |begin, end| runs.push(HandlerRun::new(begin, end)));
        runs.extend(later.runs);
        earlier
    }

    fn finish(&self, partials: Vec<KernelIntervals>, context: &FinishContext<'_>) -> Table {
        let KernelIntervals { pairs, runs } = only(partials);
        let Unpaired { unmatched, unfinished } = pairs.left();
        let intervals = runs.iter().map(|run| interval(Arc::default(), (run.begin, run.time), Some(run.cpu)));
        table(intervals.collect(), unmatched + unfinished, &format!("interrupt {}", self.number), context)
    }
}

/// An analysis of the times in which threads were in this state.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateLatency {
    pub(super) state: ThreadState,
}

/// All times in states, in order of their ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Spells(Vec<Spell>);

/// A time in a state; it began before the trace if the begin is unknown.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Spell {
    tid: u32,
    state: Activity,
    begin: Option<Nanos>,
    end: Nanos,
}

impl Observer for Spells {
    fn change(&mut self, tid: u32, before: Option<(Nanos, Activity)>, _: Option<Activity>, end: Nanos) {
        if let Some((since, state)) = before {
            self.0.push(Spell { tid, state, begin: Some(since), end });
        }
    }

    fn ran(&mut self, tid: u32, cpu: u32, begin: Option<Nanos>, end: Nanos) {
        self.0.push(Spell { tid, state: Activity::Running(cpu), begin, end });
    }
}

impl StateLatency {
    fn has(self, state: Activity) -> bool {
        let waits = |kind: ThreadState| [ThreadState::Blocked, kind].contains(&self.state);
        match state {
            Activity::Running(_) => self.state == ThreadState::Running,
            Activity::Runnable(_) => self.state == ThreadState::Runnable,
            Activity::Blocked(WaitKind::Interruptible, _) => waits(ThreadState::Interruptible),
            Activity::Blocked(WaitKind::Uninterruptible, _) => waits(ThreadState::Uninterruptible),
            Activity::Blocked(WaitKind::Idle, _) => waits(ThreadState::Idle),
            Activity::Blocked(WaitKind::Stopped, _) => waits(ThreadState::Stopped),
        }
    }
}

impl EventAnalysis for StateLatency {
    type Partial = ThreadStatesDelta<Spells>;

    fn finish(&self, mut whole: Self::Partial, context: &FinishContext<'_>) -> Table {
        // States that have not ended when the trace ends come after these.
        let ended_count = whole.observer().map_or(0, |spells| spells.0.len());
        let (begin, end) = context.span;
        let mut intervals = Vec::new();
        for (index, spell) in whole.finish(end).0.into_iter().enumerate() {
            let thread = Thread::new(spell.tid.into(), 0);
            if !self.has(spell.state) || !context.threads.wanted(thread, context.selection) {
                continue;
            }
            let begin = spell.begin.unwrap_or(begin);
            let time = spell.end.0.saturating_sub(begin.0);
            let ended = match spell.begin {
                None => IntervalEnd::Begun,
                Some(_) if index >= ended_count => IntervalEnd::Cut,
                Some(_) => IntervalEnd::Returned,
            };
            let thread = spell.tid.to_string().into();
            intervals.push(Interval { ended, ..interval(thread, (begin, time), spell.state.cpu()) });
        }
        table(intervals, 0, self.state.name(), context)
    }
}
