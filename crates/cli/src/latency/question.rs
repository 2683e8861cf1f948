//! The intervals to measure: parsed from the command line, then resolved against the inputs.

use std::{fmt::Write as _, fs};

use hodo_engine::{
    Experiment, Needs, Trace, Traces,
    latency::{self, Named, NamedPair},
};
use hodo_model::{ExpressionError, Intervals, Nesting, Period, Root};

use super::arguments::{NestingChoice, QuestionArguments};
use crate::{failure::Failure, function};

/// A question with unresolved names.
pub enum Question {
    /// A question without names to resolve.
    Known(Intervals),
    Function(String),
    /// A system call, of control flow or of software events.
    SystemCall(String),
    Markers {
        from: Vec<Named>,
        to: Vec<Named>,
        nesting: Nesting,
    },
}

/// Prefix of software events in markers.
const EVENT: &str = "event:";

impl Question {
    /// Parses the question of the command line, if any. `matched` are fields that must be equal at both ends of
    /// software events.
    pub fn of(asked: &QuestionArguments, matched: &[(String, String)]) -> Result<Option<Question>, Failure> {
        let nesting = asked.nesting.map(nesting);
        let question = match asked {
            QuestionArguments { functions: true, .. } => Question::Known(Intervals::Functions),
            QuestionArguments { function: Some(name), .. } => Question::Function(name.clone()),
            QuestionArguments { pair: Some(name), .. } => {
                let all = pairs(asked)?;
                let Some(pair) = all.iter().find(|pair| pair.name == *name) else {
                    return Err(Failure::usage(format!(
                        "--pair: no pair is called `{name}`:\n{}",
                        list(&all)
                    )));
                };
                let NamedPair { from, to, .. } = pair.clone();
                Question::Markers { from, to, nesting: nesting.unwrap_or(pair.nesting) }
            }
            QuestionArguments { from: Some(from), to: Some(to), .. } => {
                between(from, to, nesting.unwrap_or_default(), matched)?
            }
            QuestionArguments { period: Some(text), .. } => {
                let Some((begin, end)) = text.split_once("->") else {
                    return Err(Failure::usage(format!(
                        "--period {text}: expected 'BEGIN -> END', two events"
                    )));
                };
                Question::Known(Intervals::Period(period(begin, end, matched)?))
            }
            QuestionArguments { syscall: Some(name), .. } => Question::SystemCall(name.clone()),
            QuestionArguments { irq: Some(number), .. } => Question::Known(Intervals::Interrupts(*number)),
            QuestionArguments { state: Some(state), .. } => Question::Known(Intervals::State(*state)),
            _ => return Ok(None),
        };
        let is_period = matches!(question, Question::Known(Intervals::Period(_)));
        match matched.is_empty() || is_period {
            true => Ok(Some(question)),
            false => Err(Failure::usage("--match is for software events: event:NAME")),
        }
    }

    /// Returns whether the question is about software events.
    pub fn is_of_events(&self) -> bool {
        matches!(self, Question::Known(known) if known.are_of_events())
    }

    /// Returns what it reads of the inputs.
    pub fn needs(&self) -> Needs {
        match self {
            Question::SystemCall(_) => Needs::ALL,
            question => {
                let events = question.is_of_events();
                Needs { flow: !events, sideband: false, events }
            }
        }
    }

    /// Decides whether a system call is measured in control flow or in software events.
    pub fn settled(self, experiment: &Experiment) -> Result<Question, Failure> {
        match self {
            Question::SystemCall(_) => Ok(Question::Known(self.resolve(experiment)?)),
            question => Ok(question),
        }
    }

    /// Returns whether each interval is of a thread.
    pub fn belongs_to_threads(&self) -> bool {
        !matches!(self, Question::Known(Intervals::Interrupts(_) | Intervals::Period(_)))
    }

    /// Resolves names to functions and places of the inputs.
    pub fn resolve(&self, experiment: &Experiment) -> Result<Intervals, Failure> {
        let (from, to, nesting) = match self {
            Question::Known(known) => return Ok(known.clone()),
            Question::Function(name) => {
                let function = |traces: &Traces<'_>| -> Result<_, Failure> {
                    Ok(latency::function(only(traces)?, name)?)
                };
                return Ok(Intervals::Function(experiment.with(function)?));
            }
            Question::SystemCall(name) => return system_call(name, experiment),
            Question::Markers { from, to, nesting } => (from, to, *nesting),
        };
        experiment.with(|traces| {
            let flow = only(traces)?;
            let (from, to) = (latency::markers(flow, from)?, latency::markers(flow, to)?);
            Ok(Intervals::Markers { from, to, nesting })
        })
    }
}

