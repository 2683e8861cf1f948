//! `hodo plan`, `hodo fold` and `hodo merge`: one report computed by several processes or machines.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use hodo_engine::{AnyReport, Experiment, Outcome, Part, PartError, Portion, Request};
use hodo_model::{Parameters, Root, Selection};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::{Arguments, Command, Fold, Merge, Plan},
    failure::{Failure, INTERRUPTED, LOSS, written},
    function, input,
    latency::question::Question,
    output::{self, Destination},
    progress::Progress,
    report,
};

/// Bytes of trace in a part, and the most parts, unless the command line gives a number of parts.
const PART_BYTES: u64 = 64 << 20;
const MOST_PARTS: u64 = 256;

/// A task as printed by `hodo plan` and accepted by `hodo fold --task`.
#[derive(Serialize, Deserialize)]
struct Task {
    /// The arguments of `hodo plan` that define what to fold.
    arguments: Vec<String>,
    /// The part, such as `1/4`.
    part: String,
    /// Approximate number of bytes of trace in the part.
    bytes: u64,
    /// Identity of the inputs, to verify that they are the same.
    identity: String,
}

/// `hodo plan`.
pub fn plan(command: &Plan) -> Result<ExitCode, Failure> {
    let mut out = Destination::open(None)?;
    for line in tasks(command, &arguments_of(env::args()))? {
        written(writeln!(out, "{line}"))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the tasks of a plan, a line of JSON each.
pub fn tasks(command: &Plan, arguments: &[String]) -> Result<Vec<String>, Failure> {
    let experiment = open(&command.what)?;
    let bytes = experiment.work(&request(&command.what, &experiment)?);
    let usual = bytes.div_ceil(PART_BYTES).clamp(1, MOST_PARTS) as u32;
    let parts = command.parts.map_or(usual, |parts| parts.get());
    let task = |portion: Portion| {
        let task = Task {
            arguments: arguments.to_vec(),
            part: portion.to_string(),
            bytes: portion.share(bytes),
            identity: experiment.identity(),
        };
        serde_json::to_string(&task).expect("text and numbers become JSON")
    };
    Ok(Portion::all(parts).map(task).collect())
}

/// Returns the arguments after the command's name, without those about parts and output.
pub fn arguments_of(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut arguments = all.skip(2);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--parts" | "--part" | "-o" | "--output" => drop(arguments.next()),
            text if ["--parts=", "--part=", "--output="].iter().any(|start| text.starts_with(start)) => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// Parses the arguments of a task, or of a part, as those of `hodo fold`.
fn parse(arguments: &[String], part: &str) -> Result<Box<Fold>, Failure> {
    let before = ["hodo", "fold", "--part", part, "-o", "-"].map(str::to_owned);
    let parsed = Arguments::try_parse_from(before.into_iter().chain(arguments.iter().cloned()));
    match parsed.map(|arguments| arguments.command) {
        Ok(Command::Fold(fold)) => Ok(fold.into_inner()),
        Ok(_) => Err(Failure::usage("this is not a task printed by `hodo plan`")),
        Err(error) => Err(Failure::usage(format!("this is not a task printed by `hodo plan`: {error}"))),
    }
}

/// `hodo fold`.
pub fn fold(command: &Fold) -> Result<ExitCode, Failure> {
    let Some(text) = &command.task else {
        let any_identity = None;
        let arguments = arguments_of(env::args());
        return fold_part(&command.what, part_of(command), &arguments, any_identity, command);
    };
    let (task, parsed) = task(text)?;
    fold_part(&parsed.what, part_of(&parsed), &task.arguments, Some(&task.identity), command)
}

fn part_of(command: &Fold) -> Portion {
    command.part.expect("the parser asks for a part or a task")
}

/// Parses a task, and its arguments.
fn task(text: &str) -> Result<(Task, Box<Fold>), Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("--task: this is not a task printed by `hodo plan`: {why}"))
    };
    let task: Task = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    let parsed = parse(&task.arguments, &task.part)?;
    Ok((task, parsed))
}

/// The opened inputs of a plan. Symbols may take longer to read than a part takes to fold.
pub struct Opened {
    experiment: Experiment,
    request: Request,
}

/// Folds a task; `None` if stopped by `progress`, which receives the bytes done and the bytes to do. `opened` has the
/// inputs of the task before, which are used again if they are those of this task, else replaced by them.
pub fn fold_task(
    text: &str,
    opened: &mut Option<Opened>,
    progress: &mut (dyn FnMut(u64, u64) -> bool + Send),
) -> Result<Option<Part>, Failure> {
    let (task, parsed) = task(text)?;
    let part = part_of(&parsed);
    let unchanged = |opened: &Opened| opened.experiment.identity() == task.identity;
    let opened = match opened.take().filter(unchanged) {
        Some(unchanged) => opened.insert(unchanged),
        None => {
            let (experiment, request) = open_part(&parsed.what, Some(&task.identity))?;
            opened.insert(Opened { experiment, request })
        }
    };
    let total = part.share(opened.experiment.work(&opened.request));
    let mut stopped = false;
    let folded = opened.experiment.fold(&opened.request, &task.arguments, part, &mut |done| {
        stopped |= !progress(done, total);
        !stopped
    })?;
    Ok((!stopped).then_some(folded))
}

