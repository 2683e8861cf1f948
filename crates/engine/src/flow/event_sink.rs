//! Converts the decoded flow of a trace stream to events of its threads.

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_code::{FarTransfer, Graph, Labels, Terminator};
use hodo_flow::{ControlFlow, ControlFlowKind, Event, EventData, Executed, Sink, Step};
use hodo_model::{Arrival, FlowEvent, FunctionId, FunctionRun, Place, Run, Transfer, Virtual};

use crate::flow::{
    border::{self, Border},
    early::Early,
    event::{GraphFunctions, arrival, code, run},
    fold::ThreadSink,
    own_share::{OwnShare, Share},
    segments::StreamSink,
    selection_filter::SelectionFilter,
};

/// Converts the flow of a trace stream to events of its threads, as far as they are selected.
pub(crate) struct FlowEventSink<'x, 'f, T> {
    thread_sink: T,
    filter: SelectionFilter<'x, 'f>,
    clock: Option<PerfClock>,
    /// Whether the segment has no timestamp yet.
    fresh: bool,
    /// Whether the time window included the last timestamp. Outside of it, events are not reported.
    open: bool,
    /// Events before the segment's first timestamp, which decides whether they are selected.
    early: Early,
    /// Whether blocks are currently joined to runs.
    joins: bool,
    /// The far transfer at the end of the last executed block, while its target is unknown.
    far: Option<FlowEvent<'static>>,
    /// The pending run; its instruction count is 0 if there is none.
    run: Run,
    /// The border of the address filter; `None` without a filter.
    border: Option<Border>,
    /// Leaves out the recorder's own share, if that is requested.
    own_share: Option<OwnShare<'x, 'f>>,
}

/// Instruction count at which a run is split.
const LONGEST_RUN: u64 = 1 << 30;

/// No pending run.
const NO_RUN: Run = Run {
    at: Arrival { address: 0, function: FunctionId { module: 0, index: 0 }, place: Place::Unknown },
    instructions: 0,
    transfer: Transfer::None,
    end: 0,
};

impl<'x, 'f, T: ThreadSink> FlowEventSink<'x, 'f, T> {
    pub(crate) fn new(thread_sink: T, filter: SelectionFilter<'x, 'f>) -> Self {
        let clock = filter.trace.recording.config.clock;
        let open = filter.open;
        let early = Early::default();
        let border = (!filter.trace.recording.config.filter.is_empty()).then(Border::default);
        let own_share = OwnShare::new(filter.trace);
        FlowEventSink {
            thread_sink,
            filter,
            clock,
            fresh: false,
            open,
            early,
            joins: false,
            far: None,
            run: NO_RUN,
            border,
            own_share,
        }
    }

    #[inline]
    pub(crate) fn thread_sink(&mut self) -> &mut T {
        &mut self.thread_sink
    }

    pub(crate) fn into_inner(self) -> T {
        self.thread_sink
    }

    #[inline]
    fn take(&mut self, event: FlowEvent<'_>) {
        if self.fresh {
            if !self.open {
                self.early.push(event);
                return;
            }
            self.fresh = false;
            self.emit(FlowEvent::Begin(None));
        }
        self.emit(event);
    }

    #[inline]
    fn emit(&mut self, event: FlowEvent<'_>) {
        if self.open && self.filter.wanted {
            self.thread_sink.take(self.filter.context, event);
        }
    }

    /// Appends the executed part of a block to the pending run, which is reported when it ends.
    #[inline]
    fn join(&mut self, executed: &Executed<'_>) {
        let block = executed.block;
        self.note_far(executed);
        if self.run.instructions >= LONGEST_RUN {
            self.report_run();
        }
        self.begin_run(arrival(block.start, block.label));
        self.run.instructions += executed.lengths.len() as u64;
        if executed.is_whole() {
            self.end_run(block.transfer(), || block.end);
        }
        if self.far.is_some() {
            self.report_run();
            self.joins = false;
        }
    }

    /// Notes whether executed code ends in a far transfer: a system call, an interrupt's return.
    #[inline]
    fn note_far(&mut self, executed: &Executed<'_>) {
        let is_far = executed.block.terminator == Terminator::Far && executed.is_whole();
        self.far = if is_far { Some(far_transfer(executed)) } else { None };
    }

    /// Reports the pending far transfer, if any: it stays within the traced code.
    #[cold]
    fn emit_far(&mut self) {
        if let Some(transfer) = self.far.take() {
            self.take(FlowEvent::Leave { next: None });
            self.take(transfer);
        }
    }

