//! The costs of functions in one chunk of a thread.

mod timed;

use std::mem;

use hodo_clock::Nanos;
use hodo_model::{Arrival, FlowEvent, FunctionRun, Numbering, Run, Transfer};
use serde::{Deserialize, Serialize};

use self::timed::stays;
use super::{
    costs::{CostAmount, CostSlot, FunctionAccount, FunctionCosts, Holder, LogEntry},
    paths::FunctionPaths,
};
use crate::{
    clock::{Even, SegmentClock, Time, TimeShare},
    memoized_paths::PathCosts,
    profile::cost::ThreadTotals,
    stack::{
        self, ArrivedAt, Below, FlowEdge, FrameEntry, KnownFrames, ReturnAddress, StackFrame, Watch, arrive,
        cut,
    },
};

/// Number of entries at which the log is settled if there is no clock, because no timestamp will come.
const SETTLED_ENTRIES: usize = 1 << 10;

/// The costs of functions in some chunks of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionsPartial {
    costs: FunctionCosts,
    /// The known frames at the end; stale while paths run. The oldest one is the frame that execution reached last.
    stack: KnownFrames<(), CostSlot>,
    /// The edge after the last run.
    edge: FlowEdge,
    #[serde(skip)]
    clock: SegmentClock<()>,
    /// The log since the last timestamp; empty between segments, so it is not serialised.
    #[serde(skip)]
    log: UntimedCosts,
    /// Waiting time of the frame that was active at the start, before its first instruction.
    before: WaitedTime,
    /// Time outside traced code.
    outside: Time,
    sums: ThreadTotals,
    /// The last executed path, while paths run.
    #[serde(skip)]
    path: Option<u32>,
    /// The memoized paths.
    #[serde(skip)]
    paths: FunctionPaths,
}

/// Time in which no known instruction was executed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct WaitedTime {
    /// Time while the thread was traced, but no instruction was known yet.
    inside: Time,
    /// Time while it was outside traced code.
    outside: Time,
}

/// Operations since the last timestamp.
#[derive(Clone, Debug, Default)]
struct UntimedCosts {
    entries: Vec<LogEntry>,
    /// Further operations.
    events: Vec<LoggedEvent>,
    /// Executed paths.
    paths: Vec<u32>,
    /// How many of the paths are covered by events.
    reported: usize,
    arrivals: Vec<LoggedArrival>,
    instructions: u64,
    /// The instructions since the last operation are not selected.
    unseen: bool,
}

#[derive(Clone, Copy, Debug)]
struct LoggedArrival {
    edge: FlowEdge,
    arrival: Arrival,
    slot: CostSlot,
}

#[derive(Clone, Copy, Debug)]
struct LoggedEvent {
    /// Number of instructions before it.
    instructions: u64,
    /// Number of entries before it.
    entries: usize,
    event: LogEvent,
}

#[derive(Clone, Copy, Debug)]
enum LogEvent {
    /// Execution of this many of the following paths.
    Paths(u32),
    /// The next arrival at an unknown frame.
    Arrive,
    /// The selection ends here; this function executed the instructions before.
    Unseen(Option<CostSlot>),
}

impl UntimedCosts {
    #[inline]
    fn push(&mut self, event: LogEvent) {
        let (instructions, entries) = (self.instructions, self.entries.len());
        self.events.push(LoggedEvent { instructions, entries, event });
    }

    /// Adds an entry into a frame of a function from another one.
    #[inline]
    fn enter(&mut self, ran: CostSlot, slot: CostSlot) {
        self.entries.push(LogEntry::enter(self.instructions, ran, slot));
    }

    /// Adds an entry into a frame of a function by a call.
    #[inline]
    fn call(&mut self, ran: CostSlot, slot: CostSlot) {
        self.entries.push(LogEntry::call(self.instructions, ran, slot));
    }

    /// The newest frame is left.
    #[inline]
    fn leave(&mut self, slot: CostSlot) {
        self.entries.push(LogEntry::leave(self.instructions, slot));
    }

    /// Adds an event for the paths that no event covers yet.
    fn push_paths(&mut self, memoized_paths: &PathCosts) {
        let instructions: u64 =
            self.paths[self.reported..].iter().map(|&path| memoized_paths.instructions(path)).sum();
        if instructions > 0 {
            self.push(LogEvent::Paths((self.paths.len() - self.reported) as u32));
            self.instructions += instructions;
            self.reported = self.paths.len();
        }
    }

