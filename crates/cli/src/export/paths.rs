//! Call paths with their costs.

use std::process::ExitCode;

use hodo_engine::Needs;
use hodo_exports::{BeginPaths, path_rows};
use hodo_model::Parameters;

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

pub(super) fn export(command: &Export, begin: BeginPaths) -> Result<ExitCode, Failure> {
    if command.min.is_some() {
        return Err(Failure::usage(format!(
            "--min is for slices of a timeline, but {} contains sums of call paths",
            command.to
        )));
    }
    let selection = Selection::new(&command.input, Some(&command.filter))?;
    selection.refuse_events()?;
    let parameters =
        Parameters { selection: selection.of_tables(None), alone: true, ..Parameters::default() };
    let experiment = input::experiment(&command.input, Needs { flow: true, sideband: false, events: false })?;
    let reports = report::named(&[CALL_PATHS.to_owned()]);
    let request = input::request(&command.input, Some(&command.filter), reports, parameters, &experiment)?;
    let progress = Progress::new(experiment.work(&request), command.input.quiet);
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let mut out = Destination::open(Some(&command.output))?;
    let mut write = || {
        let mut paths = begin(&mut out)?;
        let table = &outcome.tables[0];
        for batch in table.batches() {
            let known = path_rows(batch, |row| paths.row(row))?;
            assert!(known, "the report of call paths has their columns");
        }
        paths.finish(&table.loss)
    };
    written(write())?;
    out.finish()?;
    let loss = &outcome.tables[0].loss;
    written(hodo_views::write_loss(loss, &hodo_views::Options::default(), &mut std::io::stderr()))?;
    experiment.with(input::report_nothing_decoded);
    Ok(input::exit_code_of(&command.input, &experiment, outcome.is_lossless()))
}
