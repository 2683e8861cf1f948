//! `hodo explain`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::{Experiment, Needs, Request};
use hodo_findings::{Evidence, Finding, Need, RULES, findings, needs, table};
use hodo_model::{Parameters, Selection, Table};

use crate::{
    arguments::{Explain, Input},
    failure::{Failure, INTERRUPTED, written},
    input,
    output::{self, Destination},
    progress::Progress,
    report,
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
    let requests = requests(&command.input, &experiment)?;
    let progress = Progress::new(work(&requests, &experiment), command.input.quiet);
    let found = find(&requests, &experiment, &mut |done| progress.set(done));
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

/// A request for tables that rules read, and these tables.
type NeededTables = (Vec<Need>, Request);

/// Returns the number of bytes that requests read.
pub fn work(requests: &[NeededTables], experiment: &Experiment) -> u64 {
    requests.iter().map(|(_, request)| experiment.work(request)).sum()
}

/// What all rules found.
pub struct Found {
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// The number of tables that were read.
    pub tables: usize,
    /// Whether nothing is missing from these.
    pub lossless: bool,
}

/// Reads the tables and applies the rules; `None` if `progress`, which gets the bytes done, ends the work.
pub fn find(
    requests: &[NeededTables],
    experiment: &Experiment,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Option<Found> {
    let (mut tables, mut before, mut lossless): (Vec<(Need, Table)>, u64, bool) = (Vec::new(), 0, true);
    for (of, request) in requests {
        // A report that the input can't provide yields no findings.
        let Ok(outcome) = experiment.run(request, &mut |done| progress(before + done)) else { continue };
        before += experiment.work(request);
        lossless &= outcome.is_lossless();
        let need = |table: &Table| of.iter().copied().find(|(report, _)| *report == table.name());
        tables.extend(outcome.tables.into_iter().filter_map(|table| Some((need(&table)?, table))));
    }
    if !progress(before) {
        return None;
    }
    let evidence = Evidence::new(tables.iter().map(|(need, table)| (*need, table)).collect());
    Some(Found { findings: findings(&evidence), tables: tables.len(), lossless })
}

/// Returns the requests for the tables of all rules: one for all reports with their default view, and one per other
/// view.
pub fn requests(input: &Input, experiment: &Experiment) -> Result<Vec<NeededTables>, Failure> {
    let usual = |(name, view): &Need| {
        let views = report::list().find(|(own, ..)| own == name).map_or(&[][..], |(.., views)| views);
        views.first().copied().unwrap_or_default() == *view
    };
    let (together, apart): (Vec<Need>, Vec<Need>) = needs().into_iter().partition(usual);
    let apart = apart.into_iter().map(|need| (need.1, vec![need]));
    let groups = [("", together)].into_iter().chain(apart);
    let request = |(view, needs): (&str, Vec<Need>)| {
        let names: Vec<String> = needs.iter().map(|(name, _)| (*name).to_owned()).collect();
        let selection = Selection { view: view.to_owned(), ..Selection::default() };
        let parameters = Parameters { selection, ..Parameters::default() };
        let request = input::request(input, None, report::named(&names), parameters, experiment)?;
        Ok((needs, request))
    };
    groups.map(request).collect()
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

/// Breaks text into lines of at most `width` characters, between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