    fn is_long(&self) -> bool {
        self.entries.len() + self.paths.len() >= SETTLED_ENTRIES
    }
}

/// Logs changes of the stack.
struct LogWriter<'p> {
    costs: &'p mut FunctionCosts,
    log: &'p mut UntimedCosts,
}

impl Watch<(), CostSlot> for LogWriter<'_> {
    #[inline(always)]
    fn enter(&mut self, from: &StackFrame<(), CostSlot>, to: CostSlot, entry: FrameEntry, _: ReturnAddress) {
        match entry {
            FrameEntry::Call => self.log.call(from.function, to),
            _ => {
                self.costs.entered(to, entry, 1);
                self.log.enter(from.function, to);
            }
        }
    }

    #[inline(always)]
    fn leave(&mut self, frame: &StackFrame<(), CostSlot>) {
        self.log.leave(frame.function);
    }
}

impl FunctionsPartial {
    pub(super) fn unknown() -> FunctionsPartial {
        FunctionsPartial {
            costs: FunctionCosts::default(),
            stack: KnownFrames::default(),
            edge: FlowEdge::Unknown,
            clock: SegmentClock::default(),
            log: UntimedCosts::default(),
            before: WaitedTime::default(),
            outside: Time::default(),
            sums: ThreadTotals::default(),
            path: None,
            paths: FunctionPaths::default(),
        }
    }

    #[inline(always)]
    pub(super) fn fold(&mut self, event: FlowEvent<'_>) {
        match event {
            FlowEvent::Run { at, instructions, .. } => {
                if !self.clock.runs() && self.log.is_long() {
                    self.settle(Even::default());
                }
                let edge = mem::replace(&mut self.edge, FlowEdge::Flow);
                let slot = self.costs.slot(at.function);
                self.arrive(edge, &at, slot);
                self.log.instructions += instructions;
            }
            FlowEvent::Begin(clock) => self.clock.begin(clock.map(|clock| clock.0)),
            FlowEvent::Time(clock) => {
                self.log.push_paths(&self.paths.memoized_paths);
                if self.clock.read(clock.0) || self.log.instructions > 0 {
                    self.share();
                }
            }
            FlowEvent::End => {
                self.settle(Even::default());
                self.share();
                self.clock.end();
            }
            FlowEvent::Gap => {
                self.clock.gap();
                self.sums.gaps += 1;
                self.edge = FlowEdge::Gap;
            }
            FlowEvent::Number(_) | FlowEvent::Cycles(_) | FlowEvent::Interrupts(_) => {}
            FlowEvent::Skip { instructions } => {
                let ran = self.stack.last().map(|frame| frame.function);
                self.log.push(LogEvent::Unseen(ran));
                self.log.instructions += instructions;
                self.edge = FlowEdge::Gap;
            }
            event => {
                self.clock.left = matches!(event, FlowEvent::Leave { .. });
                self.sums.calls += u64::from(matches!(event, FlowEvent::Call { .. }));
                self.edge = self.edge.then(FlowEdge::of(&event));
            }
        }
    }

    /// Folds function runs, each followed by its transfer, and then a timestamp, if there is one.
    #[inline]
    pub(super) fn fold_function_runs(
        &mut self,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        self.costs.use_numbers_of(functions.id());
        if functions.id() != 0 && FunctionRun::instructions(runs) > 0 {
            let is_timeless = !self.clock.runs();
            if is_timeless {
                self.settle(Even::default());
            }
            match until {
                Some(until) if self.is_settled() => return self.fold_timed(functions, runs, until),
                None if is_timeless && self.is_settled() => {
                    return self.fold_evenly(functions, runs, Even::default());
                }
                _ => {}
            }
        }
        if !self.clock.runs() && self.log.is_long() {
            self.settle(Even::default());
        }
        let mut before = 0;
        for function_run in runs {
            // Runs without a source must not replace the numbers of another source.
            let slot = match functions.id() {
                0 => self.costs.slot(functions.function(function_run.function())),
                _ => self
                    .costs
                    .slot_of(function_run.function(), || functions.function(function_run.function())),
            };
            self.arrive(self.edge, &function_run.arrival(functions), slot);
            self.log.instructions += u64::from(function_run.until - before);
            before = function_run.until;
            self.end(function_run);
        }
        self.clock.left = self.clock.left && stays(runs);
        until.into_iter().for_each(|until| self.fold(FlowEvent::Time(until)));
    }

