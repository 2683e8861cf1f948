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

/// Runs a script of `web/package.json`; its tests start the `hodo` that `cargo test` builds.
///
/// # Errors
/// The script fails.
pub fn script(name: &str) -> Outcome {
    let mut script = npm(&["run", "--silent", name]);
    script.env("HODO", command::tested_hodo()).env("HODO_EMULATOR", command::tested_emulator());
    command::run(&mut script)
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

/// The page that `hodo` embeds; it is part of the source, as a build of `hodo` must not need npm.
fn embedded() -> PathBuf {
    command::root().join("crates/server/page.html")
}

/// Builds the page into the source of `crates/server`.
///
/// # Errors
/// npm is missing, or the build fails.
pub fn build() -> Outcome {
    let page = built()?;
    // A file that stays the same keeps its time, so that `hodo` is not compiled again.
    if fs::read(embedded()).is_ok_and(|known| known == page) {
        return Ok(());
    }
    Ok(fs::write(embedded(), page)?)
}

/// Checks that the embedded page is what the build makes of `web/` today.
///
/// # Errors
/// It is not, npm is missing, or the build fails.
pub fn is_current() -> Outcome {
    if fs::read(embedded())? == built()? {
        return Ok(());
    }
    Err("crates/server/page.html is not the page of web/: run `cargo xtask web`, and commit the page".into())
}

/// Builds the page and returns its bytes.
fn built() -> Outcome<Vec<u8>> {
    install()?;
    script("build")?;
    Ok(fs::read(folder().join("dist/index.html"))?)
}
