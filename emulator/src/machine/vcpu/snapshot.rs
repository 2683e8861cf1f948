//! Snapshots and the end of a vCPU's trace.

use super::{Moment, Piece, Vcpu};
use crate::machine::{block::Block, spool::Checkpoint, truth::Account};

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
        if self.tracing {
            self.encoder.enable(pc, self.now, &mut self.buffer);
        }
    }

    /// The recording ends: before the instruction at `next`, or, if that is unknown, before the last begun instruction.
    /// `requests` is the number of requested snapshots.
    pub(crate) fn end(&mut self, next: Option<u64>, requests: u64) {
        let at = match (next, self.previous) {
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
        if let Some(at) = at.filter(|_| self.tracing) {
            self.encoder.interrupt(at, self.now, &mut self.buffer);
            self.tracing = false;
        }
        self.encoder.flush(self.now, &mut self.buffer);
        self.buffer.finish();
        if !self.on_request || self.requests < requests {
            self.buffer.snapshot(self.traced, self.now);
        }
        self.counters.bytes = self.buffer.position();
        self.counters.failed = self.buffer.failed();
    }

    /// What was traced before each PSB, and before the end.
    pub(crate) fn checkpoints(&self) -> Vec<Checkpoint> {
        self.buffer.checkpoints(self.traced)
    }

    /// The pieces of the trace that were written, and what was traced in them.
    pub(crate) fn written(&self) -> (Vec<Piece>, Account) {
        (self.buffer.pieces(self.counters.end), self.buffer.covered(self.traced))
    }
}