    /// A function run ended.
    #[inline(always)]
    fn end(&mut self, function_run: &FunctionRun) {
        self.edge = FlowEdge::after_function_run(function_run);
        self.sums.calls += u64::from(function_run.transfer == Transfer::Call);
    }

    /// Returns whether the accounts are settled up to the last instruction, and the running function is known.
    fn is_settled(&self) -> bool {
        let FunctionsPartial { log, path, stack, .. } = self;
        let UntimedCosts { entries, events, paths, instructions, unseen, .. } = log;
        let waits =
            *instructions > 0 || *unseen || !(entries.is_empty() && events.is_empty() && paths.is_empty());
        !(waits || stack.is_empty() || path.is_some())
    }

    #[inline(always)]
    fn arrive(&mut self, edge: FlowEdge, at: &Arrival, slot: CostSlot) {
        let FunctionsPartial { stack, costs, log, .. } = self;
        let &Arrival { address, place, .. } = at;
        let arrived = if stack.is_empty() {
            Err(edge)
        } else {
            let at = ArrivedAt { address, function: slot, place };
            arrive(stack, &mut LogWriter { costs, log }, Below::Unknown, edge, &at)
        };
        if let Err(edge) = arrived {
            log.arrivals.push(LoggedArrival { edge, arrival: *at, slot });
            log.push(LogEvent::Arrive);
            stack.push(StackFrame::root(slot, ()));
        }
    }

    /// Shares the time since the last sharing among the instructions executed in it.
    fn share(&mut self) {
        if self.log.instructions == 0 {
            // The function that waited meanwhile must be known.
            self.settle(Even::default());
        }
        let FunctionsPartial { clock, costs, sums, stack, edge, before, outside, path, paths, log, .. } =
            self;
        let even = clock.share(log.instructions, |share| match share {
            TimeShare::Ran { .. } => {}
            TimeShare::Lost(time) => sums.add_lost_time(time.length()),
            TimeShare::Waited(time) | TimeShare::Outside(time) if edge.is_gap() => {
                sums.add_lost_time(time.length())
            }
            TimeShare::Waited(time) => {
                let time = Time::of(time.length());
                let amount = CostAmount { instructions: 0, time };
                match path {
                    Some(path) => {
                        paths.took(*path, time);
                        costs.add_to_total(amount);
                    }
                    None => match stack.last() {
                        Some(top) => costs.ran(top.function, amount),
                        None => before.inside = before.inside.saturating_add(time),
                    },
                }
            }
            TimeShare::Outside(time) => {
                let time = Time::of(time.length());
                match path {
                    Some(path) => paths.took_outside(*path, time),
                    None if stack.is_empty() => {
                        before.outside = before.outside.saturating_add(time);
                        return;
                    }
                    None => {}
                }
                *outside = outside.saturating_add(time);
                costs.add_to_total(CostAmount { instructions: 0, time });
            }
        });
        self.settle(even);
    }

