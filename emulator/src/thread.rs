//! A thread of the emulated program: each block that it enters shows how the one before ended.
//!
//! ```text
//! previous block ──where the next begins──► taken? target? returned? ──► Encoder ──► window of the file
//! ```

use std::{
    ptr,
    sync::atomic::{Ordering, compiler_fence},
};

use crate::{
    block::{ALONE, Block, HANDLER, Kind, OUTSIDE, REPLACED},
    signal::{self, Registers},
    spool::{Checkpoint, GIVEN_UP, SEALED, Thread},
    threads, window,
};

/// How much of a block ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// Its first instructions, this many; no branch is among them.
    Part(u64),
    /// All of it, and control continued at this address.
    Whole(u64),
    /// All of it, and its last instruction is a branch into the kernel.
    Trap,
    /// Unknown: no rule explains the next block.
    Unknown,
}

/// How a block ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) ran: Ran,
    /// A signal then interrupted the thread, and its handler will return here.
    pub(crate) interrupted: Option<u64>,
}

/// How a block ended without a signal, if control continues at `pc`; `alone` if QEMU may have left the block to run the
/// instruction at `pc` separately.
fn ended(block: &Block, pc: u64, alone: bool) -> Ran {
    match (block.kind, block.index_of(pc)) {
        (Kind::Outside, _) => Ran::Part(0),
        (_, Some(index)) if alone && (index + 1 < block.count || !block.may_continue_at(pc)) => {
            Ran::Part(index)
        }
        // Another iteration: the instruction has not ended.
        (Kind::Repeat, _) if pc == block.taken => Ran::Part(block.count - 1),
        _ if block.may_continue_at(pc) => Ran::Whole(pc),
        (_, Some(index)) => Ran::Part(index),
        (_, None) => Ran::Unknown,
    }
}

/// How a block ended that a signal interrupted, or that had ended when the signal came.
fn interrupted(block: &Block, signal: &signal::Signal) -> End {
    let ip = signal.interrupted;
    let ran = match block.index_of(ip) {
        _ if block.kind == Kind::Outside => return End { ran: Ran::Part(0), interrupted: None },
        Some(index) if signal.fault || !block.may_continue_at(ip) => Ran::Part(index),
        // INT3 and the like are branches, not interrupts.
        None if block.kind == Kind::Far => return End { ran: Ran::Trap, interrupted: None },
        _ => {
            let alone = false;
            ended(block, ip, alone)
        }
    };
    End { ran, interrupted: Some(ip) }
}

impl Thread {
    /// The thread is about to run `block`. `registers` are those of the emulated processor.
    #[inline(always)]
    pub(crate) fn enter(&mut self, block: &'static Block, registers: &Registers) {
        self.begin_change();
        // SAFETY: `previous` is set to blocks only, and blocks are never freed.
        let previous: &'static Block = unsafe { &*self.previous };
        let flags = block.flags.load(Ordering::Relaxed);
        let careful = self.read_careful();
        let plain = u64::from(flags) | careful == 0 && self.follow(previous, block.pc);
        if !plain && !self.step_carefully(previous, block, (flags, careful), registers) {
            return self.end_change();
        }
        self.previous = block;
        self.pc = block.pc;
        if self.window.cursor >= self.window.limit {
            self.make_room();
        }
        self.end_change();
    }

    /// Fast path: the previous block ran whole, and control continues at `pc`. Does nothing and returns `false` if it
    /// can't end that way.
    #[inline(always)]
    fn follow(&mut self, previous: &'static Block, pc: u64) -> bool {
        let taken = pc == previous.taken;
        let possible = match previous.kind {
            Kind::Direct | Kind::Call | Kind::CallNext => taken,
            Kind::Conditional => taken || pc == previous.fall,
            Kind::Return | Kind::Jump | Kind::CallIndirect | Kind::Far => true,
            Kind::Repeat | Kind::Outside => false,
        };
        if possible {
            self.retire(previous.count);
            self.branch(previous, pc);
        }
        possible
    }

    /// The last instruction of a block branches to `pc`.
    #[inline(always)]
    pub(crate) fn branch(&mut self, block: &'static Block, pc: u64) {
        let now = self.counts.now;
        let (encoder, window) = (&mut self.encoder, &mut self.window);
        match block.kind {
            Kind::Conditional => encoder.branch(pc == block.taken, now, window),
            Kind::Call => {
                self.counts.calls += 1;
                encoder.call(block.fall);
            }
            Kind::Return => encoder.ret(pc, now, window),
            Kind::Jump | Kind::Far => encoder.indirect(pc, now, window),
            Kind::CallIndirect => {
                self.counts.calls += 1;
                // Return compression ignores a call to the next instruction.
                if pc != block.fall {
                    encoder.call(block.fall);
                }
                encoder.indirect(pc, now, window);
            }
            Kind::CallNext => self.counts.calls += 1,
            Kind::Direct | Kind::Repeat | Kind::Outside => {}
        }
    }

    /// `count` more instructions ran: advances the clock, and emits the timing packets that are due.
    #[inline(always)]
    pub(crate) fn retire(&mut self, count: u64) {
        self.counts.now += count;
        if self.counts.now >= self.encoder.next_mtc() {
            self.encoder.tick(self.counts.now, &mut self.window);
        }
    }

