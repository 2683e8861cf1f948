//! `hodo view`: what the server shows of control flow, by the code of `hodo report`, `latency`, `diff` and `annotate`.

use std::sync::{Mutex, OnceLock, PoisonError};

use clap::Parser;
use hodo_engine::{
    Chunks, Experiment, Needs,
    latency::{self as executions, Interval, NamedPair},
    reports_for,
};
use hodo_model::{Parameters, Role, Table};
use hodo_server::{
    Compared, Differences, Execution, FlowInputs, FlowSelection, Latency, Measured, Pair, Recording, Refused,
    Stop, Walk,
};
use serde_json::Value;

use crate::{
    annotate::{self, Sources},
    arguments::{Arguments, Command, Input},
    diff::{self, Diff, gather},
    failure::Failure,
    function, input,
    latency::{
        self,
        arguments::{NestingChoice, QuestionArguments},
        question::{Question, only},
        tables,
    },
    progress::{Begin, Progress},
    stepping::page,
    view::Opened,
};

/// A recording of control flow among the inputs.
pub struct Recorded {
    name: String,
    threads: Vec<(String, u32)>,
    /// The options of the command line, with this recording as the only file.
    input: Input,
    /// The recording opened without the other inputs, when it is first needed; unused if it is the only recording.
    alone: OnceLock<Result<Experiment, String>>,
    /// The positions in its execution, when they are first needed.
    execution: Mutex<Option<hodo_stepping::Execution>>,
}

impl Recorded {
    /// Returns the recordings among opened inputs.
    pub fn of(input: &Input, experiment: &Experiment) -> Vec<Recorded> {
        experiment.with(|traces| {
            let flows = traces.flows.iter().filter(|flow| flow.bytes() > 0);
            let is_only = flows.clone().count() == 1;
            let recorded = |flow: &hodo_engine::Trace<'_>| {
                let files = match (is_only, input.files.get(flow.input)) {
                    (false, Some(file)) => vec![file.clone()],
                    _ => input.files.clone(),
                };
                let threads =
                    flow.threads.iter().map(|thread| (format!("{}/{}", thread.pid, thread.tid), thread.tid));
                Recorded {
                    name: flow.name.clone(),
                    threads: threads.collect(),
                    input: input.of_files(files),
                    alone: OnceLock::new(),
                    execution: Mutex::new(None),
                }
            };
            flows.map(recorded).collect()
        })
    }
}

/// Makes the progress of work that a page waits for.
fn begin(stop: &Stop) -> impl Fn(u64) -> Progress {
    let stop = Stop::clone(stop);
    move |_| Progress::stopped_by(&stop)
}

fn refused(why: impl std::fmt::Display) -> Refused {
    Refused(why.to_string())
}

impl Opened {
    fn recording(&self, number: usize) -> Result<(&Input, &Experiment), Refused> {
        let Some(recorded) = self.recordings.get(number) else {
            return Err(refused(format!("there is no recording {number} of control flow")));
        };
        if self.recordings.len() == 1 {
            return Ok((&recorded.input, &self.experiment));
        }
        let needs = Needs { flow: true, sideband: false, events: false };
        let open = || input::experiment(&recorded.input, needs).map_err(|failure| failure.to_string());
        Ok((&recorded.input, recorded.alone.get_or_init(open).as_ref().map_err(refused)?))
    }

    /// Returns the recording of a part, and the options that select the part.
    fn part(&self, part: &FlowSelection) -> Result<(Input, &Experiment), Refused> {
        let (input, experiment) = self.recording(part.recording)?;
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let time = part.span.map(|(from, to)| format!("{},{}", seconds(from), seconds(to)));
        let time = time.or_else(|| input.time.clone());
        let tid = part.thread.map_or_else(|| input.tid.clone(), |thread| vec![thread]);
        Ok((Input { time, tid, quiet: true, ..input.clone() }, experiment))
    }

