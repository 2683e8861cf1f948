//! Slow executions that come at equal distances: at every Nth call, or each T milliseconds.

use super::tails::{self, about, qualified, quoted};
use crate::{
    Evidence, Finding, PATTERNS, Row, Rule,
    call_tree::is_stub,
    link,
    numbers::Numbers,
    text::{count, duration, percent},
};

/// Least share of the run that a slow kind of executions costs.
const THRESHOLD: f64 = 0.02;
/// The least number of other executions for each slow one: what happens every third time is by design.
const RAREST: u64 = 9;

pub(crate) const RULE: Rule = Rule {
    name: "rhythm",
    help: "slow executions of a function that come at every Nth call or each T ms: at least 5 and at most a tenth of all, of which 80 % keep to it, that cost more than 2 % of the run",
    needs: &[("latency", "instructions")],
    find,
};

/// Says how regularly the slow executions of a function come: `every 100th`.
pub(crate) fn words(evidence: &Evidence<'_>, function: &str) -> Option<String> {
    let rows = evidence.rows(PATTERNS);
    let row = rows.iter().find(|row| row.text("function") == function)?;
    let distance = match (row.integer("slow_every"), row.integer("slow_every_ns")) {
        (0, 0) => return None,
        (0, time) => format!("one each {}", duration(time)),
        (calls, _) => format!("every {}", ordinal(calls)),
    };
    Some(match row.real("slow_strength") {
        strength if strength < 1.0 => format!("{distance}, strength {}", percent(strength)),
        _ => distance,
    })
}

/// Formats an ordinal number, such as `1,000th`.
fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{ending}", count(number))
}

/// Returns the functions with a slow kind of executions that may have a rhythm, and is no heavy tail.
pub(crate) fn candidates<'a>(evidence: &Evidence<'a>) -> Vec<Row<'a>> {
    let mut rows = evidence.rows(("latency", "instructions"));
    rows.retain(|row| {
        let (fast, slow) = (row.integer("fast_count"), row.integer("slow_count"));
        let is_rare = slow.saturating_mul(RAREST) <= fast;
        row.real("slow_share") > THRESHOLD && slow >= 5 && is_rare && !is_stub(row.text("function"))
    });
    rows.sort_by(|one, other| other.real("slow_share").total_cmp(&one.real("slow_share")));
    rows.truncate(1);
    rows
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let tails: Vec<String> =
        tails::heavy(evidence).iter().map(|one| one.row.text("function").to_owned()).collect();
    if !tails.is_empty() {
        return Vec::new();
    }
    let of = |row: &Row<'_>| {
        let name = row.text("function");
        let words = words(evidence, name)?;
        let patterns = evidence.rows(PATTERNS);
        let strength = patterns.iter().find(|row| row.text("function") == name)?.real("slow_strength");
        let words = words.split(", ").next()?;
        let weight = row.real("slow_share");
        let mut numbers = Numbers::default();
        Some(Finding {
            rule: RULE.name,
            weight,
            sentence: format!(
                "Slow executions of {} come in a rhythm, {words}, with a strength of {}: {} of {} run {}{} instructions, the \
                 others {}{}; that costs {} of the run (threshold {}).",
                numbers.function("function", name),
                numbers.percent("strength", strength),
                numbers.count("slow", row.integer("slow_count")),
                numbers
                    .count("executions", row.integer("slow_count").saturating_add(row.integer("fast_count"))),
                about(row.integer("slow_p50")),
                numbers.count("slow_p50_instructions", row.integer("slow_p50")),
                about(row.integer("fast_p50")),
                numbers.count("others_p50_instructions", row.integer("fast_p50")),
                numbers.percent("share", weight),
                numbers.percent("threshold", THRESHOLD),
            ),
            command: format!(
                "latency --by executions --function {}",
                quoted(&qualified(name, row.text("module")))
            ),
            link: link::slowest(evidence, row),
            numbers: {
                let rhythm = patterns.iter().find(|row| row.text("function") == name)?;
                numbers.count("every", rhythm.integer("slow_every"));
                numbers.duration("every_ns", rhythm.integer("slow_every_ns"));
                numbers.list()
            },
        })
    };
    candidates(evidence).iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::ordinal;

    #[test]
    fn ordinal_numbers() {
        let expected = ["1st", "2nd", "3rd", "11th", "12th", "99th", "101st", "1,000th"];
        assert_eq!([1, 2, 3, 11, 12, 99, 101, 1000].map(ordinal), expected);
    }
}
