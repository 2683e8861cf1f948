//! The Python package: its wheel, installed beside the readers of tests, and its tests.

use std::{fs, process::Command};

use crate::{Outcome, command};

/// What builds the wheel, and what its tests read tables with.
const TOOLS: &str = "maturin==1.16.0 pytest==9.2.0 pandas==3.1.1 dask[distributed]==2026.8.0";

/// Builds the wheel, installs it in the virtual environment of tests, and runs the tests of the package.
pub(crate) fn test() -> Outcome {
    let folder = command::target().join("python");
    let (python, wheels) = (folder.join("bin/python"), command::target().join("wheels"));
    let list = folder.join("tools");
    let pip = || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip
    };
    if !fs::read_to_string(&list).is_ok_and(|known| known == TOOLS) {
        command::run(pip().args(["--only-binary", ":all:"]).args(TOOLS.split(' ')))?;
        fs::write(list, TOOLS)?;
    }
    // Another version's wheel would be installed too.
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut build = Command::new(folder.join("bin/maturin"));
    build.args(["build", "--quiet", "--profile", "dev", "--strip", "--manifest-path"]);
    build.arg(command::root().join("python/Cargo.toml")).arg("--interpreter").arg(&python);
    command::run(build.arg("--out").arg(&wheels))?;
    for wheel in fs::read_dir(&wheels)? {
        command::run(pip().args(["--no-deps", "--force-reinstall"]).arg(wheel?.path()))?;
    }
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]);
    command::run(tests.arg(command::root().join("python/tests")))
}
