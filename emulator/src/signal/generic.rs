//! Signals of Arm and RISC-V, whose handlers return to code that QEMU provides.

use super::{Registers, SI_CODE, Signal, may_fault};
use crate::{
    block::{Block, Kind},
    memory,
    process::PROCESS,
    spool::Thread,
    target,
};

/// Where the kernel's frame has what, and which registers a handler begins with. The frame is at the stack pointer: siginfo
/// of 128 bytes, then ucontext with the saved registers.
pub(super) struct Layout {
    /// The number of the register with the first argument, the signal; the second argument is the next one.
    argument: usize,
    /// The number of the register with the return address.
    link: usize,
    saved_pc: u64,
    saved_sp: u64,
    saved_argument: u64,
    saved_link: u64,
}

const SIGINFO: u64 = 128;

/// arch/arm64/include/uapi/asm/sigcontext.h: `regs[31]`, `sp`, `pc`.
pub(super) const AARCH64: Layout = Layout {
    argument: 0,
    link: 30,
    saved_argument: SIGINFO + 184,
    saved_link: SIGINFO + 184 + 8 * 30,
    saved_sp: SIGINFO + 432,
    saved_pc: SIGINFO + 440,
};

/// arch/riscv/include/uapi/asm/ptrace.h: `pc`, `ra`, `sp`, …
pub(super) const RISCV64: Layout = Layout {
    argument: 10,
    link: 1,
    saved_pc: SIGINFO + 176,
    saved_link: SIGINFO + 176 + 8,
    saved_sp: SIGINFO + 176 + 2 * 8,
    saved_argument: SIGINFO + 176 + 10 * 8,
};

/// A signal's frame on the stack.
struct Frame {
    address: u64,
    signal: u64,
    /// Whether the frame has its siginfo: Arm fills it in for handlers that want it (SA_SIGINFO).
    has_info: bool,
}

impl Layout {
    /// As [`super::delivered`].
    pub(super) fn delivered(
        &self,
        thread: &mut Thread,
        previous: &Block,
        pc: u64,
        registers: &Registers,
    ) -> Option<Signal> {
        let address = registers.stack_pointer();
        let [signal, info] = [self.argument, self.argument + 1].map(|number| registers.general(number));
        if signal > 64 || !returns_from_handler(registers.general(self.link)) {
            return None;
        }
        // The handler's first instruction may be the target of its own branches, or of another handler's jump.
        let returns_to = memory::word(address + self.saved_pc)?;
        let jumped = matches!(previous.kind, Kind::Jump | Kind::Direct | Kind::Conditional)
            && previous.may_continue_at(pc);
        if jumped && thread.last_frame == [address, returns_to] {
            return None;
        }
        thread.last_frame = [address, returns_to];
        let frame = self.innermost(Frame { address, signal, has_info: info == address })?;
        let interrupted = memory::word(frame.address + self.saved_pc)?;
        // Positive codes are the kernel's own (sigaction(2)).
        let is_own = !frame.has_info || memory::word(frame.address + SI_CODE)? as i32 > 0;
        Some(Signal { interrupted, fault: may_fault(frame.signal) && is_own })
    }

    /// As on x86: signals that arrive together stack their frames before the first handler runs.
    fn innermost(&self, mut frame: Frame) -> Option<Frame> {
        loop {
            let interrupted = memory::word(frame.address + self.saved_pc)?;
            let below = memory::word(frame.address + self.saved_sp)?;
            let stacked = returns_from_handler(memory::word(frame.address + self.saved_link)?)
                && PROCESS.lock().as_ref().is_some_and(|process| process.is_handler(interrupted));
            if !stacked {
                return Some(frame);
            }
            frame = Frame {
                signal: memory::word(frame.address + self.saved_argument)?,
                has_info: memory::word(frame.address + self.saved_argument + 8)? == below,
                address: below,
            };
        }
    }
}

/// Whether the code at an address returns from a signal handler.
fn returns_from_handler(address: u64) -> bool {
    let mut code = [0; 8];
    memory::read(address, &mut code) && target::current().signal_return() == Some(code)
}
