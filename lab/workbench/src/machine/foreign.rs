//! Machines of other architectures, for judges: a QEMU and a kernel of Debian's packages, beside what is built.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{QEMU_SUITES, entry};
use crate::{
    Outcome,
    apt::{Apt, Archive, unpack},
    command,
};

/// What differs between architectures.
struct Kind {
    /// Debian's name.
    architecture: &'static str,
    /// The package of QEMU, and its program.
    package: &'static str,
    program: &'static str,
    /// A package that depends on the current kernel, and its suite.
    kernel: &'static str,
    suite: &'static str,
    options: &'static [&'static str],
    /// A package with firmware, and its file; without, QEMU has none.
    firmware: Option<(&'static str, &'static str)>,
    /// Arguments of the kernel: its code stays as it is at the begin, and where it is.
    arguments: &'static str,
}

const ARM: Kind = Kind {
    architecture: "arm64",
    package: "qemu-system-arm",
    program: "qemu-system-aarch64",
    kernel: "linux-image-arm64",
    suite: "bookworm",
    options: &["-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"],
    firmware: None,
    arguments: "console=ttyAMA0 nokaslr kpti=off norandmaps quiet panic=-1",
};

const RISCV: Kind = Kind {
    architecture: "riscv64",
    package: "qemu-system-riscv",
    program: "qemu-system-riscv64",
    kernel: "linux-image-riscv64",
    suite: "trixie",
    options: &["-M", "virt", "-cpu", "rv64"],
    firmware: Some(("opensbi", "usr/lib/riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin")),
    arguments: "console=ttyS0 nokaslr norandmaps quiet panic=-1",
};

/// A machine's parts.
pub struct Machine {
    folder: PathBuf,
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
        let folder = command::target().join("machines").join(kind.architecture);
        let machine = Machine { folder, kind };
        if !machine.kernel().exists() {
            machine.fetch()?;
        }
        Ok(machine)
    }

    fn fetch(&self) -> Outcome {
        let Machine { folder, kind } = self;
        _ = fs::remove_dir_all(folder);
        let qemu = Apt::new(&folder.join("apt/qemu"), Archive::Packages, "amd64", &QEMU_SUITES)?;
        unpack(&qemu.with_all_needed(kind.package, QEMU_SUITES[0])?, &folder.join("qemu"))?;
        if let Some((package, _)) = kind.firmware {
            unpack(&qemu.fetch_alone(&[package.to_owned()])?, &folder.join("qemu"))?;
        }
        let lists = folder.join("apt/kernel");
        let kernels = Apt::new(&lists, Archive::Packages, kind.architecture, &[kind.suite])?;
        let unpacked = folder.join("unpacked");
        unpack(&kernels.fetch_alone(&kernels.needed(kind.kernel)?)?, &unpacked)?;
        fs::rename(entry(unpacked.join("boot"), "vmlinu")?, self.kernel())?;
        _ = fs::remove_dir_all(unpacked);
        _ = fs::remove_dir_all(folder.join("apt"));
        Ok(())
    }

    fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The emulator of two processors that boots with this as the first process and only one. It
    /// ends when the process switches the machine off. `work` is a folder for files.
    ///
    /// # Errors
    /// The program can't be read, or nothing be written.
    pub fn boot(&self, first: &Path, work: &Path) -> Outcome<Command> {
        let initramfs = work.join("initramfs");
        fs::write(&initramfs, archive(&fs::read(first)?))?;
        let root = self.folder.join("qemu");
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        // The libraries of the package's suite, and so its loader, as this system's may be older.
        let mut qemu = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        qemu.arg("--library-path").arg(libraries).arg(root.join("usr/bin").join(self.kind.program));
        qemu.arg("-L").arg(root.join("usr/share/qemu")).args(self.kind.options);
        if let Some((_, file)) = self.kind.firmware {
            qemu.arg("-bios").arg(root.join(file));
        }
        qemu.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "512M", "-nodefaults", "-no-reboot"]);
        qemu.args(["-display", "none", "-serial", "stdio", "-append", self.kind.arguments]);
        qemu.arg("-kernel").arg(self.kernel()).arg("-initrd").arg(initramfs);
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
