//! Writes a vCPU's trace: whenever its buffer is full, in snapshots, and at its end.

use super::{Moment, Vcpu};
use crate::machine::{
    block::Block,
    spool::{Counters, Cpu},
};

impl Vcpu {
    /// The block whose end is not traced yet; `None` after an interrupt.
    #[inline(always)]
    pub(crate) fn previous(&self) -> Option<&'static Block> {
        self.previous
    }

    /// The present moment, before the last entered block.
    pub(crate) fn moment(&mut self) -> Moment {
        self.read_clock();
        Moment { cpu: self.index, time: self.now, instructions: self.account.instructions }
    }

    /// Takes a snapshot if one was requested since the last; execution is at `pc`.
    #[inline(always)]
    pub(crate) fn snapshot_if_requested(&mut self, requests: u64, pc: u64) {
        if self.requests != requests {
            self.snapshot(requests, pc);
        }
    }

    /// Writes the last part of the trace, while tracing pauses (as perf does).
    #[cold]
    fn snapshot(&mut self, requests: u64, pc: u64) {
        self.requests = requests;
        self.read_clock();
        match self.tracing {
            true => self.encoder.interrupt(pc, self.now, &mut self.buffer),
            false => self.encoder.flush(self.now, &mut self.buffer),
        }
        self.buffer.snapshot(self.traced, self.now);
        self.progress(Vec::new());
        if self.tracing {
            self.encoder.enable(pc, self.now, &mut self.buffer);
        }
    }

    /// A PSB is due, or bytes must be written to the file.
    #[cold]
    pub(super) fn make_room(&mut self, pc: u64) {
        if self.buffer.position() >= self.next_psb {
            self.synchronize(self.tracing.then_some(pc));
        }
        if self.buffer.is_full() {
            self.write(pc);
        }
        self.buffer.wait(self.next_psb);
    }

    /// Emits a PSB+; `next` is the address of the next instruction, if tracing is on.
    pub(super) fn synchronize(&mut self, next: Option<u64>) {
        self.read_clock();
        self.stamped = self.now;
        self.encoder.skip_mtc(self.now);
        // What precedes the PSB, so that its position is known.
        self.encoder.count_cycles(self.now, &mut self.buffer);
        self.buffer.psb(self.traced);
        self.encoder.synchronize(next, self.now, &mut self.buffer);
        self.next_psb = self.buffer.position() + self.buffer.psb_period;
        self.buffer.wait(self.next_psb);
    }

    /// Writes the buffered bytes, and what is needed to read them if QEMU ends before it writes more. Execution is at
    /// `pc`.
    #[cold]
    fn write(&mut self, pc: u64) {
        if self.buffer.is_ring() {
            return self.buffer.finish();
        }
        self.encoder.flush(self.now, &mut self.buffer);
        self.buffer.finish();
        let mut closing = Vec::new();
        if self.tracing {
            self.encoder.clone().interrupt(pc, self.now, &mut closing);
        }
        self.progress(closing);
    }

    /// Adds to the account of what was written.
    fn progress(&mut self, closing: Vec<u8>) {
        // The code that the trace refers to.
        let mut failed = self.buffer.failed().or(self.memory.flush());
        self.counters.end = self.now;
        if failed.is_none() {
            let account = self.account(closing);
            failed = self.progress.save(account).err().map(|error| error.to_string());
        }
        if failed.is_some() {
            self.counters.failed = failed;
            (self.give_up)();
        }
    }

    fn account(&mut self, closing: Vec<u8>) -> Cpu {
        Cpu {
            cpu: self.index,
            account: self.account,
            traced: self.buffer.covered(self.traced),
            pieces: self.buffer.new_pieces(self.now),
            checkpoints: self.buffer.new_checkpoints(),
            witness: None,
            counters: self.counters.clone(),
            closing,
        }
    }

    /// The recording ends: before the instruction at `next`, or, if that is unknown, before the last begun instruction.
    /// `requests` is the number of requested snapshots.
    pub(crate) fn end(&mut self, next: Option<u64>, requests: u64) {
        let last = match (next, self.previous) {
            (Some(next), _) => {
                self.resolve(next);
                Some(next)
            }
            (None, Some(block)) => {
                // SAFETY: as in `resolve`.
                let begun = unsafe { self.begun.read() }.min(block.flow.count - 1);
                self.previous = None;
                self.retire_first(block, begun);
                Some(block.flow.address(begun).wrapping_add(self.shift))
            }
            (None, None) => None,
        };
        self.witness.end(next);
        self.ended = true;
        self.read_clock();
        self.counters.end = self.now;
        if let Some(last) = last.filter(|_| self.tracing) {
            self.encoder.interrupt(last, self.now, &mut self.buffer);
            self.tracing = false;
        }
        self.encoder.flush(self.now, &mut self.buffer);
        self.buffer.finish();
        if !self.on_request || self.requests < requests {
            self.buffer.snapshot(self.traced, self.now);
        }
        self.counters.bytes = self.buffer.position();
        // SAFETY: as in `resolve`.
        self.counters.pauses = unsafe { self.begun.add(1).read() } - self.pauses_before;
        self.progress(Vec::new());
    }

    /// Returns the counts of executed instructions and the written pieces. `witness`: whether instructions were counted one
    /// by one too.
    pub(crate) fn written(&self, witness: bool) -> Cpu {
        let saved = self.progress.saved().cloned().unwrap_or_default();
        let counters = Counters { failed: self.counters.failed.clone(), ..saved.counters };
        let cpu = Cpu { cpu: self.index, counters, ..saved };
        let witness = (witness && self.counters.failed.is_none()).then_some(self.witness.account);
        Cpu { witness, ..if self.buffer.is_ring() { cpu } else { cpu.in_one_piece() } }
    }
}
