//! Records one execution of a case, and counts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Parser;
use hodo_check::{Case, Configuration, Measured, Quantity, configuration::Pin};
use hodo_engine::{Needs, report_for};
use hodo_model::{Parameters, Role, Table, Value};
use hodo_recorder::{Engine, Request, Surroundings};
use rustix::process::Signal;

use crate::{arguments::Input, diff::gather::run, failure::Failure, input, progress::Progress};

/// Instructions that make system calls.
const SYSTEM_CALLS: [&str; 3] = ["syscall", "sysenter", "int"];

/// Arguments that read a recording.
#[derive(Debug, Parser)]
struct Reading {
    #[command(flatten)]
    input: Input,
}

/// Runs a case and counts; `None` if interrupted. The recording is deleted unless a folder is given to keep it in.
pub fn execution(
    configuration: &Configuration,
    case: &Case,
    folder: &Path,
    keep: Option<&Path>,
    run: u32,
) -> Result<Option<Measured>, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::unreadable(format!("case `{}`: {error}", case.name));
    let scratch = tempfile::tempdir().map_err(|error| failed(&error))?;
    let recording = match keep {
        None => scratch.path().join("recording"),
        Some(keep) => {
            fs::create_dir_all(keep).map_err(|error| failed(&format!("{}: {error}", keep.display())))?;
            let recording = keep.join(format!("{}-{run}.data", file_name(&case.name)));
            // The recorder may run in the case's folder.
            std::path::absolute(&recording).map_err(|error| failed(&error))?
        }
    };
    let words = case.command.words();
    let request = Request {
        engine: Engine::Auto,
        surroundings: Some(surroundings(case, folder)),
        output: recording.clone(),
        command: words.iter().map(Into::into).collect(),
        recorded_by: std::env::args_os().collect(),
        ..Request::default()
    };
    let outcome = hodo_recorder::record(&request, &|_| {}).map_err(|error| failed(&error))?;
    if std::os::unix::process::ExitStatusExt::signal(&outcome.status) == Some(Signal::INT.as_raw()) {
        return Ok(None);
    }
    if outcome.status.code() != Some(case.exit_code) {
        return Err(failed(&format!(
            "{} ended with {}, expected exit code {}",
            words.join(" "),
            outcome.status,
            case.exit_code
        )));
    }
    counts(configuration, case, &recording)
}

fn surroundings(case: &Case, folder: &Path) -> Surroundings {
    let pinned = case.pin.iter().flat_map(|pin| pin.environment());
    let pinned = pinned.map(|(name, value)| ((*name).into(), (*value).into()));
    let given = case.environment.iter().map(|(name, value)| (name.into(), value.into()));
    let from_configuration = |path: &PathBuf| folder.join(path);
    let own_folder = case.folder.as_ref().map(from_configuration);
    Surroundings {
        environment: pinned.chain(given).collect(),
        folder: own_folder.or_else(|| (!folder.as_os_str().is_empty()).then(|| folder.to_owned())),
        input: case.input.as_ref().map(from_configuration),
        fixed_addresses: case.pin.contains(&Pin::Addresses),
    }
}

/// A case's name as part of a file's name.
fn file_name(name: &str) -> String {
    name.replace(|character: char| !character.is_ascii_alphanumeric(), "-")
}

/// Counts what a recording contains; `None` if interrupted.
fn counts(configuration: &Configuration, case: &Case, recording: &Path) -> Result<Option<Measured>, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::unreadable(format!("case `{}`: {error}", case.name));
    let mut input = Reading::try_parse_from(["hodo", "--quiet"]).expect("no argument is required").input;
    input.files = vec![recording.to_owned()];
    input.call.clone_from(&case.function);
    let experiment = input::experiment(&input, Needs { flow: true, sideband: false, events: false })?;
    let quiet = true;
    let begin = &|bytes| Progress::new(bytes, quiet);
    let costly: Vec<&Costly> =
        COSTLY.iter().filter(|costly| configuration.is_counted(case, costly.quantity)).collect();
    let roles = [Role::CallPaths].into_iter().chain(costly.iter().map(|costly| costly.role));
    let tables = run(&input, &experiment, roles.map(report_for).collect(), Parameters::default(), begin)?;
    let Some(tables) = tables else { return Ok(None) };
    let Some((paths, of_costly)) = tables.split_first() else {
        return Err(failed(&"the recording has no control flow"));
    };
    if let Some(loss) = paths.loss.first() {
        return Err(failed(&format!("counts need a recording without loss: {}", loss.cause.name())));
    }
    let mut measured = Measured::of_paths(paths);
    if measured.totals.get(&Quantity::Instructions) == Some(&0) {
        let what = case
            .function
            .as_ref()
            .map_or("no instruction ran".to_owned(), |function| format!("`{function}` did not run"));
        return Err(failed(&what));
    }
    for (costly, table) in costly.iter().zip(of_costly) {
        measured.totals.insert(costly.quantity, (costly.sum)(table));
    }
    Ok(Some(measured))
}

/// A quantity with a report of its own.
struct Costly {
    quantity: Quantity,
    role: Role,
    sum: fn(&Table) -> u64,
}

const COSTLY: &[Costly] = &[
    Costly { quantity: Quantity::Branches, role: Role::Branches, sum: branches },
    Costly { quantity: Quantity::SystemCalls, role: Role::Mnemonics, sum: system_calls },
];

fn branches(branches: &Table) -> u64 {
    figure(branches, "taken") + figure(branches, "next")
}

fn figure(table: &Table, name: &str) -> u64 {
    match table.figure(name) {
        Some(Value::Integer(number)) => *number,
        _ => panic!("the table `{}` has no number `{name}`", table.name()),
    }
}

/// The executions of instructions that make system calls.
fn system_calls(mnemonics: &Table) -> u64 {
    let position = |name: &str| mnemonics.columns().iter().position(|column| column.name == name);
    let columns = position("mnemonic").zip(position("instructions"));
    let (name, count) = columns.expect("a table of mnemonics");
    let mut calls = 0;
    for row in mnemonics.rows() {
        if let (Value::Text(mnemonic), Value::Integer(instructions)) = (&row[name], &row[count])
            && SYSTEM_CALLS.contains(&mnemonic.as_str())
        {
            calls += instructions;
        }
    }
    calls
}
