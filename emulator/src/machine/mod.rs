//! A whole machine: a plugin of `qemu-system-x86_64` that emits Intel PT for each vCPU.
//!
//! ```text
//! QEMU translates a block ──► Block: instructions, how it may end        Memory: code as it changes ──► code
//! QEMU enters a block     ──► Vcpu: how did the previous one end? ──Encoder──► Buffer ────────────────► cpu-N.pt
//! interrupt, exception    ──► Vcpu: FUP, TIP
//! watched places          ──► Watch: processes of the filter, latencies of triggers ──► snapshots
//! QEMU begins an insn     ──► Witness: the same account, counted one by one (if requested)
//! ```
//!
//! Recording begins and ends with an instruction that the guest's init runs: a long NOP with a number in it that no
//! compiler emits. It needs no privilege and has no effect on any processor.

mod block;
mod buffer;
mod code;
mod filter;
mod guest;
mod modules;
mod places;
mod plugin;
mod processes;
mod qemu;
mod ring;
mod settings;
pub mod spool;
mod symbols;
pub mod trigger;
pub mod truth;
mod vcpu;
mod watch;

pub(crate) use plugin::install;
pub(crate) use qemu::VERSION;
pub use settings::{KernelEnd, ModuleLayout, Part, Privilege, Process, Settings};
pub use watch::SYSCALL;

/// Ticks of the time-stamp counter per second, which QEMU passes to guests unchanged. Takes a twentieth of a second.
pub fn tick_frequency() -> u64 {
    // SAFETY: all x86-64 processors have the instruction.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (begin, from) = (std::time::Instant::now(), ticks());
    std::thread::sleep(std::time::Duration::from_millis(50));
    let (passed, nanoseconds) = (ticks().wrapping_sub(from), begin.elapsed().as_nanos().max(1));
    (u128::from(passed) * 1_000_000_000 / nanoseconds) as u64
}

/// The most vCPUs of a machine.
pub const VCPUS: usize = 16;

/// `nopl 0x6f646f68(%rax,%rax,1)`: recording begins.
pub const BEGIN: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, b'h', b'o', b'd', b'o'];
/// `nopl 0x6f646f69(%rax,%rax,1)`: recording ends.
pub const END: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, b'i', b'o', b'd', b'o'];