    /// Settles the log: adds its entries, each instruction with its share of the time.
    fn settle(&mut self, even: Even) {
        let FunctionsPartial { costs, log, paths, sums, path, stack, .. } = self;
        log.push_paths(&paths.memoized_paths);
        let UntimedCosts { entries, events, paths: ran, arrivals, instructions, unseen, .. } = log;
        let amount = |instructions| CostAmount { instructions, time: even.each.times(instructions) };
        let (mut arrivals, mut ran) = (arrivals.drain(..), ran.drain(..));
        // The numbers of instructions and entries that are settled.
        let (mut settled, mut done) = (0, 0);
        for LoggedEvent { instructions: until, entries: before, event } in events.drain(..) {
            follow(costs, &entries[done..before], &mut settled, unseen, even.each);
            done = before;
            if mem::take(unseen) {
                settled = until;
            }
            match event {
                LogEvent::Paths(count) => {
                    let count = ran.by_ref().take(count as usize);
                    let instructions: u64 =
                        count.map(|path| paths.memoized_paths.count(path, even.each)).sum();
                    costs.add_to_total(amount(instructions));
                    settled += instructions;
                }
                LogEvent::Arrive => {
                    sums.calls += paths.expand(costs);
                    if let Some(LoggedArrival { edge, arrival, slot }) = arrivals.next() {
                        costs.begin_piece(edge, arrival, slot);
                    }
                }
                LogEvent::Unseen(top) => {
                    let selected = amount(until - settled);
                    top.into_iter().for_each(|top| costs.credit(top, selected));
                    costs.add_to_total(selected);
                    (settled, *unseen) = (until, true);
                }
            }
        }
        follow(costs, &entries[done..], &mut settled, unseen, even.each);
        if !*unseen {
            let mut last = amount(*instructions - settled);
            last.time = { last.time }.saturating_add(even.rest);
            match (path, stack.last()) {
                (Some(path), _) => paths.took(*path, even.rest),
                (None, Some(top)) => costs.credit(top.function, last),
                (None, None) => {}
            }
            costs.add_to_total(last);
        }
        entries.clear();
        log.instructions = 0;
        log.reported = 0;
    }

    /// Returns the state from which paths continue; `None` if the next runs may reach below the known frames.
    pub(super) fn state(&mut self) -> Option<u32> {
        if self.stack.is_empty() || self.clock.left || self.edge.is_gap() {
            return None;
        }
        let FunctionsPartial { stack, costs, paths, edge, .. } = self;
        paths.enter(stack.iter().map(|frame| costs.named(frame)), *edge)
    }

    pub(super) fn learn(&mut self, state: u32, runs: impl Iterator<Item = Run>) -> Option<(u32, u32)> {
        self.paths.learn(state, runs)
    }

    pub(super) fn join(&mut self, first: u32, second: u32) -> u32 {
        self.paths.join(first, second)
    }

    /// Folds a path.
    #[inline]
    pub(super) fn fold_path(&mut self, path: u32) {
        if self.path.is_none() {
            let FunctionsPartial { stack, costs, log, .. } = self;
            // Costs on paths are kept with their contexts until paths end.
            cut(stack, &mut LogWriter { costs, log }, 0);
        }
        self.path = Some(path);
        self.log.paths.push(path);
        if !self.clock.runs() && self.log.paths.len() >= SETTLED_ENTRIES {
            self.settle(Even::default());
        }
    }

    /// Restores the stack from the state after the last path.
    pub(super) fn resume(&mut self, state: u32) {
        if self.path.take().is_none() {
            return;
        }
        let FunctionsPartial { stack, edge, costs, log, paths, .. } = self;
        log.push_paths(&paths.memoized_paths);
        let (frames, after) = paths.memoized_paths.states.stack(state);
        for frame in frames.iter().copied() {
            let function = costs.slot(frame.function);
            let StackFrame { entry, return_address, .. } = frame;
            log.enter(function, function);
            stack.push(StackFrame { function, entry, return_address, note: () });
        }
        *edge = after;
        if !self.clock.runs() {
            // If the selected times end among paths, no later event settles the log.
            self.settle(Even::default());
        }
    }

    /// Exchanges the memoized paths.
    pub(super) fn exchange(&mut self, paths: &mut FunctionPaths) {
        self.spell_out();
        self.sums.calls += self.paths.expand(&mut self.costs);
        mem::swap(&mut self.paths, paths);
    }

    /// Replaces the paths in the log by their entries, for the replay.
    fn spell_out(&mut self) {
        let FunctionsPartial { log, paths, costs, sums, .. } = self;
        log.push_paths(&paths.memoized_paths);
        log.reported = 0;
        let (entries, events) = (mem::take(&mut log.entries), mem::take(&mut log.events));
        let (states, mut ran, mut done) =
            (&paths.memoized_paths.states, mem::take(&mut log.paths).into_iter(), 0);
        for LoggedEvent { instructions, entries: before, event } in events {
            log.entries.extend(&entries[done..before]);
            done = before;
            let LogEvent::Paths(count) = event else {
                log.events.push(LoggedEvent { instructions, entries: log.entries.len(), event });
                continue;
            };
            let mut begin = instructions;
            for path in ran.by_ref().take(count as usize) {
                sums.calls += u64::from(paths.memoized_paths.calls(path));
                for cost in paths.memoized_paths.costs(path) {
                    let frame = states.frame(cost.context);
                    let slot = costs.slot(frame.function);
                    costs.entered(slot, frame.entry, u64::from(cost.entries));
                    // The newest one first.
                    let open: Vec<CostSlot> =
                        states.frames(cost.context).map(|frame| costs.slot(frame.function)).collect();
                    log.entries.extend(open.iter().rev().map(|&slot| LogEntry::enter(begin, slot, slot)));
                    begin += u64::from(cost.instructions);
                    log.entries.extend(open.iter().map(|&slot| LogEntry::leave(begin, slot)));
                }
            }
        }
        log.entries.extend(&entries[done..]);
    }

