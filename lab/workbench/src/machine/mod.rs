//! `cargo xtask setup --machine`: the parts of a whole emulated machine, in the user's cache.
//!
//! ```text
//! lists of packages (an apt of our own) ──► QEMU's packages, the kernel's ──► unpacked, nothing installed
//! crates of this repository ──────────────► hodo-guest, linked statically
//! ```
//!
//! apt runs with separate folders for all its state, so that the system's lists, sources and packages do not change,
//! and no privilege is needed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    command::{self, cargo, installed, quietly},
};

/// Debian's packages; the name of a suite follows.
const ARCHIVE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian";
/// The suite with QEMU 11.1, and the suite that it is built for.
const QEMU_SUITES: [&str; 2] = ["trixie-backports", "trixie"];
/// A suite with a kernel whose modules are not compressed.
const KERNEL_SUITES: [&str; 1] = ["bookworm"];
const QEMU: &str = "qemu-system-x86";
/// Depends on the current kernel.
const KERNEL: &str = "linux-image-amd64";

/// The folder in which the recorder looks for these parts.
fn folder() -> Outcome<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    let folder = of("HODO_MACHINE").or_else(|| Some(cache?.join("hodo/machine")));
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
    for tool in ["apt-get", "dpkg-deb", "xz"] {
        if !installed(tool) {
            return Err(format!("{tool} is not there; a machine is made of Debian's packages").into());
        }
    }
    let fresh = folder.join("fresh");
    _ = fs::remove_dir_all(&fresh);
    let unpack = |packages: Vec<PathBuf>, part: &str| -> Outcome {
        let into = fresh.join(part);
        fs::create_dir_all(&into)?;
        let extract = |package| quietly(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&into));
        packages.iter().try_for_each(extract)
    };
    unpack(Apt::new(&folder.join("apt/qemu"), &QEMU_SUITES)?.with_all_needed(QEMU, QEMU_SUITES[0])?, "qemu")?;
    unpack(Apt::new(&folder.join("apt/kernel"), &KERNEL_SUITES)?.needed_alone(KERNEL)?, "kernel")?;
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
    let entry = |folder: PathBuf, prefix: &str| -> Outcome<PathBuf> {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut found = entries.flatten().map(|entry| entry.path());
        let is_it =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
        found.find(is_it).ok_or_else(|| format!("{} has no {prefix}…", folder.display()).into())
    };
    let image = fs::read(entry(folder.join("boot"), "vmlinuz")?)?;
    fs::write(folder.join("vmlinux"), unpacked(&image)?)?;
    let merged = folder.join("usr/lib/modules");
    let modules = if merged.exists() { merged } else { folder.join("lib/modules") };
    fs::rename(entry(modules, "")?, folder.join("modules"))?;
    ["boot", "lib", "usr"].iter().for_each(|part| _ = fs::remove_dir_all(folder.join(part)));
    Ok(())
}

/// The kernel within a bzImage, which contains it compressed by xz (Linux, Documentation/arch/x86/boot.rst).
fn unpacked(image: &[u8]) -> Outcome<Vec<u8>> {
    const MAGIC: &[u8] = b"\xfd7zXZ\0";
    let at = image.windows(MAGIC.len()).position(|window| window == MAGIC);
    let at = at.ok_or("the kernel is not packed by xz, as Debian 12's is")?;
    let folder = command::target();
    fs::create_dir_all(&folder)?;
    let packed = folder.join("vmlinux.xz");
    fs::write(&packed, &image[at..])?;
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
        false => Err("what the kernel's image holds is no ELF file".into()),
    }
}

/// An apt with separate folders.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// An apt with up-to-date lists of these suites.
    fn new(folder: &Path, suites: &[&str]) -> Outcome<Apt> {
        let parts = [
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/sources.list.d",
        ];
        for part in parts {
            fs::create_dir_all(folder.join(part))?;
        }
        fs::write(folder.join("status"), "")?;
        let sources: Vec<String> = suites.iter().map(|suite| format!("{ARCHIVE} {suite} main\n")).collect();
        fs::write(folder.join("etc/sources.list"), sources.concat())?;
        // The system's proxies stay in use.
        let system = Path::new("/etc/apt/apt.conf.d");
        for entry in fs::read_dir(system).into_iter().flatten().flatten() {
            let link = folder.join("etc/apt.conf.d").join(entry.file_name());
            if entry.file_name().to_string_lossy().contains("proxy") && !link.exists() {
                symlink(entry.path(), link)?;
            }
        }
        let apt = Apt { folder: folder.to_owned() };
        quietly(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("DEBIAN_FRONTEND", "noninteractive");
        let places = [
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc", "etc"),
            ("Dir::Etc::sourcelist", "etc/sources.list"),
            ("Dir::Etc::sourceparts", "etc/sources.list.d"),
            ("Dir::Etc::parts", "etc/apt.conf.d"),
        ];
        for (option, place) in places {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(place).display()));
        }
        // The user as which apt fetches may not be able to read the folder.
        let others = [
            "APT::Architecture=amd64",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
            "Debug::NoLocking=1",
        ];
        others.iter().for_each(|option| _ = command.arg("-o").arg(option));
        command
    }

    /// Fetches a package with all its dependencies, and returns their files.
    fn with_all_needed(&self, package: &str, suite: &str) -> Outcome<Vec<PathBuf>> {
        eprintln!("fetching {package} of {suite}, and the libraries that it needs");
        let mut install = self.command("apt-get");
        install.args([
            "-qq",
            "--yes",
            "--download-only",
            "--no-install-recommends",
            "--target-release",
            suite,
        ]);
        quietly(install.args(["install", package]).stdout(Stdio::null()))?;
        packages(&self.folder.join("cache/archives"))
    }

    /// Fetches the single dependency of a package, without further dependencies.
    fn needed_alone(&self, package: &str) -> Outcome<Vec<PathBuf>> {
        let depends = command::capture(self.command("apt-cache").args(["depends", package]))?;
        let needed = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let needed = needed.ok_or_else(|| format!("{package} depends on nothing"))?;
        eprintln!("fetching {needed}");
        quietly(self.command("apt-get").args(["-qq", "download", needed]))?;
        packages(&self.folder)
    }
}

/// The packages in a folder.
fn packages(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let mut found: Vec<PathBuf> = entries.filter(is_package).collect();
    found.sort();
    Ok(found)
}
