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

/// Where packages come from: QEMU 11.1, and a kernel whose modules are not compressed.
const SOURCES: &str = "\
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie-backports main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
";
const QEMU: &str = "qemu-system-x86/trixie-backports";
const KERNEL: &str = "linux-image-amd64/bookworm";

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
pub(crate) fn ensure() -> Outcome {
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
    let apt = Apt::new(&folder.join("apt"))?;
    quietly(&mut apt.command(&["update"]))?;
    let packages = apt.fetch(&[QEMU, KERNEL])?;
    let fresh = folder.join("fresh");
    _ = fs::remove_dir_all(&fresh);
    for package in packages {
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let into = fresh.join(if name.starts_with("linux-image") { "kernel" } else { "qemu" });
        // Parts of the kernel's packages that only an installed system needs stay out.
        if name.starts_with("linux-") && !name.starts_with("linux-image-") {
            continue;
        }
        fs::create_dir_all(&into)?;
        quietly(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&into))?;
    }
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
    fn new(folder: &Path) -> Outcome<Apt> {
        for part in [
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/sources.list.d",
        ] {
            fs::create_dir_all(folder.join(part))?;
        }
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("etc/sources.list"), SOURCES)?;
        // The system's proxies are kept.
        let system = Path::new("/etc/apt/apt.conf.d");
        for entry in fs::read_dir(system).into_iter().flatten().flatten() {
            let link = folder.join("etc/apt.conf.d").join(entry.file_name());
            if entry.file_name().to_string_lossy().contains("proxy") && !link.exists() {
                symlink(entry.path(), link)?;
            }
        }
        Ok(Apt { folder: folder.to_owned() })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        command.args(words).arg("-qq").stdout(Stdio::null()).env("DEBIAN_FRONTEND", "noninteractive");
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

    /// Fetches packages with all that they need, and gives their files.
    fn fetch(&self, packages: &[&str]) -> Outcome<Vec<PathBuf>> {
        let mut words = vec!["install", "--yes", "--download-only", "--no-install-recommends"];
        words.extend(packages);
        eprintln!("$ apt-get {} (with folders of its own)", words.join(" "));
        quietly(&mut self.command(&words))?;
        let entries = fs::read_dir(self.folder.join("cache/archives"))?.flatten().map(|entry| entry.path());
        let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
        let mut found: Vec<PathBuf> = entries.filter(is_package).collect();
        found.sort();
        Ok(found)
    }
}
