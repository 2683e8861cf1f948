//! `hodo explain`.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{
    Experiment, Needs, Request, Traces,
    latency::{self, CallTree, Interval},
};
use hodo_findings::{CAUSES, Evidence, Finding, Need, RULES, findings, needs, questions, table};
use hodo_model::{FunctionId, Intervals, Parameters, Role, Selection, Table};

use crate::{
    arguments::{Explain, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    latency::{question::only, trees},
    output::{self, Destination},
    progress::Progress,
};

/// Width of text, in columns.
const WIDTH: usize = 100;

/// Runs the command.
pub fn run(command: &Explain) -> Result<ExitCode, Failure> {
    if command.list {
        let lines = RULES.iter().map(|rule| format!("{:16} {}\n", rule.name, rule.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let experiment = input::experiment(&command.input, Needs::ALL)?;
    let progress = Progress::new(work(&command.input, &experiment)?, command.input.quiet);
    let found = find(&command.input, &experiment, &mut |done| progress.set(done))?;
    progress.finish();
    let Some(Found { findings: found, tables, lossless }) = found else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if command.output.format == "text" {
        let mut out = Destination::open(command.output.output.as_deref())?;
        written(out.write_all(text(&found, tables, command).as_bytes()))?;
        out.finish()?;
    } else {
        output::draw(table(&found), &command.output)?;
    }
    Ok(input::exit_code_of(&command.input, &experiment, lossless))
}

/// The findings of all rules.
pub struct Found {
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// The number of tables that the rules read.
    pub tables: usize,
    /// Whether nothing is missing from these.
    pub lossless: bool,
}

/// Returns the number of bytes that [`find`] reads, besides those of slow executions.
pub fn work(input: &Input, experiment: &Experiment) -> Result<u64, Failure> {
    let (_, request) = request(input, experiment)?;
    Ok(experiment.work(&request))
}

/// Reads the tables and applies the rules; `None` if `progress`, which gets the bytes done, or the user ends the work.
pub fn find(
    input: &Input,
    experiment: &Experiment,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Result<Option<Found>, Failure> {
    let (needs, request) = request(input, experiment)?;
    let mut wants_more = true;
    let outcome = experiment.run(&request, &mut |done| {
        wants_more = progress(done);
        wants_more
    })?;
    if !wants_more {
        return Ok(None);
    }
    let lossless = outcome.is_lossless();
    let mut tables = by_need(outcome.tables, &needs);
    let Some(causes) = causes(input, experiment, &request, &tables)? else { return Ok(None) };
    tables.extend(causes.into_iter().map(|table| (CAUSES, table)));
    let findings = findings(&evidence(&tables));
    Ok(Some(Found { findings, tables: tables.len(), lossless }))
}

/// Returns the request for the tables of all rules, and the need that each table meets.
fn request(input: &Input, experiment: &Experiment) -> Result<(Vec<Need>, Request), Failure> {
    let selection = crate::selection::Selection::new(input, None)?.of_tables(None);
    let report = |&(name, _): &Need| hodo_engine::report(name).expect("rules name reports");
    let needs = needs();
    let reports = needs.iter().map(report).collect();
    let parameters = Parameters { selection, ..Parameters::default() };
    let mut request = crate::input::request(input, None, reports, parameters, experiment)?;
    request.views = needs.iter().map(|(_, view)| *view).collect();
    Ok((needs, request))
}

/// Says of each table what it is of. Tables of one report come in the order of its views, for each trace.
fn by_need(tables: Vec<Table>, needs: &[Need]) -> Vec<(Need, Table)> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    let need = |table: Table| {
        let name = table.name();
        let views: Vec<Need> = needs.iter().copied().filter(|(report, _)| *report == name).collect();
        let count = counts.entry(views.first()?.0).or_default();
        *count += 1;
        Some((views[(*count - 1) % views.len()], table))
    };
    tables.into_iter().filter_map(need).collect()
}

fn evidence(tables: &[(Need, Table)]) -> Evidence<'_> {
    Evidence::new(tables.iter().map(|(need, table)| (*need, table)).collect())
}

/// Compares the slowest executions of functions with heavy tails with a typical one; returns a table of causes for each
/// function. `None` if interrupted. Only of whole recordings of control flow: of parts executions have no numbers.
fn causes(
    input: &Input,
    experiment: &Experiment,
    request: &Request,
    tables: &[(Need, Table)],
) -> Result<Option<Vec<Table>>, Failure> {
    let questions = questions(&evidence(tables));
    if questions.is_empty() || input.time.is_some() || input.call.is_some() {
        return Ok(Some(Vec::new()));
    }
    let mut found: Vec<(&str, Vec<Interval>)> = Vec::new();
    for (name, module) in &questions {
        // Of several recordings, or of several functions with that name in one file, no tables of causes are made.
        let named =
            |traces: &Traces<'_>| latency::function(only(traces).ok()?, &format!("{name}@{module}")).ok();
        let function = experiment.with(named);
        let Some(function) = function else { continue };
        let Some(intervals) = executions(input, experiment, request, function)? else { return Ok(None) };
        found.push((name, intervals));
    }
    let compared: Vec<_> =
        found.iter().filter_map(|(name, intervals)| Some((*name, sides(intervals)?))).collect();
    let asked: Vec<&Interval> = compared.iter().flat_map(|(_, sides)| sides.iter().copied()).collect();
    let Some(trees) = trees(experiment, request, &asked, &|bytes| Progress::new(bytes, input.quiet))? else {
        return Ok(None);
    };
    let mut trees = trees.into_iter();
    let table = |(name, sides): &(&str, Vec<&Interval>)| {
        let trees: Vec<CallTree> = trees.by_ref().take(sides.len()).collect();
        let (typical, slow) = trees.split_first()?;
        Some(latency::compare(typical, slow).causes_table(vec![("function", (*name).into())]))
    };
    Ok(Some(compared.iter().filter_map(table).collect()))
}

/// Returns all executions of a function; `None` if interrupted.
fn executions(
    input: &Input,
    experiment: &Experiment,
    request: &Request,
    function: FunctionId,
) -> Result<Option<Vec<Interval>>, Failure> {
    // Threads were selected when the recording was opened.
    let selection = Selection { view: "executions".to_owned(), ..Selection::default() };
    let intervals = Some(Intervals::Function(function));
    let parameters = Parameters { selection, intervals, alone: true, ..Parameters::default() };
    let reports = hodo_engine::reports_for(Role::Intervals);
    let request = Request { reports, views: Vec::new(), parameters, ..request.clone() };
    let progress = Progress::new(experiment.work(&request), input.quiet);
    let outcome = experiment.run(&request, &mut |done| progress.set(done))?;
    progress.finish();
    let intervals = outcome.tables.first().and_then(latency::of_table).unwrap_or_default();
    Ok((!progress.is_interrupted()).then_some(intervals))
}

/// Returns a typical execution, then the slowest ones.
fn sides(intervals: &[Interval]) -> Option<Vec<&Interval>> {
    let mut order: Vec<&Interval> =
        intervals.iter().filter(|interval| interval.ended.is_complete()).collect();
    order.sort_by_key(|interval| Reverse((interval.instructions, interval.time)));
    Some([latency::typical(&order)?].into_iter().chain(latency::slowest(&order)).collect())
}

/// Formats the findings for people.
fn text(found: &[Finding], tables: usize, command: &Explain) -> String {
    let names: Vec<String> = command.input.files.iter().map(|file| file.display().to_string()).collect();
    let inputs = names.join(" ");
    if found.is_empty() {
        return format!(
            "Nothing stands out: no number of {tables} tables passes a threshold (`hodo explain --list`).\n"
        );
    }
    let limit = command.output.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut text = String::new();
    for (number, finding) in (1..).zip(found.iter().take(limit)) {
        let lines = wrapped(&finding.sentence, WIDTH - 4);
        let number = format!("{number:2}. ");
        for (index, line) in lines.iter().enumerate() {
            text.push_str(if index == 0 { &number } else { "    " });
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&format!("    hodo {} {inputs}\n\n", finding.command));
    }
    text
}

/// Breaks text into lines of at most `width` characters, between words and not before `%`.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    const NO_BREAK: &str = "\u{a0}%";
    let mut lines: Vec<String> = Vec::new();
    for word in text.replace(" %", NO_BREAK).split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.replace(NO_BREAK, " %")).collect()
}
