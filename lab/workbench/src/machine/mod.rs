//! `cargo xtask setup --machine`: the parts of a whole emulated machine, in the user's cache.
//!
//! ```text
//! lists of packages (an apt of our own) ──► QEMU's packages, the kernel's ──► unpacked, nothing installed
//!                 the kernel's headers, LTTng ──► LTTng's modules, compiled
//! crates of this repository ──────────────► hodo-guest, linked statically
//! ```

pub mod foreign;
mod lttng;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    apt::{Apt, Archive, unpack},
    command::{self, cargo, installed, quietly},
    setup,
};

/// The suite with QEMU 11.1, and the suite that it is built for.
const QEMU_SUITES: [&str; 2] = ["trixie-backports", "trixie"];
/// A suite with a kernel whose modules are not compressed.
const KERNEL_SUITES: [&str; 1] = ["bookworm"];
const QEMU: &str = "qemu-system-x86";
/// Depends on the current kernel.
const KERNEL: &str = "linux-image-amd64";

/// The folder in which the recorder looks for these parts.
fn folder() -> Outcome<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let folder = variable("HODO_MACHINE").or_else(|| Some(cache?.join("hodo/machine")));
    folder.ok_or_else(|| "neither HODO_MACHINE, XDG_CACHE_HOME nor HOME is set".into())
}

/// Makes sure that everything exists; quick if it does.
///
/// # Errors
/// What is missing, or failed.
pub fn ensure() -> Outcome {
    let folder = folder()?;
    fs::create_dir_all(&folder)?;
    let needed = ["qemu/usr/bin/qemu-system-x86_64", "kernel/vmlinux", "kernel/modules/modules.order"];
    if !needed.iter().all(|path| folder.join(path).exists()) {
        fetch(&folder)?;
    }
    guest(&folder)?;
    println!("setup: a machine is in {}", folder.display());
    Ok(())
}

/// Makes sure that the machine has LTTng, or says why not: all else works without it. Compiling takes minutes.
///
/// # Errors
/// There is no place for a machine.
pub fn ensure_lttng() -> Outcome {
    if let Err(error) = lttng::ensure(&folder()?) {
        println!("setup: it has no LTTng, which --with lttng needs: {error}");
    }
    Ok(())
}

/// Builds the guest's first process, which starts before any library exists.
fn guest(folder: &Path) -> Outcome {
    const FLAGS: [&str; 5] = ["--", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    // A separate folder, as the normally linked program has the same name.
    let target = command::target().join("guest");
    let mut build =
        cargo(&["rustc", "--quiet", "--release", "-p", "hodo-guest", "--bin", "hodo-guest", "--target-dir"]);
    quietly(build.arg(&target).args(FLAGS))?;
    fs::copy(target.join("release/hodo-guest"), folder.join("hodo-guest"))?;
    Ok(())
}

/// Fetches and unpacks all packages. Existing parts are replaced after everything is unpacked.
fn fetch(folder: &Path) -> Outcome {
    for tool in ["apt-get", "dpkg-deb"] {
        if !installed(tool) {
            return Err(format!("{tool} is missing; a machine is made of Debian's packages").into());
        }
    }
    setup::machine()?;
    let fresh = folder.join("fresh");
    _ = fs::remove_dir_all(&fresh);
    let qemu = Apt::new(&folder.join("apt/qemu"), Archive::Packages, "amd64", &QEMU_SUITES)?;
    unpack(&qemu.with_all_needed(QEMU, QEMU_SUITES[0])?, &fresh.join("qemu"))?;
    let kernels = Apt::new(&folder.join("apt/kernel"), Archive::Packages, "amd64", &KERNEL_SUITES)?;
    let current = kernels.needed(KERNEL)?;
    unpack(&kernels.fetch_alone(&current)?, &fresh.join("kernel"))?;
    kernel(&fresh.join("kernel"))?;
    for part in ["qemu", "kernel"] {
        _ = fs::remove_dir_all(folder.join(part));
        fs::rename(fresh.join(part), folder.join(part))?;
    }
    _ = fs::remove_dir_all(fresh);
    _ = fs::remove_dir_all(folder.join("apt"));
    Ok(())
}

/// Moves the kernel and its modules to their final place, and drops the rest of the package.
fn kernel(folder: &Path) -> Outcome {
    let image = fs::read(entry(folder.join("boot"), "vmlinuz")?)?;
    fs::write(folder.join("vmlinux"), unpacked(&image)?)?;
    let merged = folder.join("usr/lib/modules");
    let modules = if merged.exists() { merged } else { folder.join("lib/modules") };
    fs::rename(entry(modules, "")?, folder.join("modules"))?;
    ["boot", "lib", "usr"].iter().for_each(|part| _ = fs::remove_dir_all(folder.join(part)));
    Ok(())
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
