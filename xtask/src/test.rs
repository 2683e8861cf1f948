//! `cargo xtask test`: everything that must hold before a change goes in. It is what `.ci/run` runs.

use std::time::Instant;

use crate::{
    Outcome,
    command::{self, cargo},
    setup::{self, Need},
    tidy,
};

/// Runs every step, the quick ones first, and ends at the first that fails.
pub(crate) fn run(_arguments: &[String]) -> Outcome {
    let begin = Instant::now();
    step("setup", || setup::ensure(Need::Test))?;
    step("format", || command::run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(&[]))?;
    step("lints", || {
        command::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    // The end-to-end tests start the release build, with the plugin that lies beside it.
    step("build", command::build_hodo)?;
    step("tests", || command::run(&mut cargo(&["test", "--workspace"])))?;
    println!(
        "test: all passed in {} s, {} cases of Intel PT among them",
        begin.elapsed().as_secs(),
        cases()?
    );
    Ok(())
}

/// How many cases there are; a test decodes each.
fn cases() -> Outcome<usize> {
    Ok(std::fs::read_dir(command::root().join("fixtures/pt"))?.count())
}

fn step(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    eprintln!("── {name}");
    work().map_err(|error| format!("{name}: {error}").into())
}