fn fold_part(
    what: &crate::arguments::What,
    part: Portion,
    arguments: &[String],
    identity: Option<&str>,
    command: &Fold,
) -> Result<ExitCode, Failure> {
    let (experiment, request) = open_part(what, identity)?;
    let progress = Progress::new(part.share(experiment.work(&request)), what.input.quiet);
    let folded = experiment.fold(&request, arguments, part, &mut |done| progress.set(done))?;
    progress.finish();
    if progress.is_interrupted() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    write(&folded, &command.output)
}

/// Opens the inputs of a part, which must have this identity.
fn open_part(
    what: &crate::arguments::What,
    identity: Option<&str>,
) -> Result<(Experiment, Request), Failure> {
    let experiment = open(what)?;
    if identity.is_some_and(|identity| identity != experiment.identity()) {
        let names: Vec<String> = what.input.files.iter().map(|file| file.display().to_string()).collect();
        return Err(Failure::unreadable(format!(
            "--task: the input has changed since it was planned; plan it again: {}",
            names.join(", ")
        )));
    }
    let request = request(what, &experiment)?;
    Ok((experiment, request))
}

fn write(part: &Part, path: &Path) -> Result<ExitCode, Failure> {
    let mut out = Destination::open(Some(path))?;
    written(out.write_all(&part.to_bytes()))?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the experiment to fold. Threads can only be selected from the whole.
fn open(what: &crate::arguments::What) -> Result<Experiment, Failure> {
    if crate::selection::Selection::new(&what.input, None)?.has_threads() {
        return Err(Failure::usage(
            "--tid, --pid and --comm select from the merged result: pass them to `hodo merge`",
        ));
    }
    let reports = report::named(&what.kinds);
    input::unopened(&what.input, None, reports.clone(), parameters(what)?)?.check()?;
    let mut needs = report::needs(&reports);
    needs.events |= question(what)?.is_some_and(|question| question.needs().events);
    input::experiment(&what.input, needs)
}

/// Returns the intervals requested, if any.
fn question(what: &crate::arguments::What) -> Result<Option<Question>, Failure> {
    let takes_intervals = |report: &&AnyReport| report.description().takes.intervals;
    let is_of_intervals = report::named(&what.kinds).iter().any(takes_intervals);
    let matched = if is_of_intervals { &what.period.matched[..] } else { &[] };
    Question::of(&what.question, matched)
}

fn parameters(what: &crate::arguments::What) -> Result<Parameters, Failure> {
    let selection = Selection { view: what.by.clone().unwrap_or_default(), ..Selection::default() };
    let (every, period, icache) = (what.every, what.period.period()?, what.icache);
    Ok(Parameters { selection, every, period, icache, ..Parameters::default() })
}

fn request(what: &crate::arguments::What, experiment: &Experiment) -> Result<Request, Failure> {
    let intervals = question(what)?.map(|question| question.resolve(experiment)).transpose()?;
    let parameters = Parameters { intervals, ..parameters(what)? };
    input::request(&what.input, None, report::named(&what.kinds), parameters, experiment)
}

/// `hodo merge`.
pub fn merge(command: &Merge) -> Result<ExitCode, Failure> {
    let read = |path: &PathBuf| {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = fs::read(path).map_err(|error| Failure::unreadable(failed(&error)))?;
        Part::from_bytes(&bytes).map_err(|error| Failure::unreadable(failed(&error)))
    };
    let parts = command.parts.iter().map(read).collect::<Result<Vec<Part>, Failure>>()?;
    let failed = |error: PartError| match error {
        PartError::Differs(index, what) => Failure::usage(format!(
            "{} and {} are not parts of the same request: {what} differs",
            command.parts[0].display(),
            command.parts[index].display()
        )),
        error => Failure::usage(error),
    };
    let whole = Part::merge(parts).map_err(failed)?;
    if let Some(path) = &command.part {
        return write(&whole, path);
    }
    let selection = Selection {
        view: command.by.clone().unwrap_or_default(),
        tids: command.tid.clone(),
        pids: command.pid.clone(),
        comms: command.comm.clone(),
        cpus: command.cpu_list.concat(),
        root: command.root.root(),
        window: None,
    };
    let names = whole.reports();
    output::check(names.len(), &command.output)?;
    let parameters = Parameters { selection: selection.clone(), alone: false, ..whole.parameters() };
    Request::of(report::named(names), parameters).check()?;
    let outcome = tables(whole, &selection)?;
    let lossless = outcome.is_lossless();
    output::draw_all(outcome.tables, &command.output)?;
    Ok(if command.strict && !lossless { LOSS.into() } else { ExitCode::SUCCESS })
}

/// The part that is everything.
const WHOLE: &str = "1/1";

/// Makes the tables of a merged part. Opens the inputs again if the tables need names that the part lacks.
pub fn tables(whole: Part, selection: &Selection) -> Result<Outcome, Failure> {
    let experiment = match whole.needs_inputs() {
        true => Some(open(&parse(whole.inputs(), WHOLE)?.what)?),
        false => None,
    };
    let mut selection = selection.clone();
    // A system call can't be selected from parts: `Part::tables` rejects it.
    if let (Some(root @ Root::Function(_)), Some(experiment)) = (&selection.root, &experiment) {
        selection.root = Some(function::root(root, experiment)?);
    }
    let threads = 1;
    whole.tables(&selection, experiment.as_ref(), threads).map_err(Failure::usage)
}
