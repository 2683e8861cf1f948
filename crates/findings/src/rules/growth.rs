//! Functions whose executions cost more the more of them there were, the later they run, or for each unit of a size, the
//! larger it is.

use super::tails::{is_recursive, qualified, quoted};
use crate::{
    Evidence, Finding, Need, PATTERNS, Row, Rule, SIZES,
    call_tree::{self, TREE},
    evidence::{FUNCTIONS, figure},
    link,
    numbers::Numbers,
    text::{self, count, percent, rate, share},
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

const EXECUTIONS: Need = ("latency", "instructions");

pub(crate) const RULE: Rule = Rule {
    name: "growth",
    help: "functions of which each execution costs more than the one before, or than one a millisecond before: at least 100 executions, the last ones over 1.5 times the first, with a strength of at least 80 %, for more than 5 % of the run; and those that cost more for each byte or iteration the more there are: power of the size at least 1.3, the largest over twice as much for each as the smallest, with the same strength and share",
    needs: &[EXECUTIONS, TREE],
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
    let by_number = by_number(evidence);
    let by_size = by_size(evidence)
        .filter(|(function, _)| by_number.as_ref().is_none_or(|(grown, _)| grown != function));
    by_number.into_iter().chain(by_size).map(|(_, finding)| finding).collect()
}

/// Returns the finding on growth with the number of the execution or the time, and its function.
fn by_number(evidence: &Evidence<'_>) -> Option<(String, Finding)> {
    let whole = evidence.table(FUNCTIONS).map_or(0, |table| figure(table, "instructions"));
    let rows = evidence.rows(PATTERNS);
    let grown = rows.iter().filter(|row| grows(row) && share(row.integer("growth_extra"), whole) > THRESHOLD);
    let program = evidence.trees().iter().find_map(|tree| tree.program());
    // Callers of what grows grow too: of nearly equal ones the program's own, and that with the most executions.
    let most = grown.max_by_key(|row| {
        let is_own = program == Some(row.text("module"));
        (row.integer("growth_extra") * 20 / whole.max(1), is_own, row.integer("executions"))
    })?;
    let weight = share(most.integer("growth_extra"), whole);
    let callee = call_tree::main_callee(evidence, most.text("function"));
    let mut numbers = Numbers::default();
    let name = numbers.function("function", most.text("function"));
    let mostly = callee.map_or_else(String::new, |callee| {
        format!(", most of it in {}", numbers.function("callee", &callee))
    });
    let program_caller = call_tree::program_caller(evidence, most.text("function"));
    let by = program_caller
        .map_or_else(String::new, |caller| format!(", called by {},", numbers.function("caller", &caller)));
    let head = match most.knows("growth_per_ms") {
        true => format!(
            "{name}{by} costs more the later it runs{mostly}: {} instructions more for each millisecond",
            numbers.rate("more_per_ms", most.real("growth_per_ms"))
        ),
        false => format!(
            "{name}{by} costs more with each call{mostly}: {} instructions more than the one before",
            numbers.rate("more_per_execution", most.real("growth"))
        ),
    };
    let sentence = format!(
        "{head}, from {} to {} in {} executions (strength {}, threshold {}). What they ran beyond the first is {} of the run \
         (threshold {}).",
        numbers.count("first_instructions", most.integer("growth_first")),
        numbers.count("last_instructions", most.integer("growth_last")),
        numbers.count("executions", most.integer("executions")),
        numbers.percent("strength", most.real("growth_strength")),
        numbers.percent("strength_threshold", STRENGTH),
        numbers.percent("share", weight),
        numbers.percent("threshold", THRESHOLD),
    );
    let (command, link) = (command(most), link::slowest(evidence, most));
    let finding = Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() };
    Some((most.text("function").to_owned(), finding))
}

/// Returns the finding on growth that is faster than a size, and its function.
fn by_size(evidence: &Evidence<'_>) -> Option<(String, Finding)> {
    let (functions, executions) = (evidence.table(FUNCTIONS)?, evidence.rows(EXECUTIONS));
    let whole = figure(functions, "instructions");
    let weighted = evidence.rows(SIZES).into_iter().filter(|row| row.flag("superlinear")).map(|row| {
        let own = executions.iter().find(|own| names(own) == names(&row));
        let total = own.map_or(0, |own| own.integer("instructions_total"));
        (row.real("extra_share") * share(total, whole), row)
    });
    let (weight, row) =
        weighted.filter(|(weight, _)| *weight > THRESHOLD).max_by(|one, other| one.0.total_cmp(&other.0))?;
    let (unit, units) = units(&row);
    let mut numbers = Numbers::default();
    let sentence = format!(
        "{} costs more for each {unit} the more there are: {} instructions for each of {} {units}, {} for each of {} (power {}, \
         strength {}, threshold {}). What they ran beyond the first rate is {} of the run (threshold {}).",
        numbers.function("function", row.text("function")),
        numbers.rate("smallest_instructions_per_unit", row.real("first_rate")),
        numbers.count("smallest", row.integer("smallest")),
        numbers.rate("largest_instructions_per_unit", row.real("last_rate")),
        numbers.count("largest", row.integer("largest")),
        numbers.ratio("power", row.real("power")),
        numbers.percent("strength", row.real("strength")),
        numbers.percent("strength_threshold", STRENGTH),
        numbers.percent("share", weight),
        numbers.percent("threshold", THRESHOLD),
    );
    let (command, link) = (command(&row), link::slowest(evidence, &row));
    let finding = Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() };
    Some((row.text("function").to_owned(), finding))
}

fn names<'r>(row: &'r Row<'_>) -> [&'r str; 2] {
    ["function", "module"].map(|name| row.text(name))
}

/// Names one unit of a size, and several.
fn units(row: &Row<'_>) -> (&'static str, String) {
    match (row.text("size"), row.text("at")) {
        ("bytes", _) => ("byte that it reads or writes", "bytes".to_owned()),
        (_, at) => ("iteration of a loop", format!("iterations at {at}")),
    }
}

fn command(row: &Row<'_>) -> String {
    format!(
        "latency --by executions --function {}",
        quoted(&qualified(row.text("function"), row.text("module")))
    )
}

/// Says what the cost of a function depends on, if it is a size: `4 instructions for each of 5 to 6,000 iterations`.
pub(crate) fn dependence(evidence: &Evidence<'_>, function: &str) -> Option<String> {
    let rows = evidence.rows(SIZES);
    let row = rows.iter().find(|row| row.text("function") == function && !row.flag("superlinear"))?;
    Some(format!(
        "{} instructions for each of {} to {} {}",
        rate(row.real("slope")),
        count(row.integer("least")),
        count(row.integer("most")),
        units(row).1
    ))
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
