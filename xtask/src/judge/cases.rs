//! `cargo xtask judge cases [NAME]…`: what the cases in `fixtures/pt` decode to, against libipt and perf.

use std::{fs, process::Command};

use crate::{
    Outcome,
    command::{self, cargo},
    setup::{self, Need},
};

/// Judges every case, or those that are named.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let folder = command::target().join("judge");
    fs::create_dir_all(&folder)?;
    let libipt = folder.join("libipt");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&libipt);
    command::run(gcc.arg(command::root().join("lab/judges/libipt.c")).arg("-lipt"))?;
    let mut judge = cargo(&["run", "-q", "-p", "hodo-cases", "--bin", "judge-cases", "--"]);
    command::run(judge.arg(libipt).arg("fixtures/pt").args(names))
}
