//! System call numbers, from the kernel's table of each architecture.

use syscalls::{aarch64, riscv64, x86_64};

/// The architecture that defines the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86. 32-bit programs use other numbers, which tracers do not distinguish.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// 64-bit RISC-V.
    Riscv64,
}

/// Exclusive upper bound of the numbers.
const END: usize = 1 << 10;

impl Machine {
    /// The architecture with this `uname -m` name.
    pub fn of(name: &str) -> Option<Machine> {
        match name {
            "x86_64" => Some(Machine::X86_64),
            "aarch64" => Some(Machine::Aarch64),
            "riscv64" => Some(Machine::Riscv64),
            _ => None,
        }
    }

    /// The name of a system call.
    pub fn name(self, number: usize) -> Option<&'static str> {
        match self {
            Machine::X86_64 => x86_64::Sysno::new(number).map(|call| call.name()),
            Machine::Aarch64 => aarch64::Sysno::new(number).map(|call| call.name()),
            Machine::Riscv64 => riscv64::Sysno::new(number).map(|call| call.name()),
        }
    }

    /// All numbers with their names, in ascending order.
    pub fn all(self) -> impl Iterator<Item = (u32, &'static str)> {
        (0..END).filter_map(move |number| Some((number as u32, self.name(number)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn numbers_have_their_names() {
        assert_eq!(Machine::X86_64.name(0), Some("read"));
        assert_eq!(Machine::X86_64.name(257), Some("openat"));
        assert_eq!(Machine::X86_64.name(400), None);
        assert_eq!(Machine::Aarch64.name(63), Some("read"));
        assert_eq!(Machine::Riscv64.name(259), Some("riscv_flush_icache"));
        assert!(Machine::X86_64.all().any(|call| call == (435, "clone3")));
    }
}
