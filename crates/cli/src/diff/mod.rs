//! `hodo diff`.

mod arguments;
pub mod divergence;
pub mod gather;

use std::process::ExitCode;

use hodo_compare::{Comparison, Growth, Inlined, Latencies, Options, Sides, latencies, paths, statistics};
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
    let mut tables = comparison.as_ref().map_or(Vec::new(), |comparison| shown(comparison, command));
    tables.extend(latencies.iter().map(|latencies| latencies.table.clone()));
    if command.divergence {
        tables.push(divergence::table(command, &sides, begin)?);
    }
    if let Some(table) = tables.first_mut() {
        table.loss = loss;
    }
    let lossless = tables.first().is_none_or(|table| table.loss.is_empty());
    output::draw_all(tables, &command.output)?;
    let mut exit = if command.input.strict && !lossless { LOSS.into() } else { ExitCode::SUCCESS };
    let Some(allowed) = command.fail_over else { return Ok(exit) };
    let Verdict { failures, notes } = judge_growth(allowed, comparison.as_ref(), &latencies);
    notes.into_iter().chain(note_on_few(&sides)).for_each(|note| message!("{note}"));
    for failure in failures {
        message!("{failure}");
        exit = LOSS.into();
    }
    Ok(exit)
}

/// Makes the tables of the command, for programs; `None` if interrupted.
pub fn tables(command: &Diff, begin: Begin<'_>) -> Result<Option<Vec<Table>>, Failure> {
    let sides = command.sides()?;
    let Some(Found { comparison, latencies, loss }) = find(command, &sides, begin)? else { return Ok(None) };
    let comparison = comparison.map(|comparison| comparison.table());
    let mut tables: Vec<Table> =
        comparison.into_iter().chain(latencies.into_iter().map(|latencies| latencies.table)).collect();
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
    let comparison = match compare(command, &a, &b)? {
        Some(comparison) => Some(with_inlined(comparison, command, sides, begin)?),
        None => None,
    };
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
    let options = Options { rows: command.rows(), divisor: command.divisor() };
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
    let inlined_in = |side: &[Input], names| -> Result<Inlined, Failure> {
        side.first().map_or(Ok(Inlined::new()), |input| inlined(input, command.root(), names, begin))
    };
    let inlined = Sides::new(inlined_in(&sides.a, &only.b)?, inlined_in(&sides.b, &only.a)?);
    Ok(comparison.with_inlined(inlined))
}

/// Compares latencies of events, by report.
fn of_events(a: &Gathered, b: &Gathered) -> Vec<Latencies> {
    let compared = |(name, tables): (&&'static str, &Vec<Table>)| {
        Some(latencies(Sides::new(tables, b.events.get(name)?)))
    };
    a.events.iter().filter_map(compared).collect()
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

/// What `--fail-over` says.
#[derive(Default)]
struct Verdict {
    /// Growth above the limit.
    failures: Vec<String>,
    /// Growth above the limit that may be chance.
    notes: Vec<String>,
}

impl Verdict {
    fn add(&mut self, what: &str, growth: Option<Growth>, limit: &str, worst: &str) {
        let Some(growth) = growth else { return };
        let grown = percent(growth.share);
        match growth.p.filter(|_| !growth.is_significant()) {
            None => self.failures.push(format!("{what} {grown}, and {limit}; most by {worst}")),
            Some(p) => self.notes.push(format!(
                "{what} {grown}, but recordings of one side differ as much (p = {p:.2}): this does not fail"
            )),
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:+.2} %", share * 100.0)
}

/// Compares growth with the limit of `--fail-over`.
fn judge_growth(allowed: f64, comparison: Option<&Comparison>, latencies: &[Latencies]) -> Verdict {
    let limit = format!("--fail-over allows {:.2} %", allowed * 100.0);
    let mut verdict = Verdict::default();
    if let Some(comparison) = comparison {
        let worst = comparison.worst(WORST).join(", ");
        let over = |growth: &Growth| growth.share > allowed;
        verdict.add("instructions", comparison.growth().filter(over), &limit, &worst);
        verdict.add("time", comparison.growth_of_time().filter(over), &limit, &worst);
    }
    let grown = latencies.iter().flat_map(|latencies| &latencies.grown);
    for (name, growth) in grown.filter(|(_, growth)| *growth > allowed) {
        verdict.failures.push(format!("median of {name} {}, and {limit}", percent(*growth)));
    }
    verdict
}

/// Returns a note if groups are too small for any difference to be significant.
fn note_on_few(sides: &Sides<Vec<Input>>) -> Option<String> {
    let (a, b) = (sides.a.len(), sides.b.len());
    let least = statistics::least_p(a, b);
    let few = a > 1 && b > 1 && least >= statistics::SIGNIFICANT;
    few.then(|| {
        format!(
            "{a} and {b} recordings can't give less than p = {least:.2}, so no difference fails that recordings of one side have too; record four or more on each side"
        )
    })
}
