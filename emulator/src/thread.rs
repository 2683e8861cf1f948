//! A thread of the emulated program: each block that it enters says how the one before ended.
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
    spool::{Checkpoint, Thread},
    window,
};

impl Thread {
    /// The thread is about to run `block`. `registers` are those of the emulated processor.
    #[inline(always)]
    pub(crate) fn enter(&mut self, block: &'static Block, registers: &Registers) {
        self.begin_change();
        // SAFETY: `previous` is set to blocks only, and blocks are never freed.
        let previous: &'static Block = unsafe { &*self.previous };
        let flags = block.flags.load(Ordering::Relaxed);
        if u64::from(flags) | self.careful != 0 || !self.follow(previous, block.pc) {
            self.step_carefully(previous, block, flags, registers);
        }
        self.previous = block;
        self.pc = block.pc;
        if self.window.cursor >= self.window.limit {
            self.make_room();
        }
        self.end_change();
    }

    /// The previous block ran whole, and the flow goes on at `pc`. `false`, and nothing is done,
    /// where that is not how it can end.
    #[inline(always)]
    fn follow(&mut self, previous: &'static Block, pc: u64) -> bool {
        let taken = pc == previous.taken;
        let possible = match previous.kind {
            Kind::Direct | Kind::Call | Kind::CallNext => taken,
            Kind::Conditional => taken || pc == previous.fall,
            Kind::Return | Kind::Jump | Kind::CallIndirect | Kind::Far => true,
            Kind::Repeat | Kind::Outside => false,
        };
        if !possible {
            return false;
        }
        self.retire(previous.count);
        let now = self.counts.now;
        let (encoder, window) = (&mut self.encoder, &mut self.window);
        match previous.kind {
            Kind::Conditional => encoder.branch(taken, now, window),
            Kind::Call => {
                self.counts.calls += 1;
                encoder.call(previous.fall);
            }
            Kind::Return => encoder.ret(pc, now, window),
            Kind::Jump | Kind::Far => encoder.indirect(pc, now, window),
            Kind::CallIndirect => {
                self.counts.calls += 1;
                // A call to the next instruction leaves no return address behind.
                if pc != previous.fall {
                    encoder.call(previous.fall);
                }
                encoder.indirect(pc, now, window);
            }
            Kind::CallNext => self.counts.calls += 1,
            Kind::Direct | Kind::Repeat | Kind::Outside => {}
        }
        true
    }

    /// So many more instructions ran: the clock goes on, and timing packets that are due are made.
    #[inline(always)]
    fn retire(&mut self, count: u64) {
        self.counts.now += count;
        if self.counts.now >= self.encoder.next_mtc() {
            self.encoder.tick(self.counts.now, &mut self.window);
        }
    }

    /// What the fast path leaves: signals, repeated instructions, blocks left in their middle, the
    /// way back from system calls.
    #[cold]
    #[inline(never)]
    fn step_carefully(
        &mut self,
        previous: &'static Block,
        block: &'static Block,
        flags: u8,
        registers: &Registers,
    ) {
        let signal =
            if flags & HANDLER != 0 { signal::delivered(self, previous, block.pc, registers) } else { None };
        match signal {
            Some(_) if previous.kind == Kind::Outside => {}
            Some(signal) => self.interrupt(previous, &signal),
            None => self.finish(previous, block.pc, flags & ALONE != 0),
        }
        if flags & REPLACED != 0 {
            self.wait_until(block.not_before.load(Ordering::Relaxed), block.pc);
        }
        if self.tracing == 0 {
            self.encoder.enable(block.pc, self.counts.now, &mut self.window);
            self.tracing = 1;
        }
    }

    /// The previous block ended without a signal, and the flow goes on at `pc`; `alone` where QEMU
    /// may have left the block to run the instruction at `pc` by itself.
    fn finish(&mut self, previous: &'static Block, pc: u64, alone: bool) {
        let inside = previous.index_of(pc);
        match (previous.kind, inside) {
            (Kind::Outside, _) => {}
            (_, Some(index)) if alone && (index + 1 < previous.count || !previous.may_continue_at(pc)) => {
                self.retire(index);
            }
            // Another round: the instruction is not over.
            (Kind::Repeat, _) if pc == previous.taken => self.retire(previous.count - 1),
            (Kind::Repeat, _) if pc == previous.fall => self.retire(previous.count),
            _ if self.follow(previous, pc) => {}
            (_, Some(index)) => self.retire(index),
            (_, None) => self.surprise(previous),
        }
    }

    /// The previous block was interrupted, or had ended when the signal came.
    fn interrupt(&mut self, previous: &'static Block, signal: &signal::Signal) {
        let ip = signal.interrupted;
        self.tracing = 0;
        match previous.index_of(ip) {
            Some(index) if signal.fault || !previous.may_continue_at(ip) => self.retire(index),
            // INT3 and its like: a branch into the kernel, and no interrupt.
            None if previous.kind == Kind::Far => {
                self.retire(previous.count);
                return self.encoder.disable(None, self.counts.now, &mut self.window);
            }
            _ => self.finish(previous, ip, false),
        }
        self.encoder.interrupt(ip, self.counts.now, &mut self.window);
    }

    /// No rule explains how the flow came here. The trace says that the block did not run.
    fn surprise(&mut self, previous: &'static Block) {
        self.surprises += 1;
        self.encoder.interrupt(previous.pc, self.counts.now, &mut self.window);
        self.tracing = 0;
    }

    /// Sets the clock to `time`, if it is not there yet: what runs next did not exist before.
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

    /// The thread makes a system call: the previous block is over, and so is tracing for now.
    pub(crate) fn leave(&mut self) {
        self.begin_change();
        // SAFETY: `previous` is set to blocks only, and blocks are never freed.
        let previous: &'static Block = unsafe { &*self.previous };
        match previous.kind {
            Kind::Outside => {}
            Kind::Far => {
                self.retire(previous.count);
                self.encoder.disable(None, self.counts.now, &mut self.window);
            }
            // A call through the vsyscall page, which no instruction makes.
            _ => self.encoder.interrupt(previous.pc, self.counts.now, &mut self.window),
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
        window::advance(self);
        if self.window.position() >= self.window.next_psb {
            let next = (self.tracing != 0).then_some(self.pc);
            self.encoder.synchronize(next, self.counts.now, &mut self.window);
            let position = self.window.position();
            self.checkpoint =
                Checkpoint { counts: self.counts, position, pc: self.pc, tracing: self.tracing };
            self.window.next_psb = position + window::psb_period();
        }
        window::set_limit(&mut self.window);
    }

    /// From here to [`Thread::end_change`] the words of the thread contradict each other; who finds
    /// them so after its death goes back to the last PSB.
    #[inline(always)]
    fn begin_change(&mut self) {
        // SAFETY: a plain store, volatile so that it is not merged with the one that follows.
        unsafe { ptr::write_volatile(&mut self.busy, 1) };
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn end_change(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { ptr::write_volatile(&mut self.busy, 0) };
    }
}