    /// Slow path: signals, repeated instructions, blocks left in their middle, returns from system calls, filters. Does
    /// nothing and returns `false` if the recording has ended.
    #[cold]
    #[inline(never)]
    fn step_carefully(
        &mut self,
        previous: &'static Block,
        block: &'static Block,
        (flags, careful): (u8, u64),
        registers: &Registers,
    ) -> bool {
        if self.is_over(careful) {
            return false;
        }
        let pc = block.pc;
        let signal =
            if flags & HANDLER != 0 { signal::delivered(self, previous, pc, registers) } else { None };
        let end = match &signal {
            Some(signal) => interrupted(previous, signal),
            None => End { ran: ended(previous, pc, flags & ALONE != 0), interrupted: None },
        };
        self.flow_losses += u64::from(end.ran == Ran::Unknown);
        match careful {
            0 => self.end(previous, end),
            _ => self.end_filtered(previous, end),
        }
        if flags & REPLACED != 0 {
            self.wait_until(block.not_before.load(Ordering::Relaxed), pc);
        }
        if careful != 0 {
            self.resume_filtered(previous, pc);
        } else if self.tracing == 0 {
            self.encoder.enable(pc, self.counts.now, &mut self.window);
            self.tracing = 1;
        }
        true
    }

    /// The reasons for the slow path: read once within a change, and after announcing the change, because the recorder
    /// may set a bit at any time.
    #[inline(always)]
    fn read_careful(&self) -> u64 {
        self.careful.load(Ordering::Relaxed)
    }

    /// Leaves the thread's file for good if it must not be written any more.
    fn is_over(&mut self, careful: u64) -> bool {
        let over = careful & (SEALED | GIVEN_UP) != 0;
        if over {
            if careful & SEALED == 0 {
                self.stopped = 1;
            }
            threads::stop(self);
        }
        over
    }

    /// Traces the end of the previous block.
    fn end(&mut self, previous: &'static Block, end: End) {
        match end.ran {
            Ran::Part(count) => self.retire(count),
            Ran::Whole(next) => {
                self.retire(previous.count);
                self.branch(previous, next);
            }
            Ran::Trap => {
                self.retire(previous.count);
                self.encoder.disable(None, self.counts.now, &mut self.window);
                self.tracing = 0;
            }
            Ran::Unknown => {}
        }
        // The trace shows an unexplained block as not executed.
        let unknown = (end.ran == Ran::Unknown).then_some(previous.pc);
        if let Some(ip) = end.interrupted.or(unknown).filter(|_| self.tracing != 0) {
            self.encoder.interrupt(ip, self.counts.now, &mut self.window);
            self.tracing = 0;
        }
    }

    /// Sets the clock forward to `time`: the code that runs next did not exist before.
    fn wait_until(&mut self, time: u64, pc: u64) {
        let Some(ahead) = time.checked_sub(self.counts.now).filter(|&ahead| ahead != 0) else { return };
        if self.tracing != 0 {
            self.encoder.interrupt(pc, self.counts.now, &mut self.window);
            self.tracing = 0;
        }
        self.counts.now += ahead;
        self.counts.skipped += ahead;
        self.encoder.set_clock(self.counts.now, &mut self.window);
    }

    /// The thread makes a system call: the previous block is over, and tracing stops for now.
    pub(crate) fn leave(&mut self) {
        self.begin_change();
        let careful = self.read_careful();
        if self.is_over(careful) {
            return self.end_change();
        }
        // SAFETY: `previous` is set to blocks only, and blocks are never freed.
        let previous: &'static Block = unsafe { &*self.previous };
        let end = match previous.kind {
            Kind::Far => End { ran: Ran::Trap, interrupted: None },
            // A call through the vsyscall page, which no instruction makes.
            _ => End { ran: Ran::Part(0), interrupted: Some(previous.pc) },
        };
        match careful {
            0 => self.end(previous, end),
            _ => self.end_filtered(previous, end),
        }
        self.tracing = 0;
        self.previous = &OUTSIDE;
        if self.window.cursor >= self.window.limit {
            self.make_room();
        }
        self.end_change();
    }

    /// A PSB is due, or the mapped part of the file is nearly full.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self) {
        if window::advance(self).is_err() {
            // The trace ends here, and so do the counts.
            self.stopped = 1;
            return threads::stop(self);
        }
        // A processor that loses packets emits no PSB either.
        if self.losing == 0 && self.window.position() >= self.window.next_psb {
            let next = (self.tracing != 0).then_some(self.pc);
            self.encoder.synchronize(next, self.counts.now, &mut self.window);
            let position = self.window.position();
            let (counts, pc, tracing) = (self.counts, self.pc, self.tracing);
            self.set_checkpoint(Checkpoint { counts, position, pc, tracing });
            self.window.next_psb = position + window::psb_period();
        }
        window::set_limit(&mut self.window);
    }

    /// From here to [`Thread::end_change`] the words of the thread are inconsistent. If it dies meanwhile, the recorder
    /// returns to the last PSB.
    #[inline(always)]
    pub(crate) fn begin_change(&mut self) {
        // SAFETY: a plain store, volatile so that it is not merged with the following one.
        unsafe { ptr::write_volatile(&mut self.busy, 1) };
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    pub(crate) fn end_change(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { ptr::write_volatile(&mut self.busy, 0) };
    }
}
