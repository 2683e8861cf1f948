//! Processors that start, tracing that goes on and off, and changes of the code's width other than by far transfers.

use super::{KERNEL, Vcpu};
use crate::{block::Kind, machine::guest::Mode};

/// A startup message names the page at which a processor begins, below 1 MB (SDM vol. 3, "SIPI").
const STARTS_BELOW: u64 = 1 << 20;
const PAGE: u64 = 4096;

impl Vcpu {
    /// Control is at `pc`, in code of another width, and no guest is entered or left.
    pub(super) fn change_width(&mut self, mode: Mode, pc: u64) {
        if self.starts(mode, pc) {
            self.start_again();
        }
        self.mode = mode;
        self.resolve(pc);
        // Usually a far transfer, which has shown it.
        if self.tracing && self.encoder.bits() != u64::from(mode.bits()) {
            self.transfer(pc, pc);
        }
    }

    /// Whether another processor has started this one: Linux takes a processor offline, where it halts in the kernel, and
    /// starts it anew, by INIT and SIPI.
    fn starts(&self, mode: Mode, pc: u64) -> bool {
        let is_there = mode.bits() == 16 && pc < STARTS_BELOW && pc.is_multiple_of(PAGE);
        let block = self.previous.filter(|_| is_there && self.mode.bits() == 64);
        block.is_some_and(|block| {
            let from = block.flow.pc.wrapping_add(self.shift);
            from & KERNEL != 0 && block.flow.kind != Kind::Far
        })
    }

    /// The processor has stopped after the instruction that it began last, and starts anew elsewhere: as tracing goes off
    /// with INIT and on after SIPI.
    fn start_again(&mut self) {
        let Some(block) = self.previous.take() else { return };
        // SAFETY: as in `resolve`.
        let begun = unsafe { self.begun.read() }.min(block.flow.count - 1);
        self.retire_first(block, begun + 1);
        let next = if begun + 1 < block.flow.count { block.flow.address(begun + 1) } else { block.flow.fall };
        if self.tracing {
            self.encoder.interrupt(next.wrapping_add(self.shift), self.now, &mut self.buffer);
            self.tracing = false;
        }
    }

    /// Resumes tracing at `pc`, in code of this mode, or stops it, as the settings require.
    #[cold]
    pub(super) fn set_tracing(&mut self, pc: u64, mode: Mode) {
        if self.tracing {
            // Control came here without a far transfer or an interrupt.
            self.encoder.interrupt(pc, self.now, &mut self.buffer);
            self.tracing = false;
        } else {
            self.tracing = true;
            if self.unstamped {
                self.stamp();
            }
            self.encoder.expect_bits(mode.bits().into());
            self.encoder.enable(pc, self.now, &mut self.buffer);
        }
    }
}
