//! The Python package: its wheel, installed beside the readers of tests, and its tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use workbench::wheel;

use crate::{Outcome, command};

/// What the tests read tables with.
const TOOLS: &str = "pytest==9.2.0 pandas==3.1.1 dask[distributed]==2026.8.0 aiohttp==3.14.5 \
     nbclient==0.11.0 nbconvert==7.17.2 ipykernel==7.4.0 pillow==13.0.0 mypy==2.4.1";

/// What the script of the README imports.
const POLARS: &str = "polars==2.1.0";

/// The virtual environment of tests.
fn environment() -> PathBuf {
    command::target().join("python")
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Installs what the tests read tables with, if it is not there.
pub(crate) fn install_tools() -> Outcome {
    let list = environment().join("tools");
    if !fs::read_to_string(&list).is_ok_and(|known| known == TOOLS) {
        let mut install = pip(&environment().join("bin/python"));
        command::run(install.args(["--only-binary", ":all:"]).args(TOOLS.split(' ')))?;
        fs::write(list, TOOLS)?;
    }
    Ok(())
}

/// Builds the wheel, installs it in the virtual environment of tests, and runs the tests of the package.
pub(crate) fn test() -> Outcome {
    install_tools()?;
    let python = environment().join("bin/python");
    let wheels = command::target().join("wheels");
    let wheel = wheel::build(&command::tested_emulator(), &["--profile", "dev", "--strip"], None, &wheels)?;
    command::run(pip(&python).args(["--no-deps", "--force-reinstall"]).arg(&wheel))?;
    test_alone(&python, &wheel)?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]);
    command::run(tests.arg(command::root().join("python/tests")))
}

/// Runs the script of the README where there is Python, the wheel and what the script imports, and nothing else.
fn test_alone(python: &Path, wheel: &Path) -> Outcome {
    let alone = command::target().join("python-alone");
    command::run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&alone))?;
    let python = alone.join("bin/python");
    command::run(pip(&python).args(["--only-binary", ":all:"]).arg(POLARS).arg(wheel))?;
    let readme = fs::read_to_string(command::root().join("README.md"))?;
    let script = readme.split_once("```python\n").and_then(|(_, rest)| rest.split_once("```"));
    let (script, _) = script.ok_or("README.md has no script in Python")?;
    std::os::unix::fs::symlink(command::root().join("fixtures"), alone.join("fixtures"))?;
    command::run(Command::new(&python).args(["-I", "-c", script]).current_dir(&alone))?;
    let plot = fs::read_to_string(alone.join("functions.svg"))?;
    if plot.starts_with("<svg ") { Ok(()) } else { Err("functions.svg is no picture".into()) }
}