    /// Returns the options of `hodo diff` for a comparison.
    fn compared(&self, compared: &Compared) -> Result<Box<Diff>, Refused> {
        let words: Vec<String> = match compared {
            Compared::Recordings => vec![],
            Compared::Executions { function, n, m } => {
                vec![format!("--function={function}"), format!("--nth={n},{m}")]
            }
        };
        let all = ["hodo".to_owned(), "diff".to_owned()].into_iter().chain(words);
        let mut command = match Arguments::try_parse_from(all).map_err(refused)?.command {
            Command::Diff(diff) => diff.into_inner(),
            _ => return Err(refused("this is no comparison")),
        };
        command.input = Input { quiet: true, ..self.recording(0)?.0.clone() };
        if *compared == Compared::Recordings {
            let files_of = |number| Ok::<_, Refused>(self.recording(number)?.0.files.clone());
            command.input.files = [files_of(0)?, files_of(1)?].concat();
        }
        Ok(command)
    }
}

fn question(measured: &Measured) -> Result<Question, Failure> {
    let asked = match measured.clone() {
        Measured::Function(name) => {
            QuestionArguments { function: Some(name), ..QuestionArguments::default() }
        }
        Measured::Pair(name) => QuestionArguments { pair: Some(name), ..QuestionArguments::default() },
        Measured::Markers(from, to) => {
            QuestionArguments { from: Some(from), to: Some(to), ..QuestionArguments::default() }
        }
        Measured::Place(place) => QuestionArguments {
            from: Some(place.clone()),
            to: Some(place),
            nesting: Some(NestingChoice::First),
            ..QuestionArguments::default()
        },
    };
    Question::of(&asked, &[])?.ok_or_else(|| Failure::usage("nothing to measure"))
}

/// Returns the table of executions; `None` if stopped.
fn measure(
    question: &Question,
    input: &Input,
    experiment: &Experiment,
    begin: Begin<'_>,
) -> Result<Option<Table>, Failure> {
    let request = latency::request(question, input, experiment, "executions")?;
    let progress = begin(experiment.work(&request));
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    Ok(outcome.tables.into_iter().next().filter(|_| !progress.is_interrupted()))
}

fn execution((interval, nth): (&Interval, u64)) -> Execution {
    Execution {
        nth,
        thread: interval.thread.clone(),
        begin: interval.begin,
        time: interval.time,
        instructions: interval.instructions,
        cycles: interval.cycles,
        caller: interval.caller.clone(),
        is_complete: interval.ended.is_complete(),
    }
}

impl FlowInputs for Opened {
    fn recordings(&self) -> Vec<Recording> {
        let recording = |recorded: &Recorded| Recording {
            name: recorded.name.clone(),
            threads: recorded.threads.clone(),
        };
        self.recordings.iter().map(recording).collect()
    }

    fn functions(&self) -> Vec<(String, String)> {
        self.experiment
            .with(|traces| traces.flows.iter().flat_map(|flow| flow.modules.function_names()).collect())
    }

    fn paths(&self, part: &FlowSelection, stop: &Stop) -> Result<Option<Table>, Refused> {
        let (input, experiment) = self.part(part)?;
        let parameters =
            Parameters { selection: gather::selection(&input), alone: true, ..Parameters::default() };
        let made = gather::run(&input, experiment, reports_for(Role::CallPaths), parameters, &begin(stop));
        Ok(made.map_err(refused)?.and_then(|tables| tables.into_iter().next()))
    }

    fn pairs(&self) -> Vec<Pair> {
        let pair = |pair: NamedPair| Pair { name: pair.name, help: pair.help };
        executions::shipped().into_iter().map(pair).collect()
    }

    fn latency(
        &self,
        part: &FlowSelection,
        measured: &Measured,
        stop: &Stop,
    ) -> Result<Option<Latency>, Refused> {
        let (input, experiment) = self.part(part)?;
        let question = question(measured).map_err(refused)?;
        let made = measure(&question, &input, experiment, &begin(stop)).map_err(refused)?;
        let Some(table) = made else { return Ok(None) };
        let intervals = executions::of_table(&table).unwrap_or_default();
        let histogram = executions::histogram(table.summary.clone(), &intervals).with_loss(table.loss);
        let percentiles = tables::percentiles(table.summary, &intervals);
        let executions = intervals.iter().zip(1..).map(execution).collect();
        Ok(Some(Latency { percentiles, histogram, executions }))
    }

