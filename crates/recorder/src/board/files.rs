//! Finds the programs of a board, in the cache that `cargo xtask setup --board` fills, and the emulators.
//!
//! ```text
//! hodo-board-master    the master's daemon        slave-riscv64.elf, slave-cortex-m3.elf    the slaves' programs
//! master.tsdl, slave.tsdl    metadata of their traces
//! ```

use std::path::PathBuf;

use crate::{
    Error,
    emulate::{find_in_path, set_up_folder},
};

/// The environment variable with the cache's path, if it is elsewhere.
const VARIABLE: &str = "HODO_BOARD";

/// A kind of slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Riscv64,
    CortexM3,
}

impl Kind {
    pub(super) fn emulator(self) -> &'static str {
        match self {
            Kind::Riscv64 => "qemu-system-riscv64",
            Kind::CortexM3 => "qemu-system-arm",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Kind::Riscv64 => "qemu-system-misc (Debian 12; qemu-system-riscv in later ones)",
            Kind::CortexM3 => "qemu-system-arm",
        }
    }

    pub(super) fn program(self) -> &'static str {
        match self {
            Kind::Riscv64 => "slave-riscv64.elf",
            Kind::CortexM3 => "slave-cortex-m3.elf",
        }
    }
}

/// Returns the folder with the programs and metadata.
pub(super) fn find(kinds: &[Kind]) -> Result<PathBuf, Error> {
    let folder = set_up_folder(VARIABLE, "hodo/board")
        .ok_or_else(|| missing("neither HODO_BOARD, XDG_CACHE_HOME nor HOME is set"))?;
    let programs = kinds.iter().map(|kind| kind.program());
    for name in ["hodo-board-master", "master.tsdl", "slave.tsdl"].into_iter().chain(programs) {
        let path = folder.join(name);
        if !path.exists() {
            return Err(missing(&format!("{} is not there", path.display())));
        }
    }
    for kind in kinds {
        if find_in_path(kind.emulator().as_ref()).is_none() {
            let (emulator, package) = (kind.emulator(), kind.package());
            return Err(missing(&format!(
                "{emulator} not found; on Debian and Ubuntu it is in the package {package}"
            )));
        }
    }
    Ok(folder)
}

fn missing(what: &str) -> Error {
    Error::Missing(format!(
        "a board needs emulators, and programs for its master and slaves: {what}. `cargo xtask setup --board` installs the \
         packages and builds the programs"
    ))
}
