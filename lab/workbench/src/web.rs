//! The page of `hodo view`: its build and its tests, in `web/`.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    Outcome,
    command::{self, installed},
};

fn folder() -> PathBuf {
    command::root().join("web")
}

fn npm(arguments: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(arguments).current_dir(folder());
    npm
}

/// Runs a script of `web/package.json`; `hodo` is the program that its tests start.
///
/// # Errors
/// The script fails.
pub fn script(name: &str) -> Outcome {
    command::run(npm(&["run", "--silent", name]).env("HODO", command::hodo()))
}

/// Installs what the page needs, as the lock file says, if that has changed.
fn install() -> Outcome {
    if !installed("npm") {
        return Err(
            "npm is missing; on Debian it is in the package npm, and node in nodejs (20 or later)".into()
        );
    }
    let lock = fs::read(folder().join("package-lock.json"))?;
    let kept = folder().join("node_modules/.hodo-lock");
    if fs::read(&kept).is_ok_and(|known| known == lock) {
        return Ok(());
    }
    command::run(&mut npm(&["ci", "--no-fund", "--no-audit", "--loglevel", "error"]))?;
    Ok(fs::write(kept, lock)?)
}

/// Builds the page into `web/dist`, from where the build of `hodo` embeds it. A page that stays the same keeps its
/// time, so that `hodo` is not compiled again.
///
/// # Errors
/// npm is missing, or the build fails.
pub fn build() -> Outcome {
    install()?;
    let page = folder().join("dist/index.html");
    let before = fs::read(&page).and_then(|text| Ok((text, fs::metadata(&page)?.modified()?)));
    script("build")?;
    if let Ok((text, time)) = before
        && fs::read(&page)? == text
    {
        fs::File::options().write(true).open(&page)?.set_modified(time)?;
    }
    Ok(())
}