    /// Starts a run, unless the block continues the pending one.
    #[inline]
    fn begin_run(&mut self, at: Arrival) {
        if self.run.instructions == 0 || self.run.at.function != at.function {
            self.report_run();
            self.run.at = at;
        }
    }

    /// Ends the run if its last block does. `end` returns the address after a call.
    #[inline]
    fn end_run(&mut self, transfer: Transfer, end: impl FnOnce() -> u64) {
        self.run.transfer = transfer;
        if self.run.transfer == Transfer::Call {
            self.run.end = end();
        }
        if self.run.transfer != Transfer::None {
            self.report_run();
        }
    }

    /// Reports the pending run, if any.
    #[inline]
    fn report_run(&mut self) {
        if self.run.instructions > 0 {
            self.filter.ran(self.run.instructions);
            let Run { at: Arrival { address: start, function, place }, instructions, transfer, end } =
                self.run;
            let (begins, until) = (FunctionRun::begins(0, place), instructions as u32);
            let function_run = FunctionRun { start, begins, until, transfer, end };
            let no_time = None;
            self.thread_sink.take_function_runs(&function, &[function_run], no_time);
            self.run.instructions = 0;
            self.run.transfer = Transfer::None;
        }
    }

    /// Returns whether executed code passes to the sink unfiltered.
    #[inline]
    fn is_direct(&self) -> bool {
        !self.fresh && self.open && self.filter.wanted && !self.filter.numbers_instructions()
    }

    /// Returns whether no block must be compared with the borders of a filter or with the recorder's own functions.
    #[inline]
    fn is_plain(&self) -> bool {
        self.border.is_none() && self.own_share.is_none()
    }

    /// Returns whether executed code is the recorder's own, and left out. The time that it takes is outside of the trace.
    #[cold]
    fn is_own(&mut self, at: &Arrival, transfer: Transfer, end: u64) -> bool {
        let context = self.filter.context;
        let Some(own) = &mut self.own_share else { return false };
        match own.run(context, at, transfer, end) {
            Share::Other => false,
            Share::Begins => {
                self.far = None;
                self.take(FlowEvent::Leave { next: None });
                true
            }
            Share::GoesOn => {
                self.far = None;
                true
            }
            Share::Ended => {
                self.take(FlowEvent::Enter);
                false
            }
        }
    }

    /// Returns whether the next timestamp, if it is in the window, only advances the time: it is not the first one, and the
    /// window is open.
    #[inline]
    fn only_advances(&self) -> bool {
        self.filter.now.is_some() && self.is_direct()
    }

    /// Switches the sink to the filter's current thread.
    fn resume_thread(&mut self) {
        self.thread_sink.switch(self.filter.context, self.filter.now);
        if let Some(number) = self.filter.number() {
            self.emit(FlowEvent::Number(number));
        }
    }

    fn clock(&self) -> Option<Nanos> {
        Some(self.clock?.nanos(self.filter.now?))
    }

    #[inline]
    fn time(&mut self, now: Tsc) {
        let only_advances = self.only_advances();
        self.filter.time(now);
        if !(only_advances && self.filter.open) {
            return self.update_window();
        }
        if let Some(clock) = self.clock() {
            self.thread_sink.take(self.filter.context, FlowEvent::Time(clock));
        }
    }

    /// Handles a timestamp that may open or close the window.
    fn update_window(&mut self) {
        let was_open = std::mem::replace(&mut self.open, self.filter.open);
        let is_open = self.open;
        if was_open && !is_open {
            // Nothing is emitted while the window is closed.
            self.open = true;
            self.emit(FlowEvent::End);
            self.open = false;
        }
        self.resume_thread();
        if self.fresh || (is_open && !was_open) {
            self.fresh = false;
            self.begin();
        } else if let Some(clock) = self.clock() {
            self.emit(FlowEvent::Time(clock));
        }
    }

    /// Begins a segment or the window, at a known time.
    fn begin(&mut self) {
        if !self.open {
            self.early.clear();
        }
        if self.early.is_empty() {
            return self.emit(FlowEvent::Begin(self.clock()));
        }
        self.emit(FlowEvent::Begin(None));
        if let Some(number) = self.filter.number() {
            self.emit(FlowEvent::Number(number - self.early.ran()));
        }
        let mut early = std::mem::take(&mut self.early);
        early.emit(|event| self.emit(event));
        self.early = early;
        if let Some(clock) = self.clock() {
            self.emit(FlowEvent::Time(clock));
        }
    }

