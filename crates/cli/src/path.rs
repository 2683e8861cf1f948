//! `hodo path`.

use std::process::ExitCode;

use clap::Args;
use hodo_clock::Nanos;
use hodo_engine::{Bound, Chunks, Experiment, Needs, Outcome, TimeSpan, path, reports_for};
use hodo_model::{Parameters, Role, Table, Value};

use crate::{
    arguments::{Input, Output},
    failure::{Failure, INTERRUPTED},
    input, output,
    progress::Progress,
    selection::Selection,
    timeline,
};

/// The arguments of `hodo path`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo path trace.dat                          of the command that was recorded, else of the thread that ran longest
  hodo path --thread worker kernel-trace/      of a thread, by its name or id
  hodo path --thread 4242 --from +0.5 --to +0.6 trace.dat
  hodo path --by piece trace.dat               each piece, in order of time
  hodo path --thread worker perf.data          with the functions that ran, if it has Intel PT and kernel events
  hodo path --thread slave-1/sobel board.toml  of a task of a board

Each moment belongs to one piece, so pieces add up to the span. What the trace does not show is `unknown`.")]
pub struct Path {
    /// The thread: its name, its id, or TRACE/TASK of a board
    #[arg(long, value_name = "THREAD")]
    pub thread: Option<String>,
    /// Begin: seconds of the trace's clock, or +SECONDS from the beginning [default: the thread's begin]
    #[arg(long, value_name = "TIME", value_parser = bound)]
    pub from: Option<Bound>,
    /// End [default: the thread's end]
    #[arg(long, value_name = "TIME", value_parser = bound)]
    pub to: Option<Bound>,
    /// Rows: tree, cause or piece
    #[arg(long, value_name = "VIEW", default_value = "tree")]
    pub by: String,
    /// Functions to list below what ran, the heaviest, if an input has control flow; 0: none
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub functions: usize,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
}

/// Parses an end of a span.
fn bound(text: &str) -> Result<Bound, String> {
    match TimeSpan::parse(&format!("{text},")) {
        Ok(TimeSpan::Bounds(bound, _)) if !text.contains(',') => Ok(bound),
        _ => Err("expected seconds, or +SECONDS from the beginning".to_owned()),
    }
}

/// Runs the command.
pub fn run(command: &Path) -> Result<ExitCode, Failure> {
    let mut selection = Selection::new(&command.input, None)?.of_tables(Some(&command.by));
    if let Some(thread) = &command.thread {
        match thread.parse() {
            Ok(tid) => selection.tids.push(tid),
            Err(_) => selection.comms.push(thread.clone()),
        }
    }
    let reports = reports_for(Role::CriticalPath);
    let parameters = |selection| Parameters { selection, alone: true, ..Parameters::default() };
    output::check(1, &command.output)?;
    input::unopened(&command.input, None, reports.clone(), parameters(selection.clone()))?.check()?;
    let with_functions = command.functions > 0 && ["tree", "piece"].contains(&command.by.as_str());
    // The path leads through any threads; the selection is about its end.
    let all = Input { tid: vec![], pid: vec![], comm: vec![], ..command.input.clone() };
    let experiment = input::experiment(&all, Needs { flow: with_functions, sideband: false, events: true })?;
    let has_flow = experiment
        .with(|traces| traces.unrelated.is_empty() && traces.flows.iter().any(|flow| flow.bytes() > 0));
    if has_flow {
        selection.view = "stretch".to_owned();
    }
    if !command.input.quiet {
        timeline::report_unrelated(&experiment);
    }
    selection.window = window(command, &experiment)?;
    let request = input::request(&command.input, None, reports, parameters(selection), &experiment)?;
    let progress = Progress::new(experiment.work(&request), command.input.quiet);
    let Outcome { tables, notes } = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let Some(table) = tables.into_iter().next() else { return Ok(ExitCode::SUCCESS) };
    check_thread(command, &table, &notes)?;
    let table = match has_flow {
        true => match functions(command, &experiment, table)? {
            Some(table) => table,
            None => return Ok(ExitCode::from(INTERRUPTED)),
        },
        false => table,
    };
    let lossless = Outcome { tables: vec![table.clone()], notes: Vec::new() }.is_lossless();
    output::draw(table, &command.output)?;
    Ok(input::exit_code_of(&command.input, &experiment, lossless))
}

/// Adds the functions that ran to a table of stretches, and makes the chosen view of it; `None` if interrupted.
fn functions(command: &Path, experiment: &Experiment, table: Table) -> Result<Option<Table>, Failure> {
    let stretches = path::running(&table);
    let whole = Input { call: None, ..command.input.clone() };
    let begin = |bytes| Progress::new(bytes, command.input.quiet);
    let executed = experiment.with(|traces| {
        let executed_in = |flow| {
            input::read(&whole, flow, Chunks::Default, None, &begin, |reading, keep_going| {
                path::executed(flow, stretches.clone(), reading, keep_going)
            })
        };
        traces.flows.iter().map(executed_in).collect::<Result<Option<Vec<Table>>, _>>()
    })?;
    let Some(executed) = executed else { return Ok(None) };
    let loss: Vec<_> = executed.iter().flat_map(|table| table.loss.clone()).collect();
    let mut table = path::with_functions(table, &executed, &command.by, command.functions);
    table.loss.extend(loss);
    Ok(Some(table))
}

/// Resolves `--from` and `--to` on the timeline.
fn window(command: &Path, experiment: &Experiment) -> Result<Option<(Nanos, Nanos)>, Failure> {
    if command.from.is_none() && command.to.is_none() {
        return Ok(None);
    }
    let bound = |bound: Option<Bound>| bound.unwrap_or(Bound::None);
    let span = TimeSpan::Bounds(bound(command.from), bound(command.to));
    let window = experiment.with(|traces| traces.resolve(&span)?.0.of_events(traces.event_span()))?;
    let nanos = |time: i128| Nanos(u64::try_from(time.max(0)).unwrap_or(u64::MAX));
    let from = window.from.map_or(Nanos(0), |time| nanos(time.0));
    let to = window.to.map_or(Nanos(u64::MAX), |time| nanos(time.0));
    match from < to {
        true => Ok(Some((from, to))),
        false => Err(Failure::usage("--from, --to: it ends before it begins")),
    }
}

/// Rejects a thread that does not exist. If several have its name, reports which one is shown.
fn check_thread(command: &Path, table: &Table, notes: &[String]) -> Result<(), Failure> {
    if let Some(thread) = &command.thread
        && let Some(Value::Integer(count)) = table.figure("threads_chosen")
    {
        if *count == 0 {
            return Err(Failure::usage(format!(
                "--thread {thread}: no event names such a thread; `hodo report waits` lists threads"
            )));
        }
        if *count > 1 && !command.input.quiet {
            message!("{count} threads are called {thread}: this is the one that lived longest; choose by id");
        }
    }
    if !command.input.quiet {
        notes.iter().for_each(|note| message!("{note}"));
    }
    Ok(())
}
