//! `cargo judge missing`: decodes real recordings with some of their code withheld, and compares with what really ran.
//! `bin/missing` does the work.

use std::{path::Path, process::Command};

use super::{
    USAGE,
    configurations::CONFIGURATIONS,
    programs::{PROGRAMS, Program, Ready},
    record::{self, Job},
};
use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// Programs that only this judge runs.
const MORE_PROGRAMS: &[Program] = &[
    Program { name: "jitted", what: "code that is made at run time", prepare: jitted },
    Program {
        name: "generated",
        what: "code that changes at run time",
        prepare: |folder| compiled("generated.c", folder),
    },
    Program { name: "sort", what: "comparisons by a function of another library", prepare: sort },
    Program { name: "sed", what: "regular expressions of the C library", prepare: sed },
];

/// Runs with these arguments; the error contains the number of violations.
pub(super) fn run(arguments: &[String]) -> Outcome {
    let (mut given, mut passed, mut only) = (arguments.iter(), Vec::new(), Vec::new());
    while let Some(argument) = given.next() {
        let value = given.next().ok_or(USAGE)?;
        match argument.as_str() {
            "--only" => only.push(value),
            "--count" | "--seed" => passed.extend([argument, value]),
            _ => return Err(USAGE.into()),
        }
    }
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    command::run(&mut command::cargo(&["build", "--release", "-p", "judge", "--bin", "hodo-missing"]))?;
    let folder = command::target().join("judge/missing");
    let programs = PROGRAMS.iter().chain(MORE_PROGRAMS);
    let asked = |program: &&Program| only.is_empty() || only.iter().any(|name| *name == program.name);
    let configuration = &CONFIGURATIONS[0];
    let jobs: Vec<Job> = programs
        .filter(asked)
        .map(|program| Job { program, configuration, event: configuration.event.to_owned() })
        .collect();
    let recordings = record::all(jobs, &folder)?;
    let mut judge = Command::new(command::target().join("release/hodo-missing"));
    judge.arg("--folder").arg(folder.join("trials")).args(passed);
    for recorded in recordings {
        judge.arg(format!("{}={}", recorded.job.program.name, recorded.path.display()));
    }
    command::run(&mut judge)
}

fn compiled(source: &str, folder: &Path) -> Outcome<Ready> {
    Ok(Ready { command: vec![workloads::compile(source, &[], folder)?.to_string_lossy().into_owned()] })
}

fn jitted(folder: &Path) -> Outcome<Ready> {
    let mut ready = compiled("jitted.c", folder)?;
    ready.command.extend(["map".to_owned(), folder.to_string_lossy().into_owned()]);
    Ok(ready)
}

fn sort(folder: &Path) -> Outcome<Ready> {
    let input = workloads::generate("text", 100_000, folder)?;
    Ok(Ready { command: vec!["sort".to_owned(), input.to_string_lossy().into_owned()] })
}

fn sed(folder: &Path) -> Outcome<Ready> {
    let input = workloads::generate("text", 50_000, folder)?.to_string_lossy().into_owned();
    Ok(Ready { command: ["sed", "-E", "s/([a-z]+)1([0-9]*)/\\2\\1/g", &input].map(str::to_owned).to_vec() })
}
