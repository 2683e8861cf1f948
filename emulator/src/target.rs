//! The processor that a program is for, and Linux's interface to programs on it.

use std::sync::OnceLock;

use hodo_isa::Isa;
use serde::{Deserialize, Serialize};

/// An emulated processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// 64-bit x86.
    #[default]
    X86_64,
    /// 64-bit Arm.
    Aarch64,
    /// 64-bit RISC-V with the usual extensions.
    Riscv64,
    /// A Cortex-M, which runs no program of Linux.
    CortexM,
}

static CURRENT: OnceLock<Target> = OnceLock::new();

/// A page of its own in which QEMU puts the code that returns from a signal handler, where the kernel has its vDSO:
/// `mov x8, #139; svc #0` and `li a7, 139; ecall`.
const AARCH64_SIGRETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
const RISCV64_SIGRETURN: [u8; 8] = [0x93, 0x08, 0xb0, 0x08, 0x73, 0x00, 0x00, 0x00];

impl Target {
    /// Those that run Linux's programs.
    pub const ALL: [Target; 3] = [Target::X86_64, Target::Aarch64, Target::Riscv64];

    /// The name, as QEMU has it.
    pub fn name(self) -> &'static str {
        match self {
            Target::X86_64 => "x86_64",
            Target::Aarch64 => "aarch64",
            Target::Riscv64 => "riscv64",
            Target::CortexM => "arm",
        }
    }

    /// The target with QEMU's name.
    pub fn from_name(name: &[u8]) -> Option<Target> {
        let all = Target::ALL.into_iter().chain([Target::CortexM]);
        all.into_iter().find(|target| target.name().as_bytes() == name)
    }

    /// The target of a 64-bit program in little-endian order, by the first bytes of its ELF file.
    pub fn of_elf(head: &[u8]) -> Option<Target> {
        let machine = match head.get(..20)? {
            [0x7f, b'E', b'L', b'F', 2, 1, .., low, high] => u16::from_le_bytes([*low, *high]),
            _ => return None,
        };
        Target::ALL.into_iter().find(|target| target.machine() == machine)
    }

    /// `e_machine` of its ELF files.
    fn machine(self) -> u16 {
        match self {
            Target::X86_64 => 62,
            Target::Aarch64 => 183,
            Target::Riscv64 => 243,
            Target::CortexM => 40,
        }
    }

    /// The program that emulates it.
    pub fn qemu(self) -> String {
        format!("qemu-{}", self.name())
    }

    /// Its instruction set.
    pub fn isa(self) -> Isa {
        match self {
            Target::X86_64 => Isa::X86_64,
            Target::Aarch64 => Isa::A64,
            Target::Riscv64 => Isa::RV64,
            Target::CortexM => Isa::T32,
        }
    }

    /// The numbers of system calls.
    pub(crate) fn calls(self) -> &'static CallNumbers {
        match self {
            Target::X86_64 => &X86_64,
            Target::Aarch64 | Target::Riscv64 | Target::CortexM => &GENERIC,
        }
    }

    /// The code that returns from signal handlers, if QEMU provides it.
    pub(crate) fn signal_return(self) -> Option<[u8; 8]> {
        match self {
            Target::X86_64 | Target::CortexM => None,
            Target::Aarch64 => Some(AARCH64_SIGRETURN),
            Target::Riscv64 => Some(RISCV64_SIGRETURN),
        }
    }
}

/// Sets the target of this process.
pub(crate) fn set(target: Target) {
    _ = CURRENT.set(target);
}

/// The target of this process.
pub(crate) fn current() -> Target {
    CURRENT.get().copied().unwrap_or_default()
}

/// The numbers of the system calls that change what is recorded. `None`: the target does not have the call.
pub(crate) struct CallNumbers {
    pub(crate) rt_sigreturn: i64,
    pub(crate) exit: i64,
    pub(crate) exit_group: i64,
    pub(crate) execve: i64,
    pub(crate) execveat: i64,
    pub(crate) rt_sigaction: i64,
    pub(crate) mmap: i64,
    pub(crate) munmap: i64,
    pub(crate) mremap: i64,
    pub(crate) clone: i64,
    pub(crate) fork: Option<i64>,
    pub(crate) vfork: Option<i64>,
    pub(crate) prctl: i64,
}

static X86_64: CallNumbers = CallNumbers {
    rt_sigreturn: libc::SYS_rt_sigreturn,
    exit: libc::SYS_exit,
    exit_group: libc::SYS_exit_group,
    execve: libc::SYS_execve,
    execveat: libc::SYS_execveat,
    rt_sigaction: libc::SYS_rt_sigaction,
    mmap: libc::SYS_mmap,
    munmap: libc::SYS_munmap,
    mremap: libc::SYS_mremap,
    clone: libc::SYS_clone,
    fork: Some(libc::SYS_fork),
    vfork: Some(libc::SYS_vfork),
    prctl: libc::SYS_prctl,
};

/// Linux, `include/uapi/asm-generic/unistd.h`.
static GENERIC: CallNumbers = CallNumbers {
    rt_sigreturn: 139,
    exit: 93,
    exit_group: 94,
    execve: 221,
    execveat: 281,
    rt_sigaction: 134,
    mmap: 222,
    munmap: 215,
    mremap: 216,
    clone: 220,
    fork: None,
    vfork: None,
    prctl: 167,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_processor() {
        let head = |class, order, machine: u16| {
            let mut head = [0; 64];
            head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
            head[18..20].copy_from_slice(&machine.to_le_bytes());
            Target::of_elf(&head)
        };
        assert_eq!(head(2, 1, 62), Some(Target::X86_64));
        assert_eq!(head(2, 1, 183), Some(Target::Aarch64));
        assert_eq!(head(2, 1, 243), Some(Target::Riscv64));
        // 32 bits, big-endian, PowerPC.
        assert_eq!([head(1, 1, 243), head(2, 2, 183), head(2, 1, 21)], [None; 3]);
        assert_eq!(Target::of_elf(b"#!/bin/sh\n"), None);
    }
}
