//! `cargo xtask setup --machine`: what a whole emulated machine is made of, in the user's cache.
//!
//! ```text
//! lists of packages (an apt of our own) ──► QEMU's packages, the kernel's ──► unpacked, nothing installed
//! crates of this repository ──────────────► hodo-guest, linked statically
//! ```
//!
//! apt is started with folders of our own for all that it keeps, so that the system's lists, sources and packages
//! stay as they are; it needs no privilege so.

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

/// Debian's packages of a suite.
const ARCHIVE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian";
/// The suite that has QEMU 11.1, and the one that it is made for.
const QEMU_SUITES: [&str; 2] = ["trixie-backports", "trixie"];
/// A suite with a kernel whose modules are not packed.
const KERNEL_SUITES: [&str; 1] = ["bookworm"];
const QEMU: &str = "qemu-system-x86";
/// Depends on the kernel of the day.
const KERNEL: &str = "linux-image-amd64";

/// The folder that the recorder looks into: see there.
fn folder() -> Outcome<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    let folder = of("HODO_MACHINE").or_else(|| Some(cache?.join("hodo/machine")));
    folder.ok_or_else(|| "neither HODO_MACHINE, XDG_CACHE_HOME nor HOME is set".into())
}

/// Makes sure that everything is there; quick when it is.
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

/// Builds the guest's first process. It starts before there are libraries.
fn guest(folder: &Path) -> Outcome {
    const FLAGS: [&str; 5] = ["--", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    // A folder of its own: what is linked otherwise has the same name.
    let target = command::target().join("guest");
    let mut build =
        cargo(&["rustc", "--quiet", "--release", "-p", "hodo-guest", "--bin", "hodo-guest", "--target-dir"]);
    quietly(build.arg(&target).args(FLAGS))?;
    fs::copy(target.join("release/hodo-guest"), folder.join("hodo-guest"))?;
    Ok(())
}

/// Fetches and unpacks all packages. What is there is replaced when all of it is unpacked.
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

/// Puts the kernel and its modules where they are looked for, and drops the rest of its package.
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

/// The kernel within a bzImage, which holds it packed by xz (Linux, Documentation/arch/x86/boot.rst).
fn unpacked(image: &[u8]) -> Outcome<Vec<u8>> {
    const MAGIC: &[u8] = b"\xfd7zXZ\0";
    let at = image.windows(MAGIC.len()).position(|window| window == MAGIC);
    let at = at.ok_or("the kernel is not packed by xz, as Debian 12's is")?;
    let folder = command::target();
    fs::create_dir_all(&folder)?;
    let packed = folder.join("vmlinux.xz");
    fs::write(&packed, &image[at..])?;
    let mut xz = Command::new("xz");
    // What follows the packed kernel in the image is none of xz's.
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

/// An apt with folders of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// With up-to-date lists of these suites.
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
        // The system's proxies are kept.
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
        // The folder need not be readable for the user that apt fetches as.
        let others = [
            "APT::Architecture=amd64",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
            "Debug::NoLocking=1",
        ];
        others.iter().for_each(|option| _ = command.arg("-o").arg(option));
        command
    }

    /// Fetches a package with all that it needs, and gives their files.
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

    /// Fetches the one package that a package depends on, by itself.
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
