//! Sources that crates carry, fetched with cargo.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, command};

/// Fetches crates, each by its name and exact version, into a folder; returns the folder of their folders.
pub(crate) fn fetch<'c>(
    folder: &Path,
    crates: impl IntoIterator<Item = (&'c str, &'c str)>,
) -> Outcome<PathBuf> {
    let project = folder.join("crates");
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/lib.rs"), "")?;
    let mut toml =
        "[workspace]\n[package]\nname = \"sources\"\nversion = \"0.1.0\"\n[dependencies]\n".to_owned();
    for (name, version) in crates {
        toml.push_str(&format!("{name} = \"={version}\"\n"));
    }
    fs::write(project.join("Cargo.toml"), toml)?;
    command::quietly(Command::new("cargo").args(["vendor", "--quiet", "vendor"]).current_dir(&project))?;
    Ok(project.join("vendor"))
}
