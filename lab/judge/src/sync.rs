//! `cargo judge sync`: records boards, puts their clocks on one timeline, and compares it with the true time that each
//! event contains; then does the same with simulated clocks that are slewed. `bin/clocks` does the work.

use crate::Outcome;
use workbench::{board, command};

/// Runs with these arguments; the error names the violated promises.
pub(super) fn run(arguments: &[String]) -> Outcome {
    board::ensure()?;
    let mut judge = command::cargo(&["run", "--quiet", "--package", "judge", "--bin", "hodo-clocks", "--"]);
    command::run(judge.args(arguments).current_dir("."))
}
