//! `cargo xtask setup --machine [ARCHITECTURE]`: the parts of a whole emulated machine, in the user's cache.
//!
//! ```text
//! lists of packages (an apt of our own) ──► QEMU's packages, the kernel's ──► unpacked, nothing installed
//!                 the kernel's headers, LTTng ──► LTTng's modules, compiled (x86-64 only)
//! crates of this repository ──────────────► hodo-guest, linked statically
//! ```
//!
//! The folder of machines:
//!
//! ```text
//! qemu/                                   QEMU's packages for all architectures that were set up
//! kernel/{vmlinux,modules/,lttng/}        x86-64: the kernel, its modules, LTTng's
//! hodo-guest                              x86-64: the first process
//! ARCHITECTURE/kernel/{vmlinuz,modules/}  the same for aarch64 and riscv64
//! ARCHITECTURE/hodo-guest
//! ```

mod architecture;
pub mod foreign;
mod lttng;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::{
    Outcome,
    apt::{Apt, Archive, unpack},
    command::{self, cargo, installed, quietly},
    setup,
};
use architecture::{ARCHITECTURES, Architecture, Cross, X86_64, emulators};

/// The suite with QEMU 11.1, and the suite that it is built for.
const QEMU_SUITES: [&str; 2] = ["trixie-backports", "trixie"];
/// The architecture of QEMU itself.
const HOST: &str = X86_64.debian;

/// The folder in which the recorder looks for these parts.
fn folder() -> Outcome<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let folder = variable("HODO_MACHINE").or_else(|| Some(cache?.join("hodo/machine")));
    folder.ok_or_else(|| "neither HODO_MACHINE, XDG_CACHE_HOME nor HOME is set".into())
}

/// Makes sure that everything of a machine for x86-64 exists; quick if it does.
///
/// # Errors
/// What is missing, or failed.
pub fn ensure() -> Outcome {
    ensure_for(X86_64.name)
}

/// Makes sure that everything of a machine for this architecture exists, as [`ensure`].
///
/// # Errors
/// There is no such architecture; and as [`ensure`].
pub fn ensure_for(name: &str) -> Outcome {
    let architecture = ARCHITECTURES.into_iter().find(|architecture| architecture.name == name);
    let architecture = architecture.ok_or_else(|| {
        let names = ARCHITECTURES.map(|architecture| architecture.name).join(", ");
        format!("there is no machine for `{name}`; there is one for each of {names}")
    })?;
    let machines = ensure_packages(architecture)?;
    guest(&machines, architecture)?;
    println!("setup: a machine for {name} is in {}", machines.display());
    Ok(())
}

/// Makes sure that the machine for x86-64 has LTTng, or says why not: all else works without it. Compiling takes minutes.
///
/// # Errors
/// There is no place for a machine.
pub fn ensure_lttng() -> Outcome {
    let machines = folder()?;
    let _lock = lock(&machines)?;
    if let Err(error) = lttng::ensure(&machines) {
        println!("setup: it has no LTTng, which --with lttng needs: {error}");
    }
    Ok(())
}

/// Makes sure that all that is made of packages exists, and returns the folder of machines.
fn ensure_packages(architecture: &Architecture) -> Outcome<PathBuf> {
    let machines = folder()?;
    fs::create_dir_all(&machines)?;
    let _lock = lock(&machines)?;
    let (has_emulator, has_kernel) =
        (architecture.has_emulator(&machines), architecture.has_kernel(&machines));
    if has_emulator && has_kernel {
        return Ok(machines);
    }
    for tool in ["apt-get", "dpkg-deb"] {
        if !installed(tool) {
            return Err(format!("{tool} is missing; a machine is made of Debian's packages").into());
        }
    }
    setup::machine()?;
    let (fresh, lists) = (machines.join("fresh"), machines.join("apt"));
    _ = fs::remove_dir_all(&fresh);
    if !has_emulator {
        fetch_emulators(&machines, &fresh, architecture)?;
    }
    if !has_kernel {
        fetch_kernel(&machines, &fresh, architecture)?;
    }
    _ = fs::remove_dir_all(fresh);
    _ = fs::remove_dir_all(lists);
    Ok(machines)
}

