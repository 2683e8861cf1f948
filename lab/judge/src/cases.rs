//! `cargo judge cases [NAME]…`: decodes the cases in `fixtures/pt` and compares with libipt and perf.

use std::fs;

use super::libipt;
use crate::{
    Outcome,
    command::{self, cargo},
    setup::{self, Need},
};

/// Judges every case, or the named ones.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let folder = command::target().join("judge");
    fs::create_dir_all(&folder)?;
    let libipt = libipt::compile(&folder)?;
    let mut judge = cargo(&["run", "-q", "-p", "hodo-cases", "--bin", "judge-cases", "--"]);
    command::run(judge.arg(libipt).arg("fixtures/pt").args(names))
}
