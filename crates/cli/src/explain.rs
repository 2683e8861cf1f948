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
use hodo_findings::{
    CAUSES, Evidence, Execution, Finding, Need, PATTERNS, Question, RULES, Rule, WIDTH, findings, further,
    needs, patterns, questions, table, why, wrapped,
};
use hodo_model::{FunctionId, Intervals, Parameters, Role, Selection, Table};

use crate::{
    arguments::{Explain, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    latency::{question::only, trees},
    output::{self, Destination},
    progress::Progress,
};

/// Runs the command.
pub fn run(command: &Explain) -> Result<ExitCode, Failure> {
    if command.list {
        let lines = RULES.iter().map(|rule| format!("{:16} {}\n", rule.name, rule.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rule = command.why.as_deref().map(rule).transpose()?;
    let experiment = input::experiment(&command.input, Needs::ALL)?;
    let progress = Progress::new(work(&command.input, &experiment)?, command.input.quiet);
    let read = read(&command.input, &experiment, &mut |done| progress.set(done))?;
    progress.finish();
    let Some(read) = read else { return Ok(ExitCode::from(INTERRUPTED)) };
    let found = findings(&read.evidence());
    let text = match rule {
        Some(rule) => why(rule, &read.evidence()),
        None if command.output.format == "text" => text(&found, read.tables.len(), command),
        None => {
            output::draw(table(&found), &command.output)?;
            return Ok(input::exit_code_of(&command.input, &experiment, read.lossless));
        }
    };
    let mut out = Destination::open(command.output.output.as_deref())?;
    written(out.write_all(text.as_bytes()))?;
    out.finish()?;
    Ok(input::exit_code_of(&command.input, &experiment, read.lossless))
}

/// Returns the rule with this name.
fn rule(name: &str) -> Result<&'static Rule, Failure> {
    RULES.iter().find(|rule| rule.name == name).ok_or_else(|| {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        Failure::usage(format!("--why {name}: no such rule; the rules are {}", names.join(", ")))
    })
}

/// The tables that the rules read.
struct ReadTables {
    tables: Vec<(Need, Table)>,
    /// Whether nothing is missing from these.
    lossless: bool,
}

impl ReadTables {
    fn evidence(&self) -> Evidence<'_> {
        Evidence::new(self.tables.iter().map(|(need, table)| (*need, table)).collect())
    }
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
) -> Result<Option<Vec<Finding>>, Failure> {
    Ok(read(input, experiment, progress)?.map(|read| findings(&read.evidence())))
}

/// Reads the tables: those of all rules, those that few inputs need, and those about executions of single functions.
fn read(
    input: &Input,
    experiment: &Experiment,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Result<Option<ReadTables>, Failure> {
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
    let mut read = ReadTables { tables: by_need(outcome.tables, &needs), lossless };
    let needs = further(&read.evidence());
    if !needs.is_empty() {
        let further = request_of(input, experiment, &needs)?;
        let progress = Progress::new(experiment.work(&further), input.quiet);
        let outcome = experiment.run(&further, &mut |done| progress.set(done))?;
        progress.finish();
        if progress.is_interrupted() {
            return Ok(None);
        }
        read.tables.extend(by_need(outcome.tables, &needs));
    }
    let Some(closer) = closer_look(input, experiment, &request, &questions(&read.evidence()))? else {
        return Ok(None);
    };
    read.tables.extend(closer);
    Ok(Some(read))
}

/// Returns the request for the tables of all rules, and the need that each table meets.
fn request(input: &Input, experiment: &Experiment) -> Result<(Vec<Need>, Request), Failure> {
    let needs = needs();
    let request = request_of(input, experiment, &needs)?;
    Ok((needs, request))
}

fn request_of(input: &Input, experiment: &Experiment, needs: &[Need]) -> Result<Request, Failure> {
    let selection = crate::selection::Selection::new(input, None)?.of_tables(None);
    let report = |&(name, _): &Need| hodo_engine::report(name).expect("rules name reports");
    let reports = needs.iter().map(report).collect();
    let parameters = Parameters { selection, ..Parameters::default() };
    let mut request = crate::input::request(input, None, reports, parameters, experiment)?;
    request.views = needs.iter().map(|(_, view)| *view).collect();
    Ok(request)
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

/// Looks at each execution of functions: returns tables of the patterns in their sequence, and of why slow ones were slow,
/// by comparison with a typical one. `None` if interrupted. Only of whole recordings of control flow: of parts executions
/// have no numbers.
fn closer_look(
    input: &Input,
    experiment: &Experiment,
    request: &Request,
    questions: &[Question],
) -> Result<Option<Vec<(Need, Table)>>, Failure> {
    let mut tables = Vec::new();
    if questions.is_empty() || input.time.is_some() || input.call.is_some() {
        return Ok(Some(tables));
    }
    let mut compared: Vec<(&str, Vec<Interval>)> = Vec::new();
    for Question { function: name, module, compares } in questions {
        // Of several recordings, or of several functions with that name in one file, no tables are made.
        let named =
            |traces: &Traces<'_>| latency::function(only(traces).ok()?, &format!("{name}@{module}")).ok();
        let function = experiment.with(named);
        let Some(function) = function else { continue };
        let Some(intervals) = executions(input, experiment, request, function)? else { return Ok(None) };
        tables.push((PATTERNS, patterns_of(name, module, &intervals)));
        // Only what is compared stays in memory.
        let sides = if *compares { sides(&intervals) } else { None };
        compared.extend(sides.map(|sides| (name.as_str(), sides.into_iter().cloned().collect())));
    }
    let asked: Vec<&Interval> = compared.iter().flat_map(|(_, sides)| sides).collect();
    if asked.is_empty() {
        return Ok(Some(tables));
    }
    let Some(trees) = trees(experiment, request, &asked, &|bytes| Progress::new(bytes, input.quiet))? else {
        return Ok(None);
    };
    let mut trees = trees.into_iter();
    for (name, sides) in &compared {
        let trees: Vec<CallTree> = trees.by_ref().take(sides.len()).collect();
        if let Some((typical, slow)) = trees.split_first() {
            let summary = vec![("function", (*name).into())];
            tables.push((CAUSES, latency::compare(typical, slow).causes_table(summary)));
        }
    }
    Ok(Some(tables))
}

/// Returns the patterns in the executions of the thread that has most of them.
fn patterns_of(name: &str, module: &str, intervals: &[Interval]) -> Table {
    let mut threads: BTreeMap<&str, Vec<&Interval>> = BTreeMap::new();
    for interval in intervals.iter().filter(|one| one.ended.is_complete() && one.level == 0) {
        threads.entry(&interval.thread).or_default().push(interval);
    }
    let most = threads.into_values().max_by_key(Vec::len).unwrap_or_default();
    let execution =
        |one: &&Interval| Execution { begin: one.begin, instructions: one.instructions.unwrap_or(0) };
    let executions: Vec<Execution> = most.iter().map(execution).collect();
    patterns(name, module, &executions, latency::slow_from(&most))
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

/// The most slow executions of a function that are compared.
const MOST_COMPARED: usize = 1000;

/// Returns a typical execution, then slow ones, evenly spread if they are many.
fn sides(intervals: &[Interval]) -> Option<Vec<&Interval>> {
    let mut order: Vec<&Interval> =
        intervals.iter().filter(|interval| interval.ended.is_complete()).collect();
    order.sort_by_key(|interval| Reverse((interval.instructions, interval.time)));
    let slow = latency::slowest(&order);
    let step = slow.len().div_ceil(MOST_COMPARED).max(1);
    Some([latency::typical(&order)?].into_iter().chain(slow.into_iter().step_by(step)).collect())
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
        let lines = wrapped(&finding.sentence, WIDTH);
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