/// Waits until no other process fetches machines, for as long as the file is open: they would use the same folders.
fn lock(machines: &Path) -> Outcome<File> {
    let file = File::create(machines.join("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Fetches QEMU for this architecture, and again for those that are there: all must be of one version, as they share
/// libraries.
fn fetch_emulators(machines: &Path, fresh: &Path, architecture: &Architecture) -> Outcome {
    let is_wanted = |other: &&Architecture| other.name == architecture.name || other.has_emulator(machines);
    let wanted = ARCHITECTURES.into_iter().filter(is_wanted);
    let packages: Vec<&str> = wanted.flat_map(Architecture::emulator_packages).collect();
    let apt = Apt::new(&machines.join("apt/qemu"), Archive::Packages, HOST, &QEMU_SUITES)?;
    let root = fresh.join("qemu");
    unpack(&apt.with_all_needed(&packages, QEMU_SUITES[0])?, &root)?;
    replace(&root, &emulators(machines), fresh)
}

/// Fetches the kernel and its modules.
fn fetch_kernel(machines: &Path, fresh: &Path, architecture: &Architecture) -> Outcome {
    let Architecture { debian, kernel, suite, .. } = architecture;
    let apt = Apt::new(&machines.join("apt/kernel"), Archive::Packages, debian, &[suite])?;
    let new = architecture.kernel_folder(fresh);
    unpack(&apt.fetch_alone(&apt.needed(kernel)?)?, &new)?;
    arrange_kernel(&new, &architecture.kernel_path(fresh))?;
    fs::create_dir_all(architecture.folder(machines))?;
    replace(&new, &architecture.kernel_folder(machines), fresh)
}

/// Moves a complete new folder to the place of an old one, which is removed with `fresh`: what uses the machine in the
/// meantime finds either.
fn replace(new: &Path, old: &Path, fresh: &Path) -> Outcome {
    if old.exists() {
        fs::rename(old, fresh.join("old"))?;
    }
    fs::rename(new, old)?;
    _ = fs::remove_dir_all(fresh.join("old"));
    Ok(())
}

/// Builds the guest's first process, which starts before any library exists.
fn guest(machines: &Path, architecture: &Architecture) -> Outcome {
    const FLAGS: [&str; 5] = ["--", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    // A separate folder, as the normally linked program has the same name.
    let target = command::target().join("guest");
    let mut build =
        cargo(&["rustc", "--quiet", "--release", "-p", "hodo-guest", "--bin", "hodo-guest", "--target-dir"]);
    build.arg(&target);
    let mut folder = target;
    if let Some(cross) = &architecture.cross {
        prepare_cross(cross)?;
        let variable = cross.target.to_uppercase().replace('-', "_");
        build.args(["--target", cross.target]).env(format!("CARGO_TARGET_{variable}_LINKER"), cross.linker);
        folder.push(cross.target);
    }
    quietly(build.args(FLAGS))?;
    fs::copy(folder.join("release/hodo-guest"), architecture.folder(machines).join("hodo-guest"))?;
    Ok(())
}

/// Makes sure that programs for another architecture can be built: its linker, its C library, and Rust's libraries.
fn prepare_cross(cross: &Cross) -> Outcome {
    setup::machine_linker(cross.linker, cross.packages)?;
    if !installed("rustup") {
        return Err(format!("rustup is missing; it adds Rust's libraries for {}", cross.target).into());
    }
    let mut rustup = Command::new("rustup");
    // In the repository, as that has a toolchain of its own.
    rustup.args(["--quiet", "target", "add", cross.target]).current_dir(command::root());
    quietly(&mut rustup)
}

/// Moves the kernel and its modules to their final place in the folder of their package, and drops the rest of it.
fn arrange_kernel(folder: &Path, image: &Path) -> Outcome {
    let packed = entry(folder.join("boot"), "vmlinu")?;
    match image.ends_with("vmlinux") {
        true => fs::write(image, unpacked(&fs::read(packed)?)?)?,
        false => fs::rename(packed, image)?,
    }
    let merged = folder.join("usr/lib/modules");
    let modules = if merged.exists() { merged } else { folder.join("lib/modules") };
    fs::rename(entry(modules, "")?, folder.join("modules"))?;
    ["boot", "lib", "usr"].iter().for_each(|part| _ = fs::remove_dir_all(folder.join(part)));
    decompress(&folder.join("modules"))
}

/// Decompresses modules, which the guest's first process loads as they are; `modules.order` has their names without `.xz`.
fn decompress(modules: &Path) -> Outcome {
    let processors = thread::available_parallelism()?;
    let decompress = format!("xargs --null --no-run-if-empty -n 64 -P {processors} xz --decompress");
    let script = format!("find . -name '*.ko.xz' -print0 | {decompress}");
    quietly(Command::new("sh").args(["-c", &script]).current_dir(modules))
}

/// The entry of a folder whose name begins so.
fn entry(folder: PathBuf, prefix: &str) -> Outcome<PathBuf> {
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found = entries.flatten().map(|entry| entry.path());
    let is_wanted =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    found.find(is_wanted).ok_or_else(|| format!("{} has no {prefix}…", folder.display()).into())
}

/// The kernel within a bzImage, which contains it compressed by xz (Linux, Documentation/arch/x86/boot.rst).
fn unpacked(image: &[u8]) -> Outcome<Vec<u8>> {
    const MAGIC: &[u8] = b"\xfd7zXZ\0";
    let start = image.windows(MAGIC.len()).position(|window| window == MAGIC);
    let start = start.ok_or("the kernel is not packed by xz, as Debian 12's is")?;
    let folder = command::target();
    fs::create_dir_all(&folder)?;
    let packed = folder.join("vmlinux.xz");
    fs::write(&packed, &image[start..])?;
    let mut xz = Command::new("xz");
    // The image contains more data after the compressed kernel.
    let output = xz
        .args(["--decompress", "--stdout", "--single-stream"])
        .arg(&packed)
        .stderr(Stdio::null())
        .output()?;
    _ = fs::remove_file(packed);
    match output.stdout.starts_with(b"\x7fELF") {
        true => Ok(output.stdout),
        false => Err("the unpacked kernel is not an ELF file".into()),
    }
}