    fn other_event(&mut self, event: &Event) {
        match event {
            // The kernel returned to code that is not traced.
            Event::Disabled { .. } if matches!(self.far, Some(FlowEvent::InterruptReturn)) => self.emit_far(),
            // The far transfer left the traced code; or its target caused a VM exit, which goes back to the function
            // that entered the guest.
            Event::Disabled { .. } | Event::Gap(_) => self.far = None,
            Event::Asynchronous { cause, .. } if cause.is_some_and(|cause| is_exit(cause.kind)) => {
                self.far = None;
            }
            // The target of the far transfer was interrupted at once, as by a page fault.
            Event::Asynchronous { .. } => self.emit_far(),
            _ => {}
        }
        if let Event::ControlFlow(event) = event {
            if let Some(reason) = exit_reason(event) {
                self.take(FlowEvent::Virtual(Virtual::Exit { reason }));
            }
            return;
        }
        match *event {
            Event::Paging { non_root: true, .. } => self.take(FlowEvent::Virtual(Virtual::Guest)),
            Event::Paging { non_root: false, .. } => self.take(FlowEvent::Virtual(Virtual::Host)),
            Event::Vmcs(address) => self.take(FlowEvent::Virtual(Virtual::Vmcs(address))),
            Event::Switch(context) => self.switch(context),
            Event::Enabled(address) => {
                self.take(FlowEvent::Enter);
                if let Some(border) = &mut self.border {
                    border.enter(address);
                }
            }
            Event::Asynchronous { from, cause, .. } => {
                self.take(FlowEvent::Leave { next: Some(from) });
                // A VM exit goes back to the function that entered the guest.
                let is_vm_exit = cause.is_some_and(|cause| is_exit(cause.kind));
                self.take(if is_vm_exit { FlowEvent::Enter } else { FlowEvent::Interrupt { from } });
            }
            Event::Disabled { from, to, .. } => {
                if self.border.as_mut().is_some_and(|border| border.leave(from)) {
                    self.take(border::RUNS);
                }
                self.take(FlowEvent::Leave { next: from.or(to) });
            }
            Event::Gap(_) => self.take(FlowEvent::Gap),
            Event::InterruptFlag(on) => self.take(FlowEvent::Interrupts(on)),
            _ => {}
        }
    }

    /// Reports that code beyond the filter's range called this code, if it did.
    #[cold]
    fn cross_border(&mut self, executed: &Executed<'_>) {
        let block = executed.block;
        let ended = executed.is_whole().then(|| block.transfer());
        let at = arrival(block.start, block.label);
        if self.border.as_mut().is_some_and(|border| border.run(&at, ended)) {
            self.take(border::RUNS);
            self.take(border::CALLS);
        }
    }

    /// Switches threads: the previous thread ran until the current time. Switches happen by time, so nothing is
    /// buffered before the first timestamp then.
    fn switch(&mut self, context: u32) {
        self.emit_far();
        let has_begun = !self.fresh;
        if has_begun {
            self.emit(FlowEvent::End);
        }
        self.filter.switch(context);
        self.resume_thread();
        if has_begun {
            self.emit(FlowEvent::Begin(self.clock()));
        }
    }
}

/// Returns the reason of a VM exit, if the trace gives it.
#[cold]
fn exit_reason(event: &ControlFlow) -> Option<u64> {
    let reason = event.data.iter().find_map(|data| match *data {
        EventData::ExitReason(reason) => Some(reason),
        _ => None,
    });
    reason.filter(|_| is_exit(event.cause.kind))
}

fn is_exit(kind: ControlFlowKind) -> bool {
    matches!(kind, ControlFlowKind::VmExit | ControlFlowKind::VmExitInterrupt)
}

