//! What intervals are asked about: as the command line says it, then as the inputs know it.

use std::{fmt::Write as _, fs};

use hodo_engine::{
    Experiment, Traces,
    latency::{self, MarkerError, Named, NamedPair},
};
use hodo_model::{Edge, Intervals, Nesting, Period};

use super::arguments::{Latency, NestingChoice};
use crate::failure::Failure;

/// A question whose names nobody has looked up yet.
pub enum Question {
    Functions,
    Function(String),
    Markers { from: Vec<Named>, to: Vec<Named>, nesting: Nesting },
    Period(Period),
}

/// What a software event is written with.
const EVENT: &str = "event:";

impl Question {
    /// What the command line asks; `None` where it only asks for the list of pairs, which is then a text.
    pub fn of(command: &Latency) -> Result<Question, Failure> {
        let nesting = command.nesting.map(nesting);
        let question = match command {
            Latency { functions: true, .. } => Question::Functions,
            Latency { function: Some(name), .. } => Question::Function(name.clone()),
            Latency { pair: Some(name), .. } => {
                let all = pairs(command)?;
                let Some(pair) = all.iter().find(|pair| pair.name == *name) else {
                    return Err(Failure::usage(format!(
                        "--pair: no pair is called `{name}`:\n{}",
                        list(&all)
                    )));
                };
                let NamedPair { from, to, .. } = pair.clone();
                Question::Markers { from, to, nesting: nesting.unwrap_or(pair.nesting) }
            }
            Latency { from: Some(from), to: Some(to), .. } => {
                between(command, from, to, nesting.unwrap_or_default())?
            }
            Latency { syscall: Some(name), .. } => {
                let edge =
                    |kind: &str| Edge { pattern: format!("syscall_{kind}_{name}"), condition: String::new() };
                let (begin, end) = (edge("entry"), edge("exit"));
                let tid = ("tid".to_owned(), "tid".to_owned());
                let matched = if command.matched.is_empty() { vec![tid] } else { command.matched.clone() };
                Question::Period(Period { begin, end, matched, group: Vec::new() })
            }
            Latency { irq: Some(number), .. } => {
                let edge = |kind: &str| Edge {
                    pattern: format!("irq_handler_{kind}"),
                    condition: format!("irq == {number}"),
                };
                let cpu = ("cpu".to_owned(), "cpu".to_owned());
                Question::Period(Period {
                    begin: edge("entry"),
                    end: edge("exit"),
                    matched: vec![cpu],
                    group: Vec::new(),
                })
            }
            _ => {
                return Err(Failure::usage(
                    "from where to where? --function FUNC, --functions, --from MARKER --to MARKER, --pair NAME, --syscall NAME or --irq NUMBER; see `hodo latency --help`",
                ));
            }
        };
        match question {
            Question::Period(_) => Ok(question),
            _ if !command.matched.is_empty() => {
                Err(Failure::usage("--match is for software events: event:NAME"))
            }
            _ => Ok(question),
        }
    }

    /// Whether it is about software events.
    pub fn is_of_events(&self) -> bool {
        matches!(self, Question::Period(_))
    }

    /// The same with the functions and places of the inputs.
    pub fn resolve(&self, experiment: &Experiment) -> Result<Intervals, Failure> {
        let (from, to, nesting) = match self {
            Question::Functions => return Ok(Intervals::Functions),
            Question::Period(period) => return Ok(Intervals::Period(period.clone())),
            Question::Function(name) => {
                let function = |traces: &Traces<'_>| -> Result<_, Failure> {
                    Ok(latency::function(only(traces)?, name)?)
                };
                return Ok(Intervals::Function(experiment.with(function)?));
            }
            Question::Markers { from, to, nesting } => (from, to, *nesting),
        };
        experiment.with(|traces| {
            let flow = only(traces)?;
            let (from, to) = (latency::markers(flow, from)?, latency::markers(flow, to)?);
            Ok(Intervals::Markers { from, to, nesting })
        })
    }
}

/// The one trace of control flow.
pub fn only<'t, 'f>(traces: &'t Traces<'f>) -> Result<&'t hodo_engine::FlowTrace<'f>, Failure> {
    match traces.flows.as_slice() {
        [(_, flow)] => Ok(flow),
        [] => Err(Failure::usage("the input has no control flow; markers of software events are event:NAME")),
        _ => Err(Failure::usage("functions and markers are of one recording of control flow; name only one")),
    }
}

fn nesting(choice: NestingChoice) -> Nesting {
    match choice {
        NestingChoice::Nested => Nesting::Nested,
        NestingChoice::First => Nesting::First,
        NestingChoice::Last => Nesting::Last,
    }
}

fn between(command: &Latency, from: &str, to: &str, nesting: Nesting) -> Result<Question, Failure> {
    match (from.trim().strip_prefix(EVENT), to.trim().strip_prefix(EVENT)) {
        (Some(begin), Some(end)) => {
            let edge = |option: &str, text: &str| {
                crate::arguments::edge(text).map_err(|why| Failure::usage(format!("{option}: {why}")))
            };
            let (begin, end) = (edge("--from", begin)?, edge("--to", end)?);
            Ok(Question::Period(Period { begin, end, matched: command.matched.clone(), group: Vec::new() }))
        }
        (None, None) => {
            let wrong = |option| move |error: MarkerError| Failure::usage(format!("{option}: {error}"));
            let (from, to) =
                (latency::parse(from).map_err(wrong("--from"))?, latency::parse(to).map_err(wrong("--to"))?);
            Ok(Question::Markers { from, to, nesting })
        }
        _ => Err(Failure::usage("--from and --to: both are software events (event:NAME), or neither is")),
    }
}

/// The pairs of the user's file, and those that ship, unless the user's have their names.
fn pairs(command: &Latency) -> Result<Vec<NamedPair>, Failure> {
    let mut pairs = Vec::new();
    if let Some(path) = &command.pairs {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| Failure::unreadable(failed(&error)))?;
        pairs = latency::user_pairs(&text).map_err(|error| Failure::usage(failed(&error)))?;
    }
    pairs.extend(latency::shipped());
    Ok(pairs)
}

/// The list of pairs that `--pair list` asks for.
pub fn pair_list(command: &Latency) -> Result<Option<String>, Failure> {
    let asks = command.pair.as_deref() == Some("list");
    asks.then(|| pairs(command).map(|pairs| list(&pairs))).transpose()
}

fn list(pairs: &[NamedPair]) -> String {
    let mut text = String::new();
    for NamedPair { name, help, .. } in pairs {
        // Writing to memory does not fail.
        let _ = writeln!(text, "{name:15} {help}");
    }
    text
}
