//! `hodo diff`.

mod arguments;
pub mod divergence;
pub mod gather;

use std::process::ExitCode;

use hodo_compare::{Comparison, Inlined, Latencies, Options, Sides, latencies, paths};
use hodo_model::{Loss, Table};
use hodo_views::Reader;

pub use arguments::Diff;

use self::gather::{Gathered, gather, inlined};
use crate::{
    arguments::Input,
    failure::{Failure, INTERRUPTED, LOSS},
    output,
    progress::{Begin, Progress},
};

/// Number of rows that the message of `--fail-over` names, at most.
const WORST: usize = 3;

/// Runs the command.
pub fn run(command: &Diff) -> Result<ExitCode, Failure> {
    let sides = command.sides()?;
    let begin: Begin<'_> = &|bytes| Progress::new(bytes, command.input.quiet);
    let Some(Found { comparison, latencies, loss }) = find(command, &sides, begin)? else {
        return Ok(INTERRUPTED.into());
    };
    let mut tables = comparison.as_ref().map_or(Vec::new(), |found| shown(found, command));
    tables.extend(latencies.iter().map(|found| found.table.clone()));
    if command.divergence {
        tables.push(divergence::table(command, &sides, begin)?);
    }
    if let Some(table) = tables.first_mut() {
        table.loss = loss;
    }
    let lossless = tables.first().is_none_or(|table| table.loss.is_empty());
    output::draw_all(tables, &command.output)?;
    let mut exit = if command.input.strict && !lossless { LOSS.into() } else { ExitCode::SUCCESS };
    for message in too_much(command, comparison.as_ref(), &latencies) {
        eprintln!("hodo: {message}");
        exit = LOSS.into();
    }
    Ok(exit)
}

/// Makes the tables of the command, for programs; `None` if interrupted.
pub fn tables(command: &Diff, begin: Begin<'_>) -> Result<Option<Vec<Table>>, Failure> {
    let sides = command.sides()?;
    let Some(Found { comparison, latencies, loss }) = find(command, &sides, begin)? else { return Ok(None) };
    let comparison = comparison.map(|found| found.table());
    let mut tables: Vec<Table> =
        comparison.into_iter().chain(latencies.into_iter().map(|found| found.table)).collect();
    if let Some(table) = tables.first_mut() {
        table.loss = loss;
    }
    Ok(Some(tables))
}

/// The differences of two sides.
pub struct Found {
    /// Those of control flow; `None` if a side has none.
    pub comparison: Option<Comparison>,
    /// Those of latencies of events, by report.
    pub latencies: Vec<Latencies>,
    /// What was lost of both sides.
    pub loss: Vec<Loss>,
}

/// Compares two sides; `None` if interrupted.
pub fn find(command: &Diff, sides: &Sides<Vec<Input>>, begin: Begin<'_>) -> Result<Option<Found>, Failure> {
    let gathered = (gather(command, &sides.a, "A", begin)?, gather(command, &sides.b, "B", begin)?);
    let (Some(a), Some(b)) = gathered else { return Ok(None) };
    if a.paths.is_empty() != b.paths.is_empty() && (a.events.is_empty() || b.events.is_empty()) {
        return Err(Failure::usage(
            "one side is a recording of control flow and the other has software events",
        ));
    }
    let mut comparison = compare(command, &a, &b)?;
    if let Some(found) = comparison.take() {
        comparison = Some(with_inlined(found, command, sides, begin)?);
    }
    let latencies = of_events(&a, &b);
    Ok(Some(Found { comparison, latencies, loss: [a.loss, b.loss].concat() }))
}

/// Compares control flow; `None` if a side has none.
fn compare(command: &Diff, a: &Gathered, b: &Gathered) -> Result<Option<Comparison>, Failure> {
    if a.paths.is_empty() || b.paths.is_empty() {
        return Ok(None);
    }
    for (name, side) in [("A", a), ("B", b)] {
        if side.weights.iter().sum::<u64>() == 0 {
            let what = command.function.as_ref().or(command.per.as_ref()).map_or("", String::as_str);
            return Err(Failure::usage(format!("{name} contains no complete execution of {what}")));
        }
    }
    let options = Options { rows: command.rows(), unit: command.unit() };
    let weights = Sides::new(a.weights.clone(), b.weights.clone());
    Ok(Some(paths(Sides::new(&a.paths, &b.paths), weights, options)))
}

/// Adds the inlined executions of functions that only the other side calls, from the first recording of each side.
fn with_inlined(
    comparison: Comparison,
    command: &Diff,
    sides: &Sides<Vec<Input>>,
    begin: Begin<'_>,
) -> Result<Comparison, Failure> {
    let only = comparison.only_in();
    let of = |side: &[Input], names| -> Result<Inlined, Failure> {
        side.first().map_or(Ok(Inlined::new()), |input| inlined(input, command.root(), names, begin))
    };
    let found = Sides::new(of(&sides.a, &only.b)?, of(&sides.b, &only.a)?);
    Ok(comparison.with_inlined(found))
}

/// Compares latencies of events, by report.
fn of_events(a: &Gathered, b: &Gathered) -> Vec<Latencies> {
    let of = |(name, tables): (&&'static str, &Vec<Table>)| {
        Some(latencies(Sides::new(tables, b.events.get(name)?)))
    };
    a.events.iter().filter_map(of).collect()
}

/// Returns the tables of a comparison; for people, separate tables of grown and shrunk rows.
fn shown(comparison: &Comparison, command: &Diff) -> Vec<Table> {
    match output::view(&command.output).reader {
        Reader::People => {
            let [grown, shrunk] = comparison.tables();
            let shrunk = (!shrunk.is_empty()).then_some(shrunk);
            [grown].into_iter().chain(shrunk).collect()
        }
        _ => vec![comparison.table()],
    }
}

/// Returns messages on growth above `--fail-over`.
fn too_much(command: &Diff, comparison: Option<&Comparison>, latencies: &[Latencies]) -> Vec<String> {
    let Some(allowed) = command.fail_over else { return Vec::new() };
    let over = |growth: &f64| *growth > allowed;
    let percent = |share: f64| format!("{:+.2} %", share * 100.0);
    let limit = format!("--fail-over allows {:.2} %", allowed * 100.0);
    let mut messages = Vec::new();
    if let Some(comparison) = comparison {
        let worst = comparison.worst(WORST).join(", ");
        if let Some(growth) = comparison.growth().filter(over) {
            messages.push(format!("instructions {}, and {limit}; most by {worst}", percent(growth)));
        }
        if let Some(growth) = comparison.growth_of_time().filter(over) {
            messages.push(format!("time {}, and {limit}; most by {worst}", percent(growth)));
        }
    }
    for (name, growth) in latencies.iter().flat_map(|found| &found.grown).filter(|(_, growth)| over(growth)) {
        messages.push(format!("median of {name} {}, and {limit}", percent(*growth)));
    }
    messages
}
