//! What differs between machines of different processors.

use hodo_emulator::Target;

/// A kind of machine.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) target: Target,
    /// The folder of its parts within that of all, and its kernel in there.
    pub(super) folder: &'static str,
    pub(super) kernel: &'static str,
    /// QEMU's program.
    pub(super) qemu: &'static str,
    /// QEMU's names of the board and the processor.
    pub(super) board: &'static str,
    pub(super) cpu: &'static str,
    /// Firmware, in the folder of QEMU.
    pub(super) firmware: Option<&'static str>,
    /// Arguments of the kernel: the console; no address randomization, and one page table for kernel and programs.
    pub(super) arguments: &'static str,
    /// The physical address of the RAM.
    pub(super) memory: u64,
    /// The option of `cargo xtask setup` that fetches its parts.
    pub(super) setup: &'static str,
}

const X86_64: Kind = Kind {
    target: Target::X86_64,
    folder: "",
    kernel: "kernel/vmlinux",
    qemu: "qemu-system-x86_64",
    board: "q35,smm=off",
    cpu: "max,-la57",
    firmware: None,
    arguments: "console=ttyS0 nokaslr tsc=reliable no_timer_check",
    memory: 0,
    setup: "--machine",
};

const AARCH64: Kind = Kind {
    target: Target::Aarch64,
    folder: "aarch64",
    kernel: "kernel/vmlinuz",
    qemu: "qemu-system-aarch64",
    board: "virt,gic-version=3",
    // Authentication of pointers with QEMU's own algorithm, as that of the architecture takes half of the time.
    cpu: "max,pauth-impdef=on",
    firmware: None,
    arguments: "console=ttyAMA0 nokaslr kpti=off",
    memory: 1 << 30,
    setup: "--machine aarch64",
};

const RISCV64: Kind = Kind {
    target: Target::Riscv64,
    folder: "riscv64",
    kernel: "kernel/vmlinuz",
    qemu: "qemu-system-riscv64",
    board: "virt",
    cpu: "rv64",
    firmware: Some("usr/lib/riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin"),
    arguments: "console=ttyS0 nokaslr",
    memory: 2 << 30,
    setup: "--machine riscv64",
};

/// The kind of machine with this processor.
pub(super) fn of(target: Target) -> &'static Kind {
    match target {
        Target::X86_64 | Target::CortexM => &X86_64,
        Target::Aarch64 => &AARCH64,
        Target::Riscv64 => &RISCV64,
    }
}
