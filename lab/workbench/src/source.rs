//! Sources of Debian's packages, as their authors released them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    apt::{Apt, Archive},
    command::quietly,
    setup,
};

/// The suite whose sources are fetched.
const SUITE: &str = "bookworm";

/// Fetches the sources of a package and unpacks them in a folder, unless they are there; returns the folder of the sources.
///
/// # Errors
/// The archive can't be reached, or a program fails.
pub fn fetch(package: &str, folder: &Path) -> Outcome<PathBuf> {
    let sources = folder.join("sources");
    if !sources.is_dir() {
        setup::sources()?;
        let fresh = folder.join("fresh");
        _ = fs::remove_dir_all(&fresh);
        fs::create_dir_all(&fresh)?;
        let archive = Apt::new(&folder.join("apt"), Archive::Sources, "amd64", &[SUITE])?.source(package)?;
        quietly(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&fresh))?;
        fs::rename(&fresh, &sources)?;
        fs::remove_dir_all(folder.join("apt"))?;
    }
    // The archive has one folder, which is named after the version.
    let mut entries = fs::read_dir(&sources)?.flatten().map(|entry| entry.path());
    entries.next().ok_or_else(|| format!("{} is empty", sources.display()).into())
}
