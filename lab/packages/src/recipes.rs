//! Recipes of other package managers: a formula of Homebrew and a `PKGBUILD` of the AUR. Both fetch the archive with the static
//! program from the release.

use std::{fs, path::Path, process::Command};

use workbench::{Outcome, command};

use crate::contents::VERSION;

/// The recipes: their names, and texts with places to fill.
const RECIPES: [(&str, &str); 2] =
    [("hodo.rb", include_str!("../recipes/hodo.rb")), ("PKGBUILD", include_str!("../recipes/PKGBUILD"))];

/// Writes the recipes of the packages in a folder, which will be files of a release of this repository.
///
/// # Errors
/// The archive is missing.
pub(crate) fn make(folder: &Path, repository: &str) -> Outcome {
    let archive = format!("hodo-{VERSION}-x86_64-linux-static.tar.gz");
    let sum = sums(folder, &[&archive])?;
    let sum = sum.split_whitespace().next().ok_or("sha256sum printed nothing")?;
    for (name, text) in RECIPES {
        let path = folder.join(name);
        fs::write(&path, filled(text, repository, sum))?;
        println!("{:>10} bytes  {}", fs::metadata(&path)?.len(), path.display());
    }
    Ok(())
}

fn filled(text: &str, repository: &str, sum: &str) -> String {
    text.replace("@VERSION@", VERSION).replace("@REPOSITORY@", repository).replace("@SHA256@", sum)
}

/// Returns the checksums of files of a folder, as `sha256sum` prints them.
pub(crate) fn sums(folder: &Path, names: &[&str]) -> Outcome<String> {
    command::capture(Command::new("sha256sum").arg("--").args(names).current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_stays_empty() {
        for (name, text) in RECIPES {
            let text = filled(text, "https://example.invalid/x", "00ff");
            assert!(!text.contains('@') && text.contains(VERSION) && text.contains("00ff"), "{name}: {text}");
        }
    }
}
