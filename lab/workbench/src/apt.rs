//! An apt of our own: the system's lists, sources and packages do not change, and no privilege is needed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    command::{self, quietly},
};

/// Debian's archive; the name of a suite follows.
const ARCHIVE: &str =
    "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian";

/// What is fetched from the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Archive {
    /// Built packages.
    Packages,
    /// The sources of packages.
    Sources,
}

/// An apt with separate folders.
pub(crate) struct Apt {
    folder: PathBuf,
    /// The architecture of the packages.
    architecture: String,
}

impl Apt {
    /// An apt with up-to-date lists of these suites of the archive.
    pub(crate) fn new(folder: &Path, archive: Archive, architecture: &str, suites: &[&str]) -> Outcome<Apt> {
        let folders = [
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/sources.list.d",
        ];
        for path in folders {
            fs::create_dir_all(folder.join(path))?;
        }
        fs::write(folder.join("status"), "")?;
        let kind = match archive {
            Archive::Packages => "deb",
            Archive::Sources => "deb-src",
        };
        let sources: Vec<String> =
            suites.iter().map(|suite| format!("{kind} {ARCHIVE} {suite} main\n")).collect();
        fs::write(folder.join("etc/sources.list"), sources.concat())?;
        // The system's proxies stay in use.
        let system = Path::new("/etc/apt/apt.conf.d");
        for entry in fs::read_dir(system).into_iter().flatten().flatten() {
            let link = folder.join("etc/apt.conf.d").join(entry.file_name());
            if entry.file_name().to_string_lossy().contains("proxy") && !link.exists() {
                symlink(entry.path(), link)?;
            }
        }
        let apt = Apt { folder: folder.to_owned(), architecture: architecture.to_owned() };
        quietly(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("DEBIAN_FRONTEND", "noninteractive");
        let folders = [
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc", "etc"),
            ("Dir::Etc::sourcelist", "etc/sources.list"),
            ("Dir::Etc::sourceparts", "etc/sources.list.d"),
            ("Dir::Etc::parts", "etc/apt.conf.d"),
        ];
        for (option, path) in folders {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(path).display()));
        }
        // The user as which apt fetches may not be able to read the folder.
        let settings = ["APT::Sandbox::User=", "Acquire::Languages=none", "Debug::NoLocking=1"];
        settings.iter().for_each(|option| _ = command.arg("-o").arg(option));
        for option in ["APT::Architecture", "APT::Architectures"] {
            command.arg("-o").arg(format!("{option}={}", self.architecture));
        }
        command
    }

    /// Fetches packages with all their dependencies, and returns the files of all.
    pub(crate) fn with_all_needed(&self, names: &[&str], suite: &str) -> Outcome<Vec<PathBuf>> {
        eprintln!("fetching {} of {suite}, and the libraries that they need", names.join(", "));
        let mut install = self.command("apt-get");
        install.args([
            "-qq",
            "--yes",
            "--download-only",
            "--no-install-recommends",
            "--target-release",
            suite,
        ]);
        quietly(install.arg("install").args(names).stdout(Stdio::null()))?;
        packages(&self.folder.join("cache/archives"))
    }

    /// The names of the packages that a package depends on, without their own dependencies.
    pub(crate) fn needed(&self, package: &str) -> Outcome<Vec<String>> {
        let depends = command::capture(self.command("apt-cache").args(["depends", package]))?;
        let needed = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(needed.map(str::to_owned).collect())
    }

    /// Fetches these packages without those that they depend on, and returns their files.
    pub(crate) fn fetch_alone(&self, names: &[String]) -> Outcome<Vec<PathBuf>> {
        eprintln!("fetching {}", names.join(", "));
        quietly(self.command("apt-get").args(["-qq", "download"]).args(names))?;
        packages(&self.folder)
    }

    /// Fetches the sources of a package as its authors released them, and returns their archive.
    pub(crate) fn source(&self, package: &str) -> Outcome<PathBuf> {
        eprintln!("fetching the sources of {package}");
        quietly(self.command("apt-get").args(["-qq", "source", "--download-only", package]))?;
        let mut entries = fs::read_dir(&self.folder)?.flatten().map(|entry| entry.path());
        let is_original = |path: &PathBuf| path.to_string_lossy().contains(".orig.tar.");
        entries.find(is_original).ok_or_else(|| format!("apt-get fetched no sources of {package}").into())
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

/// Unpacks packages into a folder, without installing them.
pub(crate) fn unpack(packages: &[PathBuf], into: &Path) -> Outcome {
    fs::create_dir_all(into)?;
    let extract = |package| quietly(Command::new("dpkg-deb").arg("--extract").arg(package).arg(into));
    packages.iter().try_for_each(extract)
}
