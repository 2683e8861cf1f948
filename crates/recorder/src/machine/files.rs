//! The files of a machine: the cache that `cargo xtask setup --machine` fills.
//!
//! ```text
//! qemu/              QEMU's packages, unpacked, with their own dynamic loader and libraries
//! kernel/vmlinux     the guest's kernel
//! kernel/modules/    its modules, in the layout of its package
//! kernel/lttng/      LTTng's modules for it, if they were built
//! hodo-guest         the guest's first process
//! aarch64/, riscv64/ the same for other processors, but QEMU
//! ```

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use super::kind::Kind;
use crate::{Error, emulate::set_up_folder};

/// The paths of these files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(super) kind: &'static Kind,
    folder: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) modules: PathBuf,
    /// May not exist.
    pub(crate) lttng: PathBuf,
    pub(crate) init: PathBuf,
}

/// The environment variable with the cache's path, if it is elsewhere.
const VARIABLE: &str = "HODO_MACHINE";
/// Debian's library folder.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";
/// The oldest major version of QEMU with the plugin interface that the emulated processors need.
const OLDEST: u32 = 11;

impl Files {
    pub(super) fn find(kind: &'static Kind) -> Result<Files, Error> {
        let folder = set_up_folder(VARIABLE, "hodo/machine")
            .ok_or_else(|| missing(kind, "neither HODO_MACHINE, XDG_CACHE_HOME nor HOME is set"))?;
        let parts = folder.join(kind.folder);
        let files = Files {
            kind,
            kernel: parts.join(kind.kernel),
            modules: parts.join("kernel/modules"),
            lttng: parts.join("kernel/lttng"),
            init: init(&parts, kind),
            folder,
        };
        let needed =
            [files.kernel.clone(), files.modules.clone(), files.init.clone(), files.qemu(), files.loader()];
        match needed.iter().find(|path| !path.exists()) {
            Some(path) => Err(missing(kind, &format!("{} is not there", path.display()))),
            None => Ok(files),
        }
    }

    fn qemu(&self) -> PathBuf {
        self.folder.join("qemu/usr/bin").join(self.kind.qemu)
    }

    fn loader(&self) -> PathBuf {
        self.folder.join("qemu").join(LIBRARIES).join(LOADER)
    }

    /// A command that starts QEMU with the libraries of its own packages.
    pub(crate) fn command(&self) -> Command {
        let root = self.folder.join("qemu");
        let libraries = root.join(LIBRARIES);
        let mut command = Command::new(self.loader());
        let mut path = OsString::from(&libraries);
        path.push(":");
        path.push(root.join("lib/x86_64-linux-gnu"));
        command.arg("--library-path").arg(path).arg(self.qemu());
        for folder in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(root.join(folder));
        }
        if let Some(firmware) = self.kind.firmware {
            command.arg("-bios").arg(root.join(firmware));
        }
        command
    }

    /// The name and version of QEMU.
    ///
    /// # Errors
    /// It does not start, or is too old.
    pub(crate) fn version(&self) -> Result<String, Error> {
        let output = self.command().arg("--version").output().map_err(Error::file(&self.loader()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.split_whitespace().skip_while(|&word| word != "version").nth(1);
        let major = number.and_then(|number| number.split('.').next()?.parse::<u32>().ok());
        match number {
            Some(number) if major.is_some_and(|major| major < OLDEST) => Err(missing(
                self.kind,
                &format!(
                    "{} is version {number}, which is too old; remove {}",
                    self.qemu().display(),
                    self.folder.display()
                ),
            )),
            Some(number) => Ok(format!("{} {number}", self.kind.qemu)),
            None => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(missing(self.kind, &format!("{} does not start ({said})", self.qemu().display())))
            }
        }
    }
}

/// The guest's first process: the one installed with this program, else the one in the cache.
fn init(folder: &Path, kind: &Kind) -> PathBuf {
    const NAME: &str = "hodo-guest";
    if !kind.folder.is_empty() {
        return folder.join(NAME);
    }
    let beside =
        std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("../lib/hodo").join(NAME)));
    beside.filter(|path| path.exists()).unwrap_or_else(|| folder.join(NAME))
}

fn missing(kind: &Kind, what: &str) -> Error {
    Error::Missing(format!(
        "a whole machine needs QEMU 11.1 and a kernel of its own: {what}. `cargo xtask setup {}` fetches them into the \
         user's cache, and installs nothing",
        kind.setup
    ))
}
