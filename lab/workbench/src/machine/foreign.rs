//! Machines of other architectures, for judges: the same QEMU and kernel as the recorder's, with another first process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    architecture::{AARCH64, Architecture, RISCV64, emulators},
    ensure_packages,
};
use crate::Outcome;

/// How judges start a machine.
struct Kind {
    architecture: Architecture,
    options: &'static [&'static str],
    /// Arguments of the kernel: its code stays as it is at the begin, and where it is.
    arguments: &'static str,
}

const ARM: Kind = Kind {
    architecture: AARCH64,
    options: &["-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"],
    arguments: "console=ttyAMA0 nokaslr kpti=off norandmaps quiet panic=-1",
};

const RISCV: Kind = Kind {
    architecture: RISCV64,
    options: &["-M", "virt", "-cpu", "rv64"],
    arguments: "console=ttyS0 nokaslr norandmaps quiet panic=-1",
};

/// A machine's parts.
pub struct Machine {
    /// The folder of machines.
    machines: PathBuf,
    kind: &'static Kind,
}

impl Machine {
    /// A machine for 64-bit Arm. Its parts are fetched the first time.
    ///
    /// # Errors
    /// A package can't be fetched.
    pub fn arm() -> Outcome<Machine> {
        Machine::ensure(&ARM)
    }

    /// A machine for RV64, as [`Machine::arm`].
    ///
    /// # Errors
    /// A package can't be fetched.
    pub fn riscv() -> Outcome<Machine> {
        Machine::ensure(&RISCV)
    }

    fn ensure(kind: &'static Kind) -> Outcome<Machine> {
        Ok(Machine { machines: ensure_packages(&kind.architecture)?, kind })
    }

    /// The emulator of two processors that boots with this as the first process and only one. It
    /// ends when the process switches the machine off. `work` is a folder for files.
    ///
    /// # Errors
    /// The program can't be read, or nothing be written.
    pub fn boot(&self, first: &Path, work: &Path) -> Outcome<Command> {
        let initramfs = work.join("initramfs");
        fs::write(&initramfs, archive(&fs::read(first)?))?;
        let Machine { machines, kind: Kind { architecture, options, arguments } } = self;
        let root = emulators(machines);
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        // The libraries of the package's suite, and so its loader, as this system's may be older.
        let mut qemu = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        qemu.arg("--library-path").arg(libraries).arg(architecture.emulator_path(machines));
        qemu.arg("-L").arg(root.join("usr/share/qemu")).args(*options);
        if let Some((_, file)) = architecture.firmware {
            qemu.arg("-bios").arg(root.join(file));
        }
        qemu.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "512M", "-nodefaults", "-no-reboot"]);
        qemu.args(["-display", "none", "-serial", "stdio", "-append", arguments]);
        qemu.arg("-kernel").arg(architecture.kernel_path(machines)).arg("-initrd").arg(initramfs);
        Ok(qemu)
    }
}

/// An initial RAM file system with a console and a first process (Linux, Documentation/driver-api/early-userspace).
fn archive(first: &[u8]) -> Vec<u8> {
    const FOLDER: u32 = 0o40755;
    const DEVICE: u32 = 0o20600;
    const PROGRAM: u32 = 0o10_0755;
    const CONSOLE: [usize; 2] = [5, 1];
    let mut out = Vec::new();
    for (name, mode, bytes, [major, minor]) in [
        ("dev", FOLDER, &[][..], [0, 0]),
        ("dev/console", DEVICE, &[], CONSOLE),
        ("init", PROGRAM, first, [0, 0]),
        ("TRAILER!!!", 0, &[], [0, 0]),
    ] {
        let fields = [1, mode as usize, 0, 0, 1, 0, bytes.len(), 0, 0, major, minor, name.len() + 1, 0];
        let fields: String = fields.iter().map(|field| format!("{field:08x}")).collect();
        out.extend_from_slice(format!("070701{fields}{name}\0").as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}
