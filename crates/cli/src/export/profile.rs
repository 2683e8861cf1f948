//! Call paths with their costs, source lines with their executions, and branches.

use std::{io, path::Path, process::ExitCode};

use hodo_engine::Needs;
use hodo_exports::{
    BeginLines, BeginPaths, BranchProfiles, Output, WriteBranches, differential, line_rows, path_rows,
};
use hodo_model::{Loss, Parameters, Table};

use crate::{
    arguments::{Export, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    output::Destination,
    progress::Progress,
    report,
    selection::Selection,
};

/// The report of call paths.
const CALL_PATHS: &str = "tree";
/// The report of source lines.
const LINES: &str = "lines";
/// The report of branches.
const BRANCHES: &str = "branches";
/// The format that holds two profiles.
const DIFFERENTIAL: &str = "folded";

pub(super) fn paths(command: &Export, begin: BeginPaths) -> Result<ExitCode, Failure> {
    if let Some(before) = &command.before {
        return difference(command, before);
    }
    export(command, CALL_PATHS, |table, out| {
        let mut paths = begin(out)?;
        for batch in table.batches() {
            let known = path_rows(batch, |row| paths.row(row))?;
            assert!(known, "the report of call paths has their columns");
        }
        paths.finish(&table.loss)
    })
}

pub(super) fn lines(command: &Export, begin: BeginLines) -> Result<ExitCode, Failure> {
    export(command, LINES, |table, out| {
        let mut lines = begin(out)?;
        for batch in table.batches() {
            let known = line_rows(batch, |file, line, executions| lines.line(file, line, executions))?;
            assert!(known, "the report of lines has their columns");
        }
        lines.finish(&table.loss)
    })
}

/// Writes the branches of one module: the one that is chosen, or that with most executed code.
pub(super) fn branches(command: &Export, write: WriteBranches) -> Result<ExitCode, Failure> {
    let Some(Made { table, code }) = make(command, &command.input, BRANCHES)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let mut profiles = BranchProfiles::default();
    for batch in table.batches() {
        assert!(profiles.add(batch), "the report of branches has their columns");
    }
    let names = profiles.names();
    let module = match (&command.module, names.first()) {
        (Some(module), _) => module.as_str(),
        (None, Some(module)) => module,
        (None, None) => {
            return Err(Failure::usage("no instruction is known, so there is no module to write"));
        }
    };
    let profile = profiles.get(module).ok_or_else(|| {
        Failure::usage(format!("no module `{module}` ran; those that did are {}", names.join(", ")))
    })?;
    if !command.input.quiet && command.module.is_none() && names.len() > 1 {
        eprintln!("hodo: profile of {module}; --module writes that of another: {}", names[1..].join(", "));
    }
    write_file(command, &table.loss, |out| write(profile, &table.loss, out))?;
    Ok(code)
}

/// Writes the call paths of two recordings with the instructions of each.
fn difference(command: &Export, before: &Path) -> Result<ExitCode, Failure> {
    if command.to != DIFFERENTIAL {
        return Err(Failure::usage(format!(
            "--before is for --to {DIFFERENTIAL}: {} holds one profile",
            command.to
        )));
    }
    let input = Input { files: vec![before.to_owned()], ..command.input.clone() };
    let Some(before) = make(command, &input, CALL_PATHS)? else { return Ok(ExitCode::from(INTERRUPTED)) };
    let Some(after) = make(command, &command.input, CALL_PATHS)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let losses = [&before.table.loss[..], &after.table.loss].concat();
    write_file(command, &losses, |out| differential(before.table.batches(), after.table.batches(), out))?;
    // An error on either side is one of the command.
    Ok(if before.code == ExitCode::SUCCESS { after.code } else { before.code })
}

/// Makes the table of a report, and writes the file with `write`.
fn export(
    command: &Export,
    report: &str,
    write: impl FnOnce(&Table, Output<'_>) -> io::Result<()>,
) -> Result<ExitCode, Failure> {
    let Some(Made { table, code }) = make(command, &command.input, report)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    write_file(command, &table.loss, |out| write(&table, out))?;
    Ok(code)
}

/// Writes the file, and prints what is missing from it.
fn write_file(
    command: &Export,
    losses: &[Loss],
    write: impl FnOnce(Output<'_>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = Destination::open(Some(&command.output))?;
    written(write(&mut out))?;
    out.finish()?;
    written(hodo_views::write_loss(losses, &hodo_views::Options::default(), &mut io::stderr()))
}

/// A table, and the exit code for what is missing from it.
struct Made {
    table: Table,
    code: ExitCode,
}

/// Makes the table of a report of control flow. Returns `None` after Ctrl-C.
fn make(command: &Export, input: &Input, report: &str) -> Result<Option<Made>, Failure> {
    if command.min.is_some() {
        return Err(Failure::usage(format!(
            "--min is for slices of a timeline, but {} contains sums of the whole run",
            command.to
        )));
    }
    let selection = Selection::new(input, Some(&command.filter))?;
    selection.refuse_events()?;
    let parameters =
        Parameters { selection: selection.of_tables(None), alone: true, ..Parameters::default() };
    let experiment = input::experiment(input, Needs { flow: true, sideband: false, events: false })?;
    if !experiment.contents.flow {
        return Err(Failure::usage(format!(
            "{} contains a profile of control flow, but this input has none",
            command.to
        )));
    }
    let reports = report::named(&[report.to_owned()]);
    let request = input::request(input, Some(&command.filter), reports, parameters, &experiment)?;
    let progress = Progress::new(experiment.work(&request), input.quiet);
    let mut outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(None);
    }
    let code = input::exit_code_of(input, &experiment, outcome.is_lossless());
    let table = outcome.tables.swap_remove(0);
    experiment.with(input::report_nothing_decoded);
    Ok(Some(Made { table, code }))
}