/// Returns the intervals of a system call: of control flow, if the inputs have the kernel's, else of software events.
fn system_call(name: &str, experiment: &Experiment) -> Result<Intervals, Failure> {
    let root = Root::SystemCall(name.to_owned());
    let functions = experiment.with(|traces| {
        let of_flow = |flow: &Trace<'_>| flow.modules.functions_of_root(&root).collect::<Vec<_>>();
        match traces.flows.as_slice() {
            flows if flows.iter().all(|flow| of_flow(flow).is_empty()) => Ok(Vec::new()),
            _ => Ok::<_, Failure>(of_flow(only(traces)?)),
        }
    })?;
    if !functions.is_empty() {
        return Ok(Intervals::SystemCalls { name: name.to_owned(), functions });
    }
    if experiment.contents.events {
        return Ok(Intervals::Syscalls(name.to_owned()));
    }
    Err(function::root(&root, experiment).err().unwrap_or_else(|| {
        Failure::usage("system calls are in the kernel's control flow, or in software events")
    }))
}

/// Returns the only trace of control flow.
pub fn only<'t, 'f>(traces: &'t Traces<'f>) -> Result<&'t Trace<'f>, Failure> {
    match traces.flows.as_slice() {
        [flow] => Ok(flow),
        [] => Err(Failure::usage(
            "the input has no control flow; write markers of software events as event:NAME",
        )),
        _ => Err(Failure::usage("functions and markers need a single recording of control flow")),
    }
}

fn nesting(choice: NestingChoice) -> Nesting {
    match choice {
        NestingChoice::Nested => Nesting::Nested,
        NestingChoice::First => Nesting::First,
        NestingChoice::Last => Nesting::Last,
    }
}

/// Parses a question from one marker to another: both are events, or both are in code.
fn between(
    from: &str,
    to: &str,
    nesting: Nesting,
    matched: &[(String, String)],
) -> Result<Question, Failure> {
    match (from.trim().strip_prefix(EVENT), to.trim().strip_prefix(EVENT)) {
        (Some(begin), Some(end)) => Ok(Question::Known(Intervals::Period(period(begin, end, matched)?))),
        (None, None) => {
            let wrong = |option| move |error: ExpressionError| Failure::usage(format!("{option}: {error}"));
            let (from, to) =
                (latency::parse(from).map_err(wrong("--from"))?, latency::parse(to).map_err(wrong("--to"))?);
            Ok(Question::Markers { from, to, nesting })
        }
        _ => Err(Failure::usage(
            "--from and --to must both be software events (event:NAME), or both markers in code",
        )),
    }
}

/// Parses a period from one software event to another.
fn period(begin: &str, end: &str, matched: &[(String, String)]) -> Result<Period, Failure> {
    let edge = |text: &str| {
        crate::arguments::edge(text.trim()).map_err(|why| Failure::usage(format!("{text}: {why}")))
    };
    Ok(Period { begin: edge(begin)?, end: edge(end)?, matched: matched.to_vec(), group: Vec::new() })
}

/// Returns the pairs of the user's file and the built-in pairs; the user's pairs override built-in ones of the same
/// name.
fn pairs(asked: &QuestionArguments) -> Result<Vec<NamedPair>, Failure> {
    let mut pairs = Vec::new();
    if let Some(path) = &asked.pairs {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| Failure::unreadable(failed(&error)))?;
        pairs = latency::user_pairs(&text).map_err(|error| Failure::usage(failed(&error)))?;
    }
    pairs.extend(latency::shipped());
    Ok(pairs)
}

/// Returns the list of pairs for `--pair list`.
pub fn pair_list(asked: &QuestionArguments) -> Result<Option<String>, Failure> {
    let asks = asked.pair.as_deref() == Some("list");
    asks.then(|| pairs(asked).map(|pairs| list(&pairs))).transpose()
}

fn list(pairs: &[NamedPair]) -> String {
    let mut text = String::new();
    for NamedPair { name, help, .. } in pairs {
        // Writing to memory does not fail.
        let _ = writeln!(text, "{name:15} {help}");
    }
    text
}
