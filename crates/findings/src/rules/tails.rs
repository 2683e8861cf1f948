//! Functions with heavy tails: few executions take much longer than a typical one.
//!
//! The executions of a recursive function contain one another, so that their lengths differ by design. Such functions are
//! left out: all of their executions together have more instructions than the function and what it calls.

use hodo_model::{Table, Value};

use crate::{
    Evidence, Finding, Need, Row, Rule,
    text::{count, percent, share},
};

/// Largest acceptable share of the run's instructions that the slowest 1 % of executions cost beyond the median.
const THRESHOLD: f64 = 0.01;
/// Largest acceptable ratio of the longest execution to the median.
const TIMES: u64 = 8;
/// Least number of executions for a finding.
const FEWEST: u64 = 100;
/// The most functions that are reported.
const MOST: usize = 3;
/// The most causes that a finding names.
const MOST_CAUSES: usize = 3;
/// The least share of all extra instructions with which a cause is named.
const LEAST_SHARE: f64 = 0.1;

const EXECUTIONS: Need = ("latency", "histogram");
const FUNCTIONS: Need = ("functions", "");

pub(crate) const RULE: Rule = Rule {
    name: "heavy-tail",
    help: "functions executed at least 100 times whose slowest 1 % costs more than 1 % of the run, the longest over 8 medians",
    needs: &[EXECUTIONS, FUNCTIONS],
    find,
};

/// Returns the rows of functions with heavy tails, the heaviest first.
pub(crate) fn heavy<'a>(evidence: &Evidence<'a>) -> Vec<Row<'a>> {
    let mut heavy: Vec<Row<'a>> = evidence.rows(EXECUTIONS);
    heavy.retain(|row| {
        let (typical, longest) = (row.integer("instructions_p50"), row.integer("instructions_max"));
        let is_long = typical > 0 && longest / TIMES > typical;
        row.integer("count") >= FEWEST && is_long && row.real("tail_share") > THRESHOLD
    });
    let functions = evidence.rows(FUNCTIONS);
    let is_recursive = |row: &Row<'_>| {
        let names = |row: &Row<'_>| (row.text("function").to_owned(), row.text("module").to_owned());
        let own = functions.iter().find(|function| names(function) == names(row));
        own.is_some_and(|own| row.integer("instructions_total") > own.integer("total_instructions"))
    };
    heavy.retain(|row| !is_recursive(row));
    heavy.sort_by(|one, other| other.real("tail_share").total_cmp(&one.real("tail_share")));
    heavy.truncate(MOST);
    heavy
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut known: Vec<Vec<String>> = Vec::new();
    let mut findings = Vec::new();
    for row in heavy(evidence) {
        let name = row.text("function");
        let causes = evidence.causes().find(|table| table.figure("function") == Some(&Value::from(name)));
        // A slow callee makes its callers slow too.
        let path = causes.and_then(main_path).unwrap_or_default();
        let is_known = |other: &Vec<String>| other.iter().any(|own| own == name) || path.contains(&other[0]);
        if known.iter().any(is_known) {
            continue;
        }
        if !path.is_empty() {
            known.push(path);
        }
        findings.push(finding(&row, causes));
    }
    findings
}

fn finding(row: &Row<'_>, causes: Option<&Table>) -> Finding {
    let (typical, longest) = (row.integer("instructions_p50"), row.integer("instructions_max"));
    Finding {
        rule: RULE.name,
        weight: row.real("tail_share"),
        sentence: format!(
            "{} has a heavy tail: the longest of {} executions ran {} instructions, {} times the median of {} (threshold \
             {TIMES}); the slowest 1 % costs {} of the run (threshold {}).{}",
            row.text("function"),
            count(row.integer("count")),
            count(longest),
            count(longest / typical.max(1)),
            count(typical),
            percent(row.real("tail_share")),
            percent(THRESHOLD),
            causes.map(sentence).unwrap_or_default(),
        ),
        command: format!(
            "latency --compare --function {}",
            quoted(&qualified(row.text("function"), row.text("module")))
        ),
    }
}

/// Returns the functions of the most costly cause's path.
fn main_path(causes: &Table) -> Option<Vec<String>> {
    let rows = Row::all(causes);
    let path = rows.first()?.text("path");
    Some(path.split(" → ").map(str::to_owned).collect())
}

/// Says what the slow executions did that a typical one did not.
fn sentence(causes: &Table) -> String {
    let rows = Row::all(causes);
    let all = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.integer("extra_total")));
    let is_large = |row: &&Row<'_>| share(row.integer("extra_total"), all) >= LEAST_SHARE;
    let named = rows.iter().filter(is_large).take(MOST_CAUSES);
    let cause = |row: &Row<'_>| {
        let range = |prefix: &str| {
            let [least, most] = ["min", "max"].map(|end| row.integer(&format!("{prefix}{end}")));
            if least == most { count(least) } else { format!("{} to {}", count(least), count(most)) }
        };
        let path = row.text("path");
        let (own, place) =
            if path.contains(" → ") { ("extra_there_", path) } else { ("extra_self_", "its own code") };
        format!(
            "{} ran {} more instructions than the median, {} of them in {place}",
            count(row.integer("executions")),
            range("extra_"),
            range(own),
        )
    };
    let named: Vec<String> = named.map(cause).collect();
    if named.is_empty() { String::new() } else { format!(" Of the slowest 1 %, {}.", named.join("; ")) }
}

/// Returns a function's name for the command line: several files may have one of that name.
fn qualified(function: &str, module: &str) -> String {
    if module.is_empty() { function.to_owned() } else { format!("{function}@{module}") }
}

/// Quotes a name for a shell, if needed.
fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:@".contains(letter);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}
