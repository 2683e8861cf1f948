//! `hodo explain`.

mod closer;
mod difference;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{Experiment, Needs, Request};
use hodo_findings::{
    DIFFERENCE_RULES, Evidence, Finding, Need, RULES, Rule, WIDTH, findings, further, needs, questions,
    table, why, wrapped,
};
use hodo_model::{Parameters, Table};

use crate::{
    arguments::{Explain, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    latency::json_of,
    output::{self, Destination},
    progress::Progress,
};

/// Runs the command.
pub fn run(command: &Explain) -> Result<ExitCode, Failure> {
    if command.list {
        let rules = RULES.iter().chain(DIFFERENCE_RULES);
        let lines = rules.map(|rule| format!("{:16} {}\n", rule.name, rule.help));
        written(io::stdout().write_all(lines.collect::<String>().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rule = command.why.as_deref().map(rule).transpose()?;
    if let Some(sides) = difference::sides(command)? {
        return difference::run(command, rule, &sides);
    }
    let experiment = input::experiment(&command.input, Needs::ALL)?;
    let progress = Progress::new(work(&command.input, &experiment)?, command.input.quiet);
    let read = read(&command.input, &experiment, &mut |done| progress.set(done))?;
    progress.finish();
    let Some(read) = read else { return Ok(ExitCode::from(INTERRUPTED)) };
    let nothing = format!(
        "Nothing stands out: no number of {} tables passes a threshold (`hodo explain --list`).\n",
        read.tables.len()
    );
    match rule {
        Some(rule) => write(&why(rule, &read.evidence(), findings), command)?,
        None => draw(&findings(&read.evidence()), &nothing, command)?,
    }
    Ok(input::exit_code_of(&command.input, &experiment, read.lossless))
}

/// Draws findings in the chosen format; `nothing` is the text if there are none.
fn draw(found: &[Finding], nothing: &str, command: &Explain) -> Result<(), Failure> {
    match command.output.format.as_str() {
        "text" if found.is_empty() => write(nothing, command),
        "text" => write(&text(found, command), command),
        "json" => write(&json(found, command)?, command),
        _ => output::draw(table(found), &command.output),
    }
}

/// Formats the findings as the JSON of their table, with an object for each: the rule, the numbers of the sentence by name,
/// the command and the link.
fn json(found: &[Finding], command: &Explain) -> Result<String, Failure> {
    let mut text = Vec::new();
    let options = output::options(command.output.limit, &command.output);
    written(output::view(&command.output).draw(&table(found), &options, &mut text))?;
    let mut text = String::from_utf8(text).expect("JSON is UTF-8");
    let objects: Vec<serde_json::Value> = found.iter().map(object).collect();
    // A further member goes before the closing brace of the table's object.
    let end = text.rfind('}').expect("a table is an object");
    text.insert_str(end, &format!(",\n\"findings\":{}", serde_json::Value::from(objects)));
    Ok(text)
}

fn object(finding: &Finding) -> serde_json::Value {
    let numbers: serde_json::Map<String, serde_json::Value> =
        finding.numbers.iter().map(|(name, value)| ((*name).to_owned(), json_of(value))).collect();
    serde_json::json!({
        "rule": finding.rule,
        "weight": finding.weight,
        "sentence": finding.sentence,
        "numbers": numbers,
        "command": finding.command,
        "link": finding.link,
    })
}

fn write(text: &str, command: &Explain) -> Result<(), Failure> {
    let mut out = Destination::open(command.output.output.as_deref())?;
    written(out.write_all(text.as_bytes()))?;
    out.finish()
}

/// Returns the rule with this name.
fn rule(name: &str) -> Result<&'static Rule, Failure> {
    let rules = || RULES.iter().chain(DIFFERENCE_RULES);
    rules().find(|rule| rule.name == name).ok_or_else(|| {
        let names: Vec<&str> = rules().map(|rule| rule.name).collect();
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
    let questions = questions(&read.evidence());
    let Some(closer) = closer::look(input, experiment, &request, &questions)? else { return Ok(None) };
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

/// Formats the findings for people.
fn text(found: &[Finding], command: &Explain) -> String {
    let files = command.baseline.iter().chain(&command.input.files);
    let names: Vec<String> = files.map(|file| file.display().to_string()).collect();
    let inputs = names.join(" ");
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
        // For a shell the link is a comment, so the line can be copied as it is.
        text.push_str(&format!("    hodo {} {inputs}  {}\n\n", finding.command, finding.link));
    }
    text
}
