//! Functions whose executions cost more the more of them there were.

use super::tails::{is_recursive, qualified, quoted};
use crate::{
    Evidence, Finding, Need, PATTERNS, Row, Rule,
    call_tree::{self, TREE},
    evidence::figure,
    text::{self, count, percent, share},
};

/// Largest acceptable share of the run that executions cost beyond the first ones.
const THRESHOLD: f64 = 0.05;
/// The least strength: how much of the order of costs is the order of executions.
const STRENGTH: f64 = 0.8;
/// The least ratio of the last executions to the first ones.
const TIMES: f64 = 1.5;
/// The least number of executions.
const FEWEST: u64 = 100;
/// The least share of the run of functions that are looked at.
const SHARE: f64 = 0.1;
/// The most functions that are looked at: each takes a pass over the recording.
const MOST: usize = 2;

const EXECUTIONS: Need = ("latency", "histogram");
const FUNCTIONS: Need = ("functions", "");

pub(crate) const RULE: Rule = Rule {
    name: "growth",
    help: "functions of which each execution costs more than the one before: at least 100 executions, the last ones over 1.5 times the first, with a strength of at least 80 %, for more than 5 % of the run",
    needs: &[EXECUTIONS, FUNCTIONS, TREE],
    find,
};

/// Returns the functions whose executions may grow: much of the run is in them, and their lengths differ.
pub(crate) fn candidates<'a>(evidence: &Evidence<'a>) -> Vec<Row<'a>> {
    let functions = evidence.rows(FUNCTIONS);
    let whole = evidence.table(FUNCTIONS).map_or(0, |table| figure(table, "instructions"));
    let mut rows = evidence.rows(EXECUTIONS);
    rows.retain(|row| {
        let differ =
            row.integer("instructions_max") as f64 > row.integer("instructions_p50") as f64 * TIMES.sqrt();
        let is_large = share(row.integer("instructions_total"), whole) >= SHARE;
        let is_stub = call_tree::is_stub(row.text("function"));
        !is_stub && row.integer("count") >= FEWEST && differ && is_large && !is_recursive(row, &functions)
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.integer("instructions_total")));
    rows.truncate(MOST);
    rows
}

fn grows(row: &Row<'_>) -> bool {
    let (first, last) = (row.integer("growth_first"), row.integer("growth_last"));
    row.real("growth_strength") >= STRENGTH && last as f64 > first as f64 * TIMES
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let whole = evidence.table(FUNCTIONS).map_or(0, |table| figure(table, "instructions"));
    let rows = evidence.rows(PATTERNS);
    let grown = rows.iter().filter(|row| grows(row) && share(row.integer("growth_extra"), whole) > THRESHOLD);
    let tree = evidence.rows(TREE);
    let program = call_tree::program(&tree);
    // Callers of what grows grow too: of nearly equal ones the program's own, and that with the most executions.
    let Some(most) = grown.max_by_key(|row| {
        let is_own = program == Some(row.text("module"));
        (row.integer("growth_extra") * 20 / whole.max(1), is_own, row.integer("executions"))
    }) else {
        return Vec::new();
    };
    let weight = share(most.integer("growth_extra"), whole);
    let callee = call_tree::main_callee(evidence, most.text("function"));
    let mostly = callee.map_or_else(String::new, |callee| format!(", most of it in {}", text::name(&callee)));
    vec![Finding {
        rule: RULE.name,
        weight,
        sentence: format!(
            "{} costs more with each call{mostly}: {} instructions more than the one before, from {} to {} in {} executions (strength \
             {}, threshold {}). What they ran beyond the first is {} of the run (threshold {}).",
            text::name(most.text("function")),
            slope(most.real("growth")),
            count(most.integer("growth_first")),
            count(most.integer("growth_last")),
            count(most.integer("executions")),
            percent(most.real("growth_strength")),
            percent(STRENGTH),
            percent(weight),
            percent(THRESHOLD),
        ),
        command: format!(
            "latency --by executions --function {}",
            quoted(&qualified(most.text("function"), most.text("module")))
        ),
    }]
}

/// Formats instructions per execution: whole from 10 on.
fn slope(slope: f64) -> String {
    if slope >= 10.0 { count(slope.round() as u64) } else { format!("{slope:.2}") }
}

/// Says of the functions that were looked at why they do not grow.
pub(crate) fn why(evidence: &Evidence<'_>) -> String {
    let rows = evidence.rows(PATTERNS);
    let of = |row: &Row<'_>| {
        let name = text::name(row.text("function"));
        match row.knows("growth") {
            false => format!(
                "the costs of {} executions of {name} have no order",
                count(row.integer("executions"))
            ),
            true => format!(
                "executions of {name} grow from {} to {} instructions with a strength of {}",
                count(row.integer("growth_first")),
                count(row.integer("growth_last")),
                percent(row.real("growth_strength")),
            ),
        }
    };
    match rows.is_empty() {
        true => {
            "no function with at least 100 executions of different lengths has 10 % of the run".to_owned()
        }
        false => rows.iter().map(of).collect::<Vec<_>>().join("; "),
    }
}
