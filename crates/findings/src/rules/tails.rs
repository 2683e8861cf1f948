//! Functions of which few executions take much longer than a typical one.

use crate::{
    Evidence, Finding, Rule,
    text::{count, percent},
};

/// The share of the run's instructions that the slowest hundredth of the executions may cost beyond the median.
const THRESHOLD: f64 = 0.02;
/// How many medians the longest execution may take.
const TIMES: u64 = 8;
/// Fewer executions than this have no tail.
const FEWEST: u64 = 100;
/// The most functions that are named: a callee's tail is its caller's, too.
const MOST: usize = 3;

pub(crate) const RULE: Rule = Rule {
    name: "heavy-tail",
    help: "functions executed at least 100 times whose slowest 1 % costs more than 2 % of the run, the longest over 8 medians",
    needs: &[("latency", "histogram")],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let rows = evidence.rows(("latency", "histogram"));
    let mut heavy: Vec<_> = rows
        .iter()
        .filter(|row| {
            let (typical, longest) = (row.integer("instructions_p50"), row.integer("instructions_max"));
            let is_long = typical > 0 && longest / TIMES > typical;
            row.integer("count") >= FEWEST && is_long && row.real("tail_share") > THRESHOLD
        })
        .collect();
    heavy.sort_by(|one, other| other.real("tail_share").total_cmp(&one.real("tail_share")));
    let finding = |row: &&crate::Row<'_>| {
        let (typical, longest) = (row.integer("instructions_p50"), row.integer("instructions_max"));
        Finding {
            rule: RULE.name,
            weight: row.real("tail_share"),
            sentence: format!(
                "{} has a heavy tail: the longest of {} executions ran {} instructions, {} times the median of {} \
                 (threshold {TIMES}); the slowest 1 % costs {} of the run (threshold {}).",
                row.text("function"),
                count(row.integer("count")),
                count(longest),
                count(longest / typical.max(1)),
                count(typical),
                percent(row.real("tail_share")),
                percent(THRESHOLD),
            ),
            command: format!("latency --compare --function {}", quoted(row.text("function"))),
        }
    };
    heavy.iter().take(MOST).map(finding).collect()
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:@".contains(letter);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}
