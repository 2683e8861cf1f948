//! The Python package: its wheel, installed beside the readers of tests, and its tests.

use std::{fs, path::Path, process::Command};

use workbench::wheel;

use crate::{Outcome, command};

/// What the tests read tables with.
const TOOLS: &str = "pytest==9.2.0 pandas==3.1.1 dask[distributed]==2026.8.0 aiohttp==3.14.5 \
     nbclient==0.11.0 nbconvert==7.17.2 ipykernel==7.4.0 pillow==13.0.0";

/// What the script of the README imports.
const POLARS: &str = "polars==2.1.0";

/// Builds the wheel, installs it in the virtual environment of tests, and runs the tests of the package.
pub(crate) fn test() -> Outcome {
    let folder = command::target().join("python");
    let python = folder.join("bin/python");
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
    let wheels = command::target().join("wheels");
    let wheel = wheel::build(&command::tested_emulator(), &["--profile", "dev", "--strip"], None, &wheels)?;
    command::run(pip().args(["--no-deps", "--force-reinstall"]).arg(&wheel))?;
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
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    command::run(pip.arg(POLARS).arg(wheel))?;
    let readme = fs::read_to_string(command::root().join("README.md"))?;
    let script = readme.split_once("```python\n").and_then(|(_, rest)| rest.split_once("```"));
    let (script, _) = script.ok_or("README.md has no script in Python")?;
    std::os::unix::fs::symlink(command::root().join("fixtures"), alone.join("fixtures"))?;
    command::run(Command::new(&python).args(["-I", "-c", script]).current_dir(&alone))?;
    let plot = fs::read_to_string(alone.join("functions.svg"))?;
    if plot.starts_with("<svg ") { Ok(()) } else { Err("functions.svg is no picture".into()) }
}
