//! `hodo report`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{AnyReport, Experiment, Needs, Outcome, Request, reports};
use hodo_model::{Description, Interest, Parameters};

use crate::{
    arguments::Report,
    failure::{Failure, INTERRUPTED, written},
    function, input, live, output,
    progress::Progress,
    selection::Selection,
    timeline,
};

/// Runs the command.
pub fn run(command: &Report) -> Result<ExitCode, Failure> {
    let Some(kind) = command.kind.as_deref().filter(|_| !command.list) else {
        let lines = list().map(|about| format!("{:10} {}\n", about.name, about.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(address) = live::address(&command.input)? {
        return live::report(command, &address);
    }
    if command.refresh.is_some() {
        return Err(Failure::usage(
            "--refresh is for sessions that are being recorded: net://HOST/host/NAME/SESSION",
        ));
    }
    let (experiment, request) = open_kind(command, kind)?;
    if !command.input.quiet {
        timeline::report_unrelated(&experiment);
    }
    draw(command, experiment, &request)
}

/// Opens the inputs of a report that was chosen, and makes its request.
pub fn open(command: &Report) -> Result<(Experiment, Request), Failure> {
    match command.kind.as_deref() {
        Some(_) if live::address(&command.input)?.is_some() => {
            Err(Failure::usage("a session that is being recorded has no end: use the command `hodo report`"))
        }
        Some(kind) => open_kind(command, kind),
        None => Err(Failure::usage("which report? `hodo report --list` names them")),
    }
}

fn open_kind(command: &Report, kind: &str) -> Result<(Experiment, Request), Failure> {
    let reports = named(&[kind.to_owned()]);
    let selection = Selection::new(&command.input, Some(&command.filter))?;
    let mut parameters = Parameters {
        selection: hodo_model::Selection {
            root: command.root.root(),
            ..selection.of_tables(command.by.as_deref())
        },
        every: command.every,
        period: command.period.period()?,
        icache: command.icache,
        intervals: None,
        alone: reports.len() == 1,
    };
    // The request is checked before any input is opened.
    output::check(reports.len(), &command.output)?;
    input::unopened(&command.input, Some(&command.filter), reports.clone(), parameters.clone())?.check()?;
    let experiment = input::experiment(&command.input, needs(&reports))?;
    if let Some(root) = command.root.root() {
        parameters.selection.root = Some(function::root(&root, &experiment)?);
    }
    let request = input::request(&command.input, Some(&command.filter), reports, parameters, &experiment)?;
    Ok((experiment, request))
}

/// Draws the tables of a request.
fn draw(command: &Report, experiment: Experiment, request: &Request) -> Result<ExitCode, Failure> {
    let heading = experiment.heading(request).filter(|_| output::view(&command.output).keeps_no_rows());
    // Streaming a table takes two passes.
    let passes = if heading.is_some() { 2 } else { 1 };
    let progress = Progress::new(passes * experiment.work(request), command.input.quiet);
    let mut lossless = true;
    let mut end = |outcome: Outcome| {
        progress.finish();
        lossless = outcome.is_lossless();
        if !command.input.quiet {
            outcome.notes.iter().for_each(|note| message!("{note}"));
        }
        Some(outcome.tables).filter(|_| !progress.is_interrupted())
    };
    match heading {
        Some(heading) => output::draw_stream(heading, &command.output, |rows| {
            let outcome = experiment.stream(request, rows, &mut |done| progress.set(done))?;
            Ok(end(outcome).and_then(|mut tables| tables.pop()))
        })?,
        None => {
            let outcome = experiment.run(request, &mut |done| progress.set(done))?;
            end(outcome).map_or(Ok(()), |tables| output::draw_all(tables, &command.output))?;
        }
    }
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    experiment.with(input::report_nothing_decoded);
    let code = input::exit_code_of(&command.input, &experiment, lossless);
    // The process is about to exit, which frees the memory of large traces faster than dropping each value.
    std::mem::forget(experiment);
    Ok(code)
}

/// `all`, which stands for every report that it includes.
const ALL: Description = Description {
    name: "all",
    help: "all reports about kernel events in one pass, and functions of control flow",
    ..Description::EMPTY
};

/// Returns the descriptions of reports.
pub fn list() -> impl Iterator<Item = &'static Description> {
    reports().iter().map(|report| report.description()).chain([&ALL])
}

/// Returns the reports that the names stand for, each once.
pub fn named(names: &[String]) -> Vec<&'static AnyReport> {
    let is_named = |name: &str| names.iter().any(|named| named == name);
    let all = is_named(ALL.name);
    let is_meant = |report: &&'static AnyReport| {
        let about = report.description();
        is_named(about.name) || all && about.in_all
    };
    reports().iter().filter(is_meant).collect()
}

/// Returns the inputs that reports read.
pub fn needs(reports: &[&'static AnyReport]) -> Needs {
    let reads_flow = |report: &&'static AnyReport| {
        let run = report.make(&Parameters::default());
        let Interest { flow, .. } = run.analysis().interest();
        flow != hodo_model::FlowInterest::None
    };
    Needs { flow: reports.iter().any(reads_flow), sideband: false, events: !reports.iter().all(reads_flow) }
}