/// Converts the far transfer at the end of an executed block.
#[cold]
fn far_transfer(executed: &Executed<'_>) -> FlowEvent<'static> {
    let last = executed.lengths.last().map_or(0, |&length| usize::from(length));
    let bytes = executed.bytes();
    match executed.code.isa.far_transfer(&bytes[bytes.len() - last..]) {
        FarTransfer::Call => FlowEvent::Interrupt { from: executed.block.end },
        FarTransfer::Return => FlowEvent::InterruptReturn,
        FarTransfer::Other => FlowEvent::Enter,
    }
}

impl<T: ThreadSink> StreamSink for FlowEventSink<'_, '_, T> {
    fn begin_segment(&mut self) {
        self.filter.begin_segment();
        self.open = self.filter.open;
        self.fresh = true;
        self.early.clear();
        self.joins = false;
        self.far = None;
        self.border = self.border.map(|_| Border::default());
        if let Some(own) = &mut self.own_share {
            own.begin_segment();
        }
        self.resume_thread();
    }

    fn skip(&mut self, instructions: u64) {
        self.filter.ran(instructions);
        self.take(FlowEvent::Skip { instructions });
    }

    fn end_segment(&mut self) {
        self.report_run();
        self.joins = false;
        if self.fresh && !self.open {
            return self.early.clear();
        }
        // A PSB may follow before the next instruction.
        self.emit_far();
        self.take(FlowEvent::End);
    }

    fn untimed(&self) -> u64 {
        if !self.filter.wanted {
            0
        } else if self.fresh {
            self.early.instructions()
        } else {
            self.early.left_out()
        }
    }
}

impl<T: ThreadSink> Sink for FlowEventSink<'_, '_, T> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        if self.joins {
            return self.join(&executed);
        }
        if self.border.is_some() {
            self.cross_border(&executed);
        }
        if self.far.is_some() {
            self.emit_far();
        }
        self.note_far(&executed);
        let block = executed.block;
        let (at, instructions) = (arrival(block.start, block.label), executed.lengths.len() as u64);
        if self.own_share.is_some() && self.is_own(&at, block.transfer(), block.end) {
            self.filter.ran(instructions);
            return;
        }
        if !self.filter.ran(instructions) {
            return self.take(FlowEvent::Skip { instructions });
        }
        self.take(FlowEvent::Run { at, instructions, code: code(&executed) });
        if executed.is_whole() {
            match block.transfer() {
                Transfer::Call => self.take(FlowEvent::Call { return_address: block.end }),
                Transfer::Return => self.take(FlowEvent::Return),
                Transfer::IndirectJump => self.take(FlowEvent::IndirectJump),
                Transfer::None | Transfer::PushOnly => {}
            }
        }
        self.joins = T::TAKES_FUNCTION_RUNS && self.is_direct() && self.far.is_none() && self.is_plain();
    }

    #[inline]
    fn takes_function_runs(&self) -> bool {
        self.joins
    }

    #[inline]
    fn function_runs<L: Labels>(
        &mut self,
        function_runs: &[FunctionRun],
        graph: &Graph<'_, L>,
        until: Option<Tsc>,
    ) {
        self.report_run();
        // The timestamp may also be outside of the window.
        let only_advances = until.filter(|&until| self.only_advances() && self.filter.wants(until));
        let time = self.clock.zip(only_advances).map(|(clock, until)| clock.nanos(until));
        self.thread_sink.take_function_runs(&GraphFunctions(graph), function_runs, time);
        self.filter.ran(FunctionRun::instructions(function_runs));
        match until {
            Some(until) if time.is_some() => self.filter.time(until),
            Some(until) => self.event(Event::Time(until)),
            None => {}
        }
    }

    #[inline]
    fn takes_paths(&self) -> bool {
        self.is_direct() && self.far.is_none() && self.is_plain() && self.thread_sink.takes_paths()
    }

    fn state(&mut self) -> Option<u32> {
        self.report_run();
        if self.takes_paths() { self.thread_sink.state() } else { None }
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], _: &Graph<'_, L>) -> Option<(u32, u32)> {
        self.thread_sink.learn(state, steps.iter().map(run))
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        self.thread_sink.join(first, second)
    }

    #[inline]
    fn path(&mut self, path: u32) {
        self.thread_sink.take_path(self.filter.context, path);
    }

    fn resume(&mut self, state: u32) {
        self.thread_sink.resume(state);
    }

    fn forget(&mut self) {
        self.report_run();
        self.thread_sink.forget();
    }

    #[inline(always)]
    fn event(&mut self, event: Event) {
        self.report_run();
        match event {
            // The most frequent event.
            Event::Time(now) => self.time(now),
            // A segment starts for analyses at its first timestamp.
            Event::Cycles(count) if !self.fresh || !self.early.is_empty() => {
                self.take(FlowEvent::Cycles(count))
            }
            _ => self.other_event(&event),
        }
        self.joins = T::TAKES_FUNCTION_RUNS && self.is_direct() && self.far.is_none() && self.is_plain();
    }
}
