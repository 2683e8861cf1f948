//! Clean systems: folders with a minimal installation, in which scripts run as root.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use workbench::{Outcome, command};

/// A distribution whose packages can be fetched.
#[derive(Clone, Copy)]
pub(crate) struct System {
    /// Its name in Debian's and Ubuntu's archives.
    pub(super) name: &'static str,
    mirror: &'static str,
    components: &'static str,
    /// The keys that its archive is signed with.
    keys: &'static str,
}

const DEBIAN: System = System {
    name: "",
    mirror: "http://deb.debian.org/debian",
    components: "main",
    keys: "/usr/share/keyrings/debian-archive-keyring.gpg",
};

/// Debian 13.
pub(crate) const DEBIAN_13: System = System { name: "trixie", ..DEBIAN };

/// The systems in which packages are tried: Debian 12 and 13, Ubuntu 24.04.
pub(super) const SYSTEMS: [System; 3] = [
    System { name: "bookworm", ..DEBIAN },
    DEBIAN_13,
    System {
        name: "noble",
        mirror: "http://archive.ubuntu.com/ubuntu",
        components: "main universe",
        keys: "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
    },
];

/// A clean system, which is deleted with the value.
pub(super) struct Root(pub(super) PathBuf);

impl Root {
    /// Makes an empty folder for a system of this name.
    pub(super) fn empty(name: &str) -> Outcome<Root> {
        let root = Root(command::target().join("trial").join(name));
        root.delete();
        fs::create_dir_all(&root.0)?;
        Ok(root)
    }

    /// Installs a minimal system.
    pub(super) fn new(system: System) -> Outcome<Root> {
        let root = Root::empty(system.name)?;
        fs::remove_dir(&root.0)?;
        // The lists of packages stay, for those that are installed later.
        install(system, &root.0, &["--skip=cleanup/apt/lists"])?;
        Ok(root)
    }

    /// Runs a script in it, without the variables of this process. Shows what it logged, if it fails.
    pub(super) fn shell(&self, script: &str, argument: &str) -> Outcome {
        let script = format!("set -e\ntrap 'test $? = 0 || cat /root/log >&2' EXIT\n: > /root/log\n{script}");
        // What is mounted is gone with the process.
        let inside = r#"mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh -c "$2" sh "$3""#;
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "/bin/sh", "-c", inside, "sh"]).arg(&self.0);
        shell.args([&script, argument]).stdin(Stdio::null());
        shell.env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        shell.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        command::quietly(&mut shell)
    }

    /// Copies a file into `/root`; returns its path there.
    pub(super) fn receive(&self, file: &Path) -> Outcome<String> {
        let name = file.file_name().and_then(OsStr::to_str).ok_or("the file's name is no text")?;
        fs::copy(file, self.0.join("root").join(name))?;
        Ok(format!("/root/{name}"))
    }

    fn delete(&self) {
        if self.0.exists() {
            // Nothing is mounted in it: it has only files.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Whether a system's packages can be fetched from here. apt asks, as it has the machine's proxies.
pub(super) fn is_reachable(system: System) -> Outcome<bool> {
    let folder = tempfile::tempdir()?;
    let mut fetch = Command::new("/usr/lib/apt/apt-helper");
    fetch.args(["-qq", "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=2", "download-file"]);
    fetch
        .arg(format!("{}/dists/{}/InRelease", system.mirror, system.name))
        .arg(folder.path().join("release"));
    Ok(fetch.stdout(Stdio::null()).status()?.success())
}

/// Installs a minimal system in a folder, or as an archive if the path ends with `.tar`; with these options of mmdebstrap.
pub(crate) fn install(system: System, target: &Path, options: &[&str]) -> Outcome {
    let System { name, mirror, components, keys } = system;
    // What it mounts is gone with the process, even if it can't unmount it.
    let mut install = Command::new("unshare");
    install.args(["--mount", "mmdebstrap"]);
    // Ubuntu's minimal system has no apt.
    install.args(["--quiet", "--variant=minbase", "--include=apt"]).args(options);
    let trust = if Path::new(keys).is_file() {
        format!("[signed-by={keys}]")
    } else {
        eprintln!("packages: {keys} is not here, so the signatures of {name}'s packages are not checked");
        "[trusted=yes]".to_owned()
    };
    let source = format!("deb {trust} {mirror} {name} {components}");
    command::run(install.arg(name).arg(target).arg(source))
}
