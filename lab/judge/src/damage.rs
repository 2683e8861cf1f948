//! `cargo judge damage`: damages real recordings and compares the decoded flow with the true one; also measures how
//! much perf recovers. `bin/damage` does the work.

use std::process::Command;

use super::USAGE;
use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// The recordings: small enough that perf can read each of ten thousand damaged copies, with as many PSBs as possible.
/// A name, the event, and the command; `tiny` and `signals` are programs of the lab.
const RECORDINGS: &[(&str, &str, &str)] = &[
    ("tiny-cyc", "intel_pt/cyc,psb_period=0/u", "{}/tiny"),
    ("tiny-noretcomp", "intel_pt/cyc,noretcomp,psb_period=0/u", "{}/tiny"),
    ("true", "intel_pt/psb_period=0/u", "/bin/true"),
    ("true-cyc", "intel_pt/cyc,mtc_period=0,psb_period=0/u", "/bin/true"),
    ("echo-no-mtc", "intel_pt/mtc=0,noretcomp,psb_period=0/u", "/bin/echo hodoscope"),
];

/// Runs with these arguments; the error contains the number of violations.
pub(super) fn run(arguments: &[String]) -> Outcome {
    let mut given = arguments.iter();
    while let Some(argument) = given.next() {
        let takes_number = ["--count", "--seed", "--only"].contains(&argument.as_str());
        if takes_number && given.next().is_none() || !takes_number && argument != "--without-perf" {
            return Err(USAGE.into());
        }
    }
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    command::run(&mut command::cargo(&["build", "--release", "-p", "judge", "--bin", "hodo-damage"]))?;
    let folder = command::target().join("judge/damage");
    workloads::compile("tiny.c", &["-static", "-nostdlib"], &folder)?;
    let mut judge = Command::new(command::target().join("release/hodo-damage"));
    judge.arg("--hodo").arg(command::hodo()).arg("--folder").arg(&folder).args(arguments);
    for (name, event, started) in RECORDINGS {
        judge.args(["--recording", name, event, &started.replace("{}", &folder.to_string_lossy())]);
    }
    command::quietly(&mut judge)
}
