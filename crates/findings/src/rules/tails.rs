//! Functions with heavy tails: few executions take much longer than a typical one.

use crate::{
    Evidence, Finding, Rule,
    text::{count, percent},
};

/// Largest acceptable share of the run's instructions that the slowest 1 % of executions cost beyond the median.
const THRESHOLD: f64 = 0.02;
/// Largest acceptable ratio of the longest execution to the median.
const TIMES: u64 = 8;
/// Least number of executions for a finding.
const FEWEST: u64 = 100;
/// Functions named at most, because a callee's tail also appears in its caller.
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

/// Quotes a name for a shell, if needed.
fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:@".contains(letter);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}
