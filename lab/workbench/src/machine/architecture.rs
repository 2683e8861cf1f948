//! The architectures of emulated machines: their packages, and what builds their first process.

use std::path::{Path, PathBuf};

/// An architecture of emulated machines.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// Its name, as in `hodo record --arch`.
    pub(crate) name: &'static str,
    /// Debian's name.
    pub(super) debian: &'static str,
    /// The package of QEMU, and its program.
    pub(super) emulator: &'static str,
    pub(super) program: &'static str,
    /// The package of the firmware, and its file, if it is not one of QEMU's own.
    pub(super) firmware: Option<(&'static str, &'static str)>,
    /// A package that depends on the current kernel, and its suite.
    pub(super) kernel: &'static str,
    pub(super) suite: &'static str,
    /// The name of the kernel's file: `vmlinux` is unpacked from a bzImage, `vmlinuz` is the package's.
    image: &'static str,
    /// What builds the guest's first process; `None` for the host's own architecture.
    pub(super) cross: Option<Cross>,
}

/// A compiler for another architecture.
#[derive(Debug)]
pub(super) struct Cross {
    /// Rust's name of the target.
    pub(super) target: &'static str,
    /// The program that links, and its packages, with the C library's static form.
    pub(super) linker: &'static str,
    pub(super) packages: &'static str,
}

pub(crate) const X86_64: Architecture = Architecture {
    name: "x86_64",
    debian: "amd64",
    emulator: "qemu-system-x86",
    program: "qemu-system-x86_64",
    firmware: None,
    kernel: "linux-image-amd64",
    suite: "bookworm",
    image: "vmlinux",
    cross: None,
};

pub(crate) const AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    emulator: "qemu-system-arm",
    program: "qemu-system-aarch64",
    firmware: None,
    kernel: "linux-image-arm64",
    suite: "bookworm",
    image: "vmlinuz",
    cross: Some(Cross {
        target: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    }),
};

pub(crate) const RISCV64: Architecture = Architecture {
    name: "riscv64",
    debian: "riscv64",
    emulator: "qemu-system-riscv",
    program: "qemu-system-riscv64",
    firmware: Some(("opensbi", "usr/lib/riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin")),
    kernel: "linux-image-riscv64",
    // The first suite with this architecture.
    suite: "trixie",
    image: "vmlinuz",
    cross: Some(Cross {
        target: "riscv64gc-unknown-linux-gnu",
        linker: "riscv64-linux-gnu-gcc",
        packages: "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    }),
};

/// All of them.
pub(super) const ARCHITECTURES: [&Architecture; 3] = [&X86_64, &AARCH64, &RISCV64];

impl Architecture {
    /// The packages of QEMU and of the firmware.
    pub(super) fn emulator_packages(&self) -> impl Iterator<Item = &'static str> {
        [self.emulator].into_iter().chain(self.firmware.map(|(package, _)| package))
    }

    /// Whether QEMU for it is in this folder of machines, with its firmware.
    pub(super) fn has_emulator(&self, machines: &Path) -> bool {
        let firmware = self.firmware.map(|(_, file)| emulators(machines).join(file));
        self.emulator_path(machines).exists() && firmware.is_none_or(|file| file.exists())
    }

    /// QEMU's program.
    pub(super) fn emulator_path(&self, machines: &Path) -> PathBuf {
        emulators(machines).join("usr/bin").join(self.program)
    }

    /// The folder of all parts but QEMU. That of x86-64 is the folder of machines itself, as it was the only one first.
    pub(super) fn folder(&self, machines: &Path) -> PathBuf {
        if self.name == X86_64.name { machines.to_owned() } else { machines.join(self.name) }
    }

    /// The folder of the kernel and its modules.
    pub(super) fn kernel_folder(&self, machines: &Path) -> PathBuf {
        self.folder(machines).join("kernel")
    }

    /// The kernel's file.
    pub(super) fn kernel_path(&self, machines: &Path) -> PathBuf {
        self.kernel_folder(machines).join(self.image)
    }

    /// Whether the kernel and its modules are in this folder of machines.
    pub(super) fn has_kernel(&self, machines: &Path) -> bool {
        let modules = self.kernel_folder(machines).join("modules/modules.order");
        self.kernel_path(machines).exists() && modules.exists()
    }
}

/// The folder of QEMU's packages: those of all architectures, as they share libraries.
pub(super) fn emulators(machines: &Path) -> PathBuf {
    machines.join("qemu")
}
