//! Signals: QEMU builds the kernel's signal frame, and starts the handler.

mod generic;

use crate::{
    block::{Block, Kind},
    memory,
    process::PROCESS,
    spool::Thread,
    target::{self, Target},
};

/// The begin of the emulated processor's state, which has all general registers: QEMU's `CPUArchState`.
#[repr(C)]
pub(crate) struct Registers([u64; 40]);

impl Registers {
    /// A general register by its number.
    fn general(&self, number: usize) -> u64 {
        // `CPUARMState` begins with the registers of AArch32.
        let first = if target::current() == Target::Aarch64 { 8 } else { 0 };
        self.0[first + number]
    }

    pub(crate) fn stack_pointer(&self) -> u64 {
        self.general(match target::current() {
            Target::X86_64 => 4,
            Target::Aarch64 => 31,
            Target::Riscv64 => 2,
            // It runs no program.
            Target::CortexM => 0,
        })
    }

    fn rax(&self) -> u64 {
        self.0[0]
    }

    fn rdx(&self) -> u64 {
        self.0[2]
    }

    fn rsi(&self) -> u64 {
        self.0[6]
    }

    fn rdi(&self) -> u64 {
        self.0[7]
    }
}

/// A signal that was just delivered.
pub(crate) struct Signal {
    /// The address that the handler returns to.
    pub(crate) interrupted: u64,
    /// Whether the instruction at that address raised it.
    pub(crate) fault: bool,
}

// The frame (arch/x86/include/asm/sigframe.h): return address, ucontext, siginfo. In the ucontext:
// flags, link, stack (24 bytes), then the registers in the order of `struct sigcontext_64`.
const UCONTEXT: u64 = 8;
const SIGCONTEXT: u64 = UCONTEXT + 40;
const SAVED_RDI: u64 = SIGCONTEXT + 8 * 8;
const SAVED_RDX: u64 = SIGCONTEXT + 12 * 8;
const SAVED_RSP: u64 = SIGCONTEXT + 15 * 8;
const SAVED_RIP: u64 = SIGCONTEXT + 16 * 8;
/// A signal's frame on the stack, and the number of its signal.
struct Frame {
    address: u64,
    signal: u64,
}

/// The siginfo lies within this many bytes of the start of the frame.
const FRAME: u64 = 1024;
/// si_code in siginfo.
const SI_CODE: u64 = 8;

/// The signal whose handler, at `pc`, the thread is about to run; `None` if it reached the handler's first instruction
/// in another way, such as a call.
pub(crate) fn delivered(
    thread: &mut Thread,
    previous: &Block,
    pc: u64,
    registers: &Registers,
) -> Option<Signal> {
    match target::current() {
        Target::X86_64 => delivered_x86(thread, previous, pc, registers),
        Target::Aarch64 => generic::AARCH64.delivered(thread, previous, pc, registers),
        Target::Riscv64 => generic::RISCV64.delivered(thread, previous, pc, registers),
        // It runs no program.
        Target::CortexM => None,
    }
}

fn delivered_x86(thread: &mut Thread, previous: &Block, pc: u64, registers: &Registers) -> Option<Signal> {
    let frame = registers.stack_pointer();
    let info = registers.rsi();
    let inside = info > frame && info - frame < FRAME;
    if registers.rdx() != frame + UCONTEXT || !inside || registers.rax() != 0 || registers.rdi() > 64 {
        return None;
    }
    // A handler may pass its frame to another handler by jumping to it.
    let returns_to = memory::word(frame + SAVED_RIP)?;
    let jumped = matches!(previous.kind, Kind::Jump | Kind::Direct) && previous.may_continue_at(pc);
    if jumped && thread.last_frame == [frame, returns_to] {
        return None;
    }
    thread.last_frame = [frame, returns_to];
    let innermost = innermost(Frame { address: frame, signal: registers.rdi() })?;
    let interrupted = memory::word(innermost.address + SAVED_RIP)?;
    // Positive codes are the kernel's own (sigaction(2)).
    let code = memory::word(innermost.address + (info - frame) + SI_CODE)? as i32;
    Some(Signal { interrupted, fault: may_fault(innermost.signal) && code > 0 })
}

/// Whether an instruction can raise this signal. Its number is the same on all targets.
fn may_fault(signal: u64) -> bool {
    matches!(signal as i32, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP)
}

/// Signals that arrive together stack their frames before the first handler runs: a frame that interrupted a handler at
/// its first instruction lies above that handler's frame. Returns the frame that interrupted the program itself.
fn innermost(mut frame: Frame) -> Option<Frame> {
    loop {
        let interrupted = memory::word(frame.address + SAVED_RIP)?;
        let below = memory::word(frame.address + SAVED_RSP)?;
        let stacked = memory::word(frame.address + SAVED_RDX)? == below + UCONTEXT
            && PROCESS.lock().as_ref().is_some_and(|process| process.is_handler(interrupted));
        if !stacked {
            return Some(frame);
        }
        frame = Frame { address: below, signal: memory::word(frame.address + SAVED_RDI)? };
    }
}
