//! A whole machine: a plugin of `qemu-system-x86_64`, `-aarch64` and `-riscv64` that emits Intel PT for each vCPU.
//!
//! ```text
//! QEMU translates a block ──► Block: instructions, how it may end        Memory: code as it changes ──► code
//! QEMU enters a block     ──► Vcpu: how did the previous one end? ──Encoder──► Buffer ────────────────► cpu-N.pt
//! interrupt, exception    ──► Vcpu: FUP, TIP
//! watched places          ──► Watch: processes of the filter, latencies of triggers ──► snapshots
//! QEMU begins an insn     ──► Witness: the same account, counted one by one (if requested)
//! ```
//!
//! Recording begins and ends with an instruction that the guest's init runs: of x86, a long NOP with a number in it that no
//! compiler emits. It needs no privilege and has no effect on any processor.
//!
//! Machines for Arm and RISC-V write the packets of Intel PT too, of which the recorder makes the trace of their own units. There
//! a CFE packet has the cause of each exception.

mod block;
mod buffer;
mod code;
mod filter;
mod guest;
mod modules;
mod places;
mod plugin;
mod processes;
mod processor;
mod qemu;
mod ring;
mod settings;
pub mod spool;
mod symbols;
pub mod trigger;
pub mod truth;
mod vcpu;
mod watch;

use crate::Target;

pub(crate) use plugin::install;
pub(crate) use qemu::VERSION;
pub use settings::{KernelEnd, ModuleLayout, Part, Privilege, Process, Settings};

/// What precedes the name of a system call in that of the function of a target's kernel.
pub fn syscall_prefix(target: Target) -> &'static str {
    processor::of(target).syscall
}

/// Ticks per second of the counter that gives a machine its time; `counts_time`: it counts instructions.
pub fn ticks_per_second(target: Target, counts_time: bool) -> u64 {
    match target {
        // The virtual time of QEMU, in the unit of the processor's own counter.
        Target::Aarch64 | Target::CortexM => 1_000_000_000,
        Target::Riscv64 => 10_000_000,
        Target::X86_64 if counts_time => 1_000_000_000,
        Target::X86_64 => time_stamp_frequency(),
    }
}

/// Ticks of the time-stamp counter per second, which QEMU passes to guests unchanged. Takes a twentieth of a second.
fn time_stamp_frequency() -> u64 {
    // SAFETY: all x86-64 processors have the instruction.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (begin, from) = (std::time::Instant::now(), ticks());
    std::thread::sleep(std::time::Duration::from_millis(50));
    let (passed, nanoseconds) = (ticks().wrapping_sub(from), begin.elapsed().as_nanos().max(1));
    (u128::from(passed) * 1_000_000_000 / nanoseconds) as u64
}

/// The most vCPUs of a machine.
pub const VCPUS: usize = 16;
