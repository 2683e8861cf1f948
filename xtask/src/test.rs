//! `cargo xtask test`: everything that must pass before a change is merged. `.ci/run` runs it.

use std::{process::Command, thread, time::Instant};

use crate::{
    Outcome,
    command::{self, cargo},
    machine, packages, python,
    setup::{self, Need},
    tidy, web,
};

/// A step: its name, and what it does.
type TestStep = (&'static str, fn() -> Outcome);

/// The steps that run one after the other, quick ones first.
const STEPS: &[TestStep] = &[
    ("setup", || setup::ensure(Need::Test)),
    ("format", || command::run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("tidy", || tidy::run(&[])),
    ("lints", || {
        command::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    }),
    ("docs", || {
        let mut doc = cargo(&["doc", "--no-deps", "--workspace"]);
        command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("fuzz", || command::run(&mut lints_of_fuzz_targets())),
    ("page", page),
    ("machine", machine),
    ("tests", tests),
    ("crates", || packages::run(&[])),
];

/// The last steps, which run at the same time: neither uses all processors.
const LAST_STEPS: &[TestStep] = &[("python", python::test), ("browser", || web::script("browser"))];

/// Runs every step, or those that are named, and stops at the first that fails.
pub(crate) fn run(names: &[String]) -> Outcome {
    let begin = Instant::now();
    let known = || STEPS.iter().chain(LAST_STEPS).map(|(name, _)| *name);
    if let Some(name) = names.iter().find(|name| known().all(|known| known != *name)) {
        let known: Vec<&str> = known().collect();
        return Err(format!("no step `{name}`; the steps are {}", known.join(", ")).into());
    }
    let is_wanted = |(name, _): &&TestStep| names.is_empty() || names.iter().any(|wanted| wanted == name);
    thread::scope(|scope| -> Result<(), String> {
        for step in STEPS.iter().filter(is_wanted) {
            run_step(step)?;
            let (name, _) = step;
            if *name == "setup" {
                // It waits for the network most of the time. If it fails, the step that needs the tools says so.
                scope.spawn(|| _ = python::install_tools());
            }
        }
        let last = LAST_STEPS.iter().filter(is_wanted).map(|step| scope.spawn(|| run_step(step)));
        let last: Vec<_> = last.collect();
        last.into_iter().try_for_each(|step| step.join().expect("steps return errors"))
    })?;
    let seconds = begin.elapsed().as_secs();
    match names.is_empty() {
        true => println!("test: all passed in {seconds} s, {} cases of Intel PT among them", cases()?),
        false => println!("test: {} passed in {seconds} s", names.join(", ")),
    }
    Ok(())
}

fn run_step((name, work): &TestStep) -> Result<(), String> {
    eprintln!("── {name}");
    let begin = Instant::now();
    work().map_err(|error| format!("{name}: {error}"))?;
    eprintln!("── {name}: {} s", begin.elapsed().as_secs());
    Ok(())
}

/// All tests, two more at a time than there are processors: many wait for programs that they started.
fn tests() -> Outcome {
    let threads = thread::available_parallelism()?.get() + 2;
    command::run(cargo(&["test", "--workspace"]).env("RUST_TEST_THREADS", threads.to_string()))
}

/// The embedded page is the one built from the source, and passes its own tests.
fn page() -> Outcome {
    web::is_current()?;
    web::script("check")?;
    web::script("unit")
}

/// The tests with a machine skip themselves where it can't be fetched: elsewhere than on Debian, or off line.
fn machine() -> Outcome {
    for name in ["x86_64", "aarch64"] {
        if let Err(error) = machine::ensure_for(name) {
            eprintln!("skipped: there is no emulated machine for {name}: {error}");
        }
    }
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
