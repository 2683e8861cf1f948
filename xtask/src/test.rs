//! `cargo xtask test`: everything that must pass before a change is merged. `.ci/run` runs it.

use std::{process::Command, time::Instant};

use crate::{
    Outcome,
    command::{self, cargo},
    machine, python,
    setup::{self, Need},
    tidy, web,
};

/// Runs every step, quick ones first, and stops at the first that fails.
pub(crate) fn run(_arguments: &[String]) -> Outcome {
    let begin = Instant::now();
    step("setup", || setup::ensure(Need::Test))?;
    step("format", || command::run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(&[]))?;
    step("lints", || {
        command::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    step("fuzz targets", || command::run(&mut lints_of_fuzz_targets()))?;
    step("page", || {
        web::is_current()?;
        web::script("check")?;
        web::script("unit")
    })?;
    step("machine", || {
        // The tests with a machine skip themselves where it can't be fetched: elsewhere than on Debian, or off line.
        machine::ensure().or_else(|error| {
            eprintln!("skipped: there is no emulated machine: {error}");
            Ok(())
        })
    })?;
    step("tests", || command::run(&mut cargo(&["test", "--workspace"])))?;
    step("Python package", python::test)?;
    step("browser tests", || web::script("browser"))?;
    println!(
        "test: all passed in {} s, {} cases of Intel PT among them",
        begin.elapsed().as_secs(),
        cases()?
    );
    Ok(())
}

/// Lints of the fuzz targets, which are not part of the workspace: they are compiled only as far as lints need it.
fn lints_of_fuzz_targets() -> Command {
    let target = command::target();
    let mut lints = cargo(&["clippy", "--manifest-path", "fuzz/Cargo.toml", "--all-targets"]);
    lints.arg("--target-dir").arg(target).args(["--", "-D", "warnings"]);
    // Nothing is linked, so the library of the fuzzer, which is C++, need not be built.
    lints.env("CUSTOM_LIBFUZZER_PATH", "none/libnone.a");
    lints
}

/// The number of cases; a test decodes each.
fn cases() -> Outcome<usize> {
    Ok(std::fs::read_dir(command::root().join("fixtures/pt"))?.count())
}

fn step(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    eprintln!("── {name}");
    work().map_err(|error| format!("{name}: {error}").into())
}