    /// Joins two neighbouring partials.
    pub(super) fn merge(mut self, later: FunctionsPartial) -> FunctionsPartial {
        self.append(&later, Below::Unknown);
        self
    }

    /// See [`hodo_model::Analysis::is_sound`].
    pub(super) fn is_sound(&self) -> bool {
        stack::is_sound(&self.stack) && self.costs.are_sound(self.stack.iter().map(|frame| frame.function))
    }

    /// Returns the costs of a whole thread, which begins with this partial.
    pub(super) fn close(self) -> WholeThread {
        let mut whole = FunctionsPartial::unknown();
        whole.append(&self, Below::Nothing);
        cut(&mut whole.stack, &mut whole.costs, 0);
        WholeThread { costs: whole.costs, outside: whole.outside, sums: whole.sums }
    }

    fn append(&mut self, later: &FunctionsPartial, below: Below) {
        let WaitedTime { inside, outside } = later.before;
        if self.edge.is_gap() {
            self.sums.add_lost_time(inside.saturating_add(outside).nanoseconds());
        } else if let Some(top) = self.stack.last() {
            self.costs.credit(top.function, CostAmount { instructions: 0, time: inside });
            self.costs.add_to_total(CostAmount { instructions: 0, time: inside.saturating_add(outside) });
            self.outside = self.outside.saturating_add(outside);
        } else {
            self.before.inside = self.before.inside.saturating_add(inside);
            self.before.outside = self.before.outside.saturating_add(outside);
        }
        let slots = self.costs.add_accounts(&later.costs);
        let open: Vec<CostSlot> = later.stack.iter().skip(1).map(|frame| frame.function).collect();
        for (index, (edge, arrival)) in later.costs.arrivals().enumerate() {
            let edge = mem::replace(&mut self.edge, FlowEdge::Flow).then(edge);
            let &Arrival { address, function, place } = arrival;
            let function = self.costs.slot(function);
            let arrived = if self.stack.is_empty() {
                Err(edge)
            } else {
                let at = ArrivedAt { address, function, place };
                arrive(&mut self.stack, &mut self.costs, below, edge, &at)
            };
            if let Err(edge) = arrived {
                self.costs.begin_piece(edge, *arrival, function);
                self.stack.push(StackFrame::root(function, ()));
            }
            self.costs.add_piece(&later.costs, index, &slots, &open);
        }
        for frame in later.stack.iter().skip(1) {
            self.stack.push(StackFrame { function: slots[frame.function as usize], ..*frame });
        }
        self.edge = self.edge.then(later.edge);
        self.outside = self.outside.saturating_add(later.outside);
        self.sums.add(&later.sums);
    }
}

/// Replays log entries from instruction `settled`; the first one may end a range that is not selected.
fn follow(costs: &mut FunctionCosts, entries: &[LogEntry], settled: &mut u64, unseen: &mut bool, each: Time) {
    let Some(first) = entries.first() else { return };
    if mem::take(unseen) {
        *settled = first.until;
    }
    *settled = costs.follow(entries, *settled, each);
}

/// The costs of the functions of a whole thread.
pub(super) struct WholeThread {
    costs: FunctionCosts,
    pub(super) outside: Time,
    pub(super) sums: ThreadTotals,
}

impl WholeThread {
    /// Returns the accounts of functions, whose sums are their inclusive costs.
    pub(super) fn by_function(&self) -> impl Iterator<Item = (&Holder, FunctionAccount)> {
        self.costs.by_function()
    }
}