    fn trees(
        &self,
        part: &FlowSelection,
        measured: &Measured,
        nth: u64,
        stop: &Stop,
    ) -> Result<Option<Table>, Refused> {
        let (input, experiment) = self.part(part)?;
        let question = question(measured).map_err(refused)?;
        let begin = begin(stop);
        let Some(table) = measure(&question, &input, experiment, &begin).map_err(refused)? else {
            return Ok(None);
        };
        let intervals = executions::of_table(&table).unwrap_or_default();
        let complete: Vec<&Interval> =
            intervals.iter().filter(|interval| interval.ended.is_complete()).collect();
        let chosen = usize::try_from(nth).ok().and_then(|nth| intervals.get(nth.checked_sub(1)?));
        let asked = executions::typical(&complete).zip(chosen).map(|(typical, chosen)| [typical, chosen]);
        let Some(asked) = asked.filter(|both| both.iter().all(|one| executions::location(one).is_some()))
        else {
            return Err(refused(format!("execution {nth} has no call tree")));
        };
        // Instructions are numbered over whole threads.
        let request = latency::request(&question, &Input { time: None, ..input }, experiment, "executions");
        let request = request.map_err(refused)?;
        let trees = latency::trees(experiment, &request, &asked, &begin).map_err(refused)?;
        Ok(trees.and_then(|trees| match trees.as_slice() {
            [typical, chosen] => Some(executions::aligned(typical, chosen)),
            _ => None,
        }))
    }

    fn diff(&self, compared: &Compared, stop: &Stop) -> Result<Option<Differences>, Refused> {
        let command = self.compared(compared)?;
        let sides = command.sides().map_err(refused)?;
        let Some(found) = diff::find(&command, &sides, &begin(stop)).map_err(refused)? else {
            return Ok(None);
        };
        let Some(comparison) = found.comparison else {
            return Err(refused("a side has no control flow"));
        };
        let functions = comparison.table().with_loss(found.loss);
        Ok(Some(Differences { functions, paths: comparison.tree() }))
    }

    fn divergence(&self, compared: &Compared, stop: &Stop) -> Result<Option<Table>, Refused> {
        let command = self.compared(compared)?;
        let sides = command.sides().map_err(refused)?;
        diff::divergence::table(&command, &sides, &begin(stop)).map(Some).map_err(refused)
    }

    fn annotate(&self, part: &FlowSelection, function: &str, stop: &Stop) -> Result<Option<Value>, Refused> {
        let (input, experiment) = self.part(part)?;
        let made = experiment.with(|traces| -> Result<Option<Value>, Failure> {
            let flow = only(traces)?;
            let window = input::span(&input, traces)?;
            let function = function::find(function, flow)?;
            let size = Chunks::Default;
            let read = input::read(&input, flow, size, window, &begin(stop), |reading, keep_going| {
                hodo_engine::annotate(flow, function, reading, keep_going)
            })?;
            let Some((annotation, _)) = read else { return Ok(None) };
            let sources = Sources::find(&annotation, &[], &[]);
            Ok(Some(annotate::value(&annotation, &sources).map_err(Failure::unreadable)?))
        });
        made.map_err(refused)
    }

    fn execution(&self, walk: &Walk, stop: &Stop) -> Result<Option<Value>, Refused> {
        let (input, experiment) = self.recording(walk.recording)?;
        let recorded = &self.recordings[walk.recording];
        // One step at a time: they share what is decoded.
        let mut execution = recorded.execution.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = begin(stop)(0);
        let seen = experiment.with(|traces| {
            let flow = only(traces)?;
            if execution.is_none() {
                *execution =
                    hodo_stepping::Execution::open(flow, input::threads(input), |done| progress.set(done));
            }
            let Some(execution) = execution.as_mut() else { return Ok(None) };
            page::seen(flow, execution, walk, &|| !progress.is_interrupted())
        });
        seen.map_err(refused)
    }
}
