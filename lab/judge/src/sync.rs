//! `cargo judge sync`: boards recorded on the spot, their clocks put on one timeline, held against the true time that is
//! in each event. The work is done by `lab/clocks`.

use crate::Outcome;
use workbench::{board, command};

/// Judges what `arguments` ask for; the error names the promises that do not hold.
pub(super) fn run(arguments: &[String]) -> Outcome {
    board::ensure()?;
    let mut judge = command::cargo(&["run", "--quiet", "--package", "hodo-clocks", "--"]);
    command::run(judge.args(arguments).current_dir("."))
}
