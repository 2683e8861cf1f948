//! Call paths with their costs, costs of source lines, and branches.

use std::{collections::BTreeSet, io, path::Path, process::ExitCode};

use hodo_engine::{Needs, report_for};
use hodo_exports::{
    BeginPaths, BranchProfiles, Output, SourceProfile, WriteBranches, WriteSources, differential, path_rows,
};
use hodo_model::{Loss, Parameters, Role, Table};

use super::emit_nothing;
use crate::{
    arguments::{Export, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    output::Destination,
    progress::Progress,
    selection::Selection,
};

/// The view of source lines with the lines of each function.
const BY_FUNCTION: &str = "function";
/// The format that holds two profiles.
const DIFFERENTIAL: &str = "folded";

/// Writes the call paths with their costs.
pub(super) fn paths(command: &Export, begin: BeginPaths) -> Result<ExitCode, Failure> {
    if let Some(before) = &command.before {
        return difference(command, before);
    }
    let Some(Made { tables, code, .. }) = make(command, &command.input, &[(Role::CallTree, "path")])? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let table = &tables[0];
    write_file(command, &table.loss, |out| {
        let mut paths = begin(out)?;
        for batch in table.batches() {
            let known = path_rows(batch, |row| paths.row(row))?;
            assert!(known, "the report of call paths has their columns");
        }
        paths.finish(&table.loss)
    })?;
    if table.is_empty() {
        emit_nothing(command, "call path");
    }
    Ok(code)
}

/// Writes the costs of source lines, and of the calls between functions.
pub(super) fn sources(command: &Export, write: WriteSources) -> Result<ExitCode, Failure> {
    let reports = [(Role::CallTree, "path"), (Role::SourceLines, BY_FUNCTION), (Role::Branches, "")];
    let Some(Made { tables, code, .. }) = make(command, &command.input, &reports)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let mut profile = SourceProfile::default();
    let adders = [SourceProfile::add_paths, SourceProfile::add_lines, SourceProfile::add_branches];
    for (table, add) in tables.iter().zip(adders) {
        for batch in table.batches() {
            assert!(add(&mut profile, batch), "the report `{}` has its columns", table.name());
        }
    }
    // All reports of one pass have the same losses.
    let losses = &tables[0].loss;
    write_file(command, losses, |out| write(&profile, losses, out))?;
    if tables[0].is_empty() {
        emit_nothing(command, "call path");
    }
    Ok(code)
}

/// Writes the branches of one module: the chosen one, or that of [`usual_module`].
pub(super) fn branches(command: &Export, write: WriteBranches) -> Result<ExitCode, Failure> {
    let Some(Made { tables, code, programs }) = make(command, &command.input, &[(Role::Branches, "")])?
    else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let table = &tables[0];
    let mut profiles = BranchProfiles::default();
    for batch in table.batches() {
        assert!(profiles.add(batch), "the report of branches has their columns");
    }
    let names = profiles.names();
    let module = match &command.module {
        Some(module) => module,
        None => usual_module(command, &names, &programs)?,
    };
    let profile = profiles.get(module).ok_or_else(|| {
        Failure::usage(format!("no module `{module}` ran; those that did are {}", names.join(", ")))
    })?;
    write_file(command, &table.loss, |out| write(profile, &table.loss, out))?;
    Ok(code)
}

/// Returns the module that is written if none is chosen. `names` are those that ran, the one with most executed code first: it is
/// the first that is a program's own file, or else the first. Says so if there are others.
fn usual_module<'n>(
    command: &Export,
    names: &[&'n str],
    programs: &BTreeSet<String>,
) -> Result<&'n str, Failure> {
    let Some(&most) = names.first() else {
        return Err(Failure::usage(
            "nothing found: what was selected has no instruction, so there is no module to write",
        ));
    };
    let own = names.iter().copied().find(|name| programs.contains(*name));
    let module = own.unwrap_or(most);
    if !command.input.quiet && names.len() > 1 {
        let what = if own.is_some() { "the recorded program's file" } else { "which has most executed code" };
        let others: Vec<&str> = names.iter().copied().filter(|name| *name != module).collect();
        message!("profile of {module}, {what}; --module writes that of another: {}", others.join(", "));
    }
    Ok(module)
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
    let paths = [(Role::CallTree, "path")];
    let Some(before) = make(command, &input, &paths)? else { return Ok(ExitCode::from(INTERRUPTED)) };
    let Some(after) = make(command, &command.input, &paths)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let [old, new] = [&before.tables[0], &after.tables[0]];
    let losses = [&old.loss[..], &new.loss].concat();
    write_file(command, &losses, |out| differential(old.batches(), new.batches(), out))?;
    if old.is_empty() && new.is_empty() {
        emit_nothing(command, "call path");
    }
    // A failure of either side is one of the command.
    Ok(if before.code == ExitCode::SUCCESS { after.code } else { before.code })
}

/// Writes the file, and prints what is missing from it.
pub(super) fn write_file(
    command: &Export,
    losses: &[Loss],
    write: impl FnOnce(Output<'_>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = Destination::open(Some(&command.output))?;
    written(write(&mut out))?;
    out.finish()?;
    written(hodo_views::write_loss(losses, &hodo_views::Options::default(), &mut io::stderr()))
}

/// Tables of one pass, and the exit code for what is missing from them.
pub(super) struct Made {
    pub(super) tables: Vec<Table>,
    pub(super) code: ExitCode,
    /// The modules that are programs' own files.
    programs: BTreeSet<String>,
}

/// A report, and its view; the default view if empty.
pub(super) type ReportView = (Role, &'static str);

/// Makes the tables of reports of control flow. Returns `None` after Ctrl-C.
pub(super) fn make(command: &Export, input: &Input, parts: &[ReportView]) -> Result<Option<Made>, Failure> {
    if command.min.is_some() {
        return Err(Failure::usage(format!(
            "--min is for slices of a timeline, but {} contains sums of the whole run",
            command.to
        )));
    }
    let selection = Selection::new(input, Some(&command.filter))?;
    selection.refuse_events()?;
    let alone = parts.len() == 1;
    let parameters = Parameters { selection: selection.of_tables(None), alone, ..Parameters::default() };
    let experiment = input::experiment(input, Needs { flow: true, sideband: false, events: false })?;
    if !experiment.contents.flow {
        return Err(Failure::usage(format!(
            "{} contains a profile of control flow, but this input has none",
            command.to
        )));
    }
    let adds_up = parts.iter().all(|(role, _)| *role == Role::Coverage);
    if !adds_up && experiment.with(|traces| traces.flows.len()) > 1 {
        return Err(Failure::usage(format!(
            "{} contains one recording of control flow; name only one",
            command.to
        )));
    }
    let reports = parts.iter().map(|(role, _)| report_for(*role)).collect();
    let mut request = input::request(input, Some(&command.filter), reports, parameters, &experiment)?;
    request.views = parts.iter().map(|(_, view)| *view).collect();
    let progress = Progress::new(experiment.work(&request), input.quiet);
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(None);
    }
    let code = input::exit_code_of(input, &experiment, outcome.is_lossless());
    experiment.with(input::report_nothing_decoded);
    let programs = experiment.with(|traces| {
        let all = traces.flows.iter().flat_map(|flow| flow.program_files());
        all.map(str::to_owned).collect()
    });
    Ok(Some(Made { tables: outcome.tables, code, programs }))
}
