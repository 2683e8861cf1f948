//! Places several inputs on one timeline: experiments from `hodo sync`, manual offsets, and known relations of clocks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hodo_engine::{
    Experiment, Relation, Synchronised, TimelineRequest, TraceClock, TraceOffset, Traces, nanos,
};
use hodo_model::{Column, Shape, Table, Unit, Value};

use crate::{arguments::Input, failure::Failure};

/// Largest size of an experiment file, in bytes; `hodo sync` writes no larger ones.
const LARGEST_EXPERIMENT: u64 = 1 << 30;

/// Parses `--offset TRACE=±TIME`.
pub fn offset(text: &str) -> Result<TraceOffset, String> {
    let wrong = || "expected TRACE=±TIME, such as ./kernel-trace=-1.5s or b.data=+300us".to_owned();
    let (trace, time) = text.rsplit_once('=').filter(|(trace, _)| !trace.is_empty()).ok_or_else(wrong)?;
    let (sign, size) = match time.strip_prefix('-') {
        Some(size) => (-1, size),
        None => (1, time.strip_prefix('+').unwrap_or(time)),
    };
    let nanos = nanos(size).ok_or_else(wrong)?;
    Ok(TraceOffset { trace: trace.to_owned(), nanos: sign * i128::from(nanos) })
}

/// Returns the files to open: the named ones, with an experiment replaced by its inputs.
pub fn files(input: &Input) -> Result<(Vec<PathBuf>, Option<Synchronised>), Failure> {
    let mut files = Vec::new();
    let mut synchronised = None;
    for file in &input.files {
        if !is_experiment(file) {
            files.push(file.clone());
            continue;
        }
        let experiment = read(file)?;
        files.extend(experiment.traces.iter().map(|trace| trace.input.clone()));
        if synchronised.replace(experiment).is_some() {
            return Err(Failure::usage("name one experiment: two have two timelines"));
        }
    }
    Ok((files, synchronised))
}

fn is_experiment(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "toml") && file.is_file()
}

/// Reads an experiment. The paths of its inputs are relative to its folder.
fn read(file: &Path) -> Result<Synchronised, Failure> {
    let failed = |why: String| Failure::unreadable(format!("{}: {why}", file.display()));
    if fs::metadata(file).is_ok_and(|metadata| metadata.len() > LARGEST_EXPERIMENT) {
        return Err(failed("the file is too large for an experiment of `hodo sync`".to_owned()));
    }
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let mut experiment: Synchronised = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        failed(format!("not an experiment of `hodo sync`: {} at byte {offset}", error.message()))
    })?;
    experiment.check().map_err(|error| failed(error.to_string()))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    for trace in &mut experiment.traces {
        trace.input = folder.join(&trace.input);
    }
    Ok(experiment)
}

/// Places all traces on one timeline.
pub fn place(
    experiment: &mut Experiment,
    input: &Input,
    synchronised: Option<Synchronised>,
) -> Result<(), Failure> {
    Ok(experiment.place(&TimelineRequest { offsets: input.offset.clone(), synchronised })?)
}

/// Rejects merging events of inputs with unrelated clocks.
pub fn refuse_unrelated(traces: &Traces<'_>) -> Result<(), Failure> {
    let inputs = &traces.event_inputs;
    let Some((input, why)) = traces.unrelated.first().filter(|_| inputs.first() != inputs.last()) else {
        return Ok(());
    };
    let more = match traces.unrelated.len() - 1 {
        0 => String::new(),
        count => format!(" (and {count} more inputs)"),
    };
    Err(Failure::usage(format!(
        "{input}{more}: its events can't be put in order with the others: {why}. Let `hodo sync -o experiment.toml` relate the clocks by events that both sides saw, and name experiment.toml here; or say how far they are apart: --offset {input}=+0s takes times as they are"
    )))
}

/// Reports inputs with unrelated clocks on standard error.
pub fn report_unrelated(experiment: &Experiment) {
    for sentence in experiment.unrelated() {
        message!("unrelated clocks: {sentence}");
    }
}

/// Reports traces of one input that may have separate clocks, on standard error.
pub fn report_separate_clocks(experiment: &Experiment) {
    let mut doubtful = experiment.clocks.iter().filter(|clock| clock.relation == Relation::AsItIs);
    if let Some(first) = doubtful.next() {
        let more = match doubtful.count() {
            0 => String::new(),
            count => format!(" (and {count} more traces)"),
        };
        message!("{}{more}: {}", first.trace, first.how);
    }
}

/// Returns the table of clocks, if there are several traces.
pub fn clocks(experiment: &Experiment) -> Option<Table> {
    let clocks = &experiment.clocks;
    if clocks.len() < 2 {
        return None;
    }
    let columns = vec![
        Column::text("trace"),
        Column::text("clock"),
        Column::text("host"),
        Column::text("relation"),
        Column::signed("offset_ns", Unit::Nanoseconds),
        Column::integer("half_width_ns", Unit::Nanoseconds),
        Column::text("how"),
    ];
    let several = clocks.iter().any(|clock| clock.input != clocks[0].input);
    let row = |clock: &TraceClock| {
        let name = if several { format!("{}: {}", clock.input, clock.trace) } else { clock.trace.clone() };
        let row: Vec<Value> = vec![
            name.into(),
            clock.clock.as_str().into(),
            clock.host.as_deref().into(),
            relation(clock.relation).into(),
            clock.offset_ns.into(),
            clock.half_width_ns.into(),
            clock.how.as_str().into(),
        ];
        row
    };
    Some(Table::new("clocks", Shape::Counters, Vec::new(), columns, clocks.iter().map(row)))
}

fn relation(relation: Relation) -> &'static str {
    match relation {
        Relation::Reference => "the timeline",
        Relation::Related => "one clock",
        Relation::ByHand => "by hand",
        Relation::Synchronised => "synchronised",
        Relation::AsItIs => "as it is",
        Relation::Unrelated => "unrelated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_signs_and_units() {
        let parsed = |text: &str| offset(text).map(|offset| (offset.trace, offset.nanos));
        assert_eq!(parsed("a=b/c=+1.5s"), Ok(("a=b/c".to_owned(), 1_500_000_000)));
        assert_eq!(parsed("x=-300us"), Ok(("x".to_owned(), -300_000)));
        assert_eq!(parsed("x=0"), Ok(("x".to_owned(), 0)));
        assert!(
            parsed("x").is_err()
                && parsed("=1s").is_err()
                && parsed("x=--1s").is_err()
                && parsed("x=1y").is_err()
        );
    }
}
