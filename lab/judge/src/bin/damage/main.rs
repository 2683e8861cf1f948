//! Damages real recordings, and compares what we decode with what really ran; also measures how much of them perf
//! recovers.
//!
//! ```text
//! recording ──► truth: every segment's instructions
//!     │                                     │
//!     └─► damaged bytes ─┬─► our reader ────┴─► laws: nothing wrong, all that is whole is there
//!                        └─► perf ──────────► how much each of them shows
//! ```

mod container;
mod flow;
mod law;
mod mutation;
mod recovered;
mod table;
#[cfg(test)]
mod tests;
mod trial;
mod truth;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use trial::{Bench, Trial};
use truth::{Recipe, Subject};

const USAGE: &str = "usage: hodo-damage --hodo PROGRAM --folder FOLDER [--count N] [--seed N] [--only NUMBER] \
                     [--without-perf] --recording NAME EVENT 'COMMAND'…";

/// Violations that are shown in full.
const SHOWN: usize = 20;

/// The parsed command line.
struct Options {
    hodo: PathBuf,
    folder: PathBuf,
    count: u64,
    seed: u64,
    only: Option<u64>,
    perf: bool,
    recordings: Vec<(String, Recipe)>,
}

fn main() -> ExitCode {
    match parse().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hodo-damage: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Options, String> {
    let mut options = Options {
        hodo: PathBuf::new(),
        folder: PathBuf::new(),
        count: 10_000,
        seed: 1,
        only: None,
        perf: true,
        recordings: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match argument.as_str() {
            "--hodo" => options.hodo = value()?.into(),
            "--folder" => options.folder = value()?.into(),
            "--count" => options.count = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--only" => options.only = Some(number(value()?)?),
            "--without-perf" => options.perf = false,
            "--recording" => {
                let (name, event, command) = (value()?, value()?, value()?);
                let command = command.split_whitespace().map(str::to_owned).collect();
                options.recordings.push((name, Recipe { event, command }));
            }
            _ => return Err(USAGE.into()),
        }
    }
    if options.recordings.is_empty() { Err(USAGE.into()) } else { Ok(options) }
}

fn run(options: &Options) -> Result<(), String> {
    let subjects: Result<Vec<Subject>, String> =
        options.recordings.iter().map(|(name, recipe)| record(options, name, recipe)).collect();
    let subjects = subjects?;
    let numbers = match options.only {
        Some(number) => number..number + 1,
        None => 0..options.count,
    };
    let next = AtomicU64::new(numbers.start);
    let done: Mutex<Vec<(u64, Trial)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let worker = |index: usize| -> Result<(), String> {
        let folder = options.folder.join(format!("worker-{index}"));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let bench =
            Bench { folder, hodo: Some(options.hodo.clone()), perf: options.perf, seed: options.seed };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return Ok(());
            }
            let trial = bench.trial(&subjects, number)?;
            done.lock().map_err(|error| error.to_string())?.push((number, trial));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|index| scope.spawn(move || worker(index))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    let mut trials = done.into_inner().map_err(|error| error.to_string())?;
    trials.sort_by_key(|&(number, _)| number);
    report(options, &trials)
}

/// Records a subject, and checks that perf decodes the same as we do.
fn record(options: &Options, name: &str, recipe: &Recipe) -> Result<Subject, String> {
    std::fs::create_dir_all(&options.folder).map_err(|error| error.to_string())?;
    let file = options.folder.join(format!("{name}.perf.data"));
    let mut record = Command::new(&options.hodo);
    record.args(["record", "--engine", "emulate", "-q", "-e", &recipe.event, "-o"]).arg(&file);
    record.arg("--").args(&recipe.command).current_dir(&options.folder);
    record.output().map_err(|error| format!("can't start {}: {error}", options.hodo.display()))?;
    let subject = Subject::new(name, Path::new(&file), None, Some(recipe.clone()))?;
    println!(
        "{name:14} {:28} {:8} instructions, {:6} bytes, {:3} segments",
        recipe.event,
        subject.ran.instructions.len(),
        subject.container.trace().len(),
        subject.segments.len()
    );
    if options.perf && recovered::perf(&file, None)? != subject.ran.instructions {
        return Err(format!("perf shows other instructions of {name} than we do"));
    }
    Ok(subject)
}

fn report(options: &Options, trials: &[(u64, Trial)]) -> Result<(), String> {
    let all: Vec<&Trial> = trials.iter().map(|(_, trial)| trial).collect();
    let worse = table::print(&all, options.perf);
    let violations: Vec<(u64, &str)> =
        trials.iter().filter_map(|(number, trial)| Some((*number, trial.violation.as_deref()?))).collect();
    for (number, violation) in violations.iter().take(SHOWN) {
        println!("--seed {} --only {number}: {violation}", options.seed);
    }
    match (violations.len(), worse) {
        (0, false) => Ok(()),
        (0, true) => Err("perf recovers more".into()),
        (count, _) => Err(format!("{count} violations")),
    }
}
