//! Call paths with their costs, and source lines with their executions.

use std::{io, process::ExitCode};

use hodo_engine::Needs;
use hodo_exports::{BeginLines, BeginPaths, Output, line_rows, path_rows};
use hodo_model::{Parameters, Table};

use crate::{
    arguments::Export,
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

pub(super) fn paths(command: &Export, begin: BeginPaths) -> Result<ExitCode, Failure> {
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

/// Makes the table of a report, and writes the file with `write`.
fn export(
    command: &Export,
    report: &str,
    write: impl FnOnce(&Table, Output<'_>) -> io::Result<()>,
) -> Result<ExitCode, Failure> {
    if command.min.is_some() {
        return Err(Failure::usage(format!(
            "--min is for slices of a timeline, but {} contains sums of the whole run",
            command.to
        )));
    }
    let selection = Selection::new(&command.input, Some(&command.filter))?;
    selection.refuse_events()?;
    let parameters =
        Parameters { selection: selection.of_tables(None), alone: true, ..Parameters::default() };
    let experiment = input::experiment(&command.input, Needs { flow: true, sideband: false, events: false })?;
    if !experiment.contents.flow {
        return Err(Failure::usage(format!(
            "{} contains a profile of control flow, but this input has none",
            command.to
        )));
    }
    let reports = report::named(&[report.to_owned()]);
    let request = input::request(&command.input, Some(&command.filter), reports, parameters, &experiment)?;
    let progress = Progress::new(experiment.work(&request), command.input.quiet);
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let mut out = Destination::open(Some(&command.output))?;
    let table = &outcome.tables[0];
    written(write(table, &mut out))?;
    out.finish()?;
    written(hodo_views::write_loss(&table.loss, &hodo_views::Options::default(), &mut io::stderr()))?;
    experiment.with(input::report_nothing_decoded);
    Ok(input::exit_code_of(&command.input, &experiment, outcome.is_lossless()))
}
