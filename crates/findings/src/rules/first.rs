//! Functions of which only the first execution is slow: they set something up.

use super::tails::{Executions, about, qualified, quoted};
use crate::{Evidence, Finding, Need, Rule, link, numbers::Numbers, text::share};

/// Largest share of the run that a first call may cost beyond a typical one without a finding.
const THRESHOLD: f64 = 0.02;
/// The least number of executions.
const FEWEST: u64 = 20;
/// The most functions that are reported.
const MOST: usize = 1;

const EXECUTIONS: Need = ("latency", "instructions");

pub(crate) const RULE: Rule = Rule {
    name: "first-call",
    help: "functions executed at least 20 times of which only the first execution, of each thread, is slow: over 8 medians, and more than 2 % of the run",
    needs: &[EXECUTIONS],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let all = Executions::all(evidence).into_iter();
    let first = all.filter(|one| one.only_first() && one.is_long() && one.count() >= FEWEST);
    let extra = |one: &Executions<'_>| {
        let (first, typical) = (one.row.integer("instructions_first"), one.row.integer("fast_p50"));
        share(first.saturating_sub(typical), one.row.figure("instructions"))
    };
    let mut costs: Vec<(f64, Executions<'_>)> = first.map(|one| (extra(&one), one)).collect();
    costs.retain(|(weight, _)| *weight > THRESHOLD);
    costs.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    costs.truncate(MOST);
    costs.iter().map(|(weight, one)| finding(*weight, one)).collect()
}

fn finding(weight: f64, one: &Executions<'_>) -> Finding {
    let row = &one.row;
    let mut numbers = Numbers::default();
    Finding {
        rule: RULE.name,
        weight,
        sentence: format!(
            "{} is slow in its first call only: that ran {} instructions, the {} others {}{} (median). It is one-time work, {} of \
             the run (threshold {}).",
            numbers.function("function", row.text("function")),
            numbers.count("first_instructions", row.integer("instructions_first")),
            numbers.count("others", row.integer("fast_count")),
            about(row.integer("fast_p50")),
            numbers.count("others_p50_instructions", row.integer("fast_p50")),
            numbers.percent("share", weight),
            numbers.percent("threshold", THRESHOLD),
        ),
        command: format!(
            "latency --compare --function {}",
            quoted(&qualified(row.text("function"), row.text("module")))
        ),
        link: link::executions(row),
        numbers: numbers.list(),
    }
}
