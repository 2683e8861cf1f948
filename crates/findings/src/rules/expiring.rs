//! Waits with short time-outs that end without an event.

use super::calls::{CALLS, times};
use crate::{Evidence, Finding, Rule, evidence::span, link, numbers::Numbers, text::share};

/// Calls that wait for events, at most for some time, and return how many there were.
const WAITS: &[&str] = &["poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"];
/// Longest average that counts, in nanoseconds.
const LONGEST: u64 = 20_000_000;
/// Least number of calls that ended without an event.
const FEWEST: u64 = 100;
/// The same a second.
const RATE: u64 = 50;
/// Least share of the calls.
const MOST_EXPIRE: f64 = 0.9;
/// Least share of the trace that the calls take.
const THRESHOLD: f64 = 0.1;

pub(crate) const RULE: Rule = Rule {
    name: "expired-waits",
    help: "poll, select and epoll_wait of at most 20 ms on average, of which at least 90 %, 100 and 50 a second end without an event, in more than 10 % of the trace",
    needs: &[CALLS],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(CALLS) else { return Vec::new() };
    let span = span(table);
    let mut rows = evidence.rows(CALLS);
    rows.retain(|row| {
        let average = row.integer("total_ns") / row.integer("count").max(1);
        WAITS.contains(&row.text("call")) && average <= LONGEST && row.knows("returned")
    });
    let sum = |column: &str| rows.iter().map(|row| row.integer(column)).fold(0, u64::saturating_add);
    let (calls, total) = (sum("count"), sum("total_ns"));
    // A call returns at least one if it returns any.
    let expired = calls.saturating_sub(sum("errors")).saturating_sub(sum("returned"));
    let per_second = u128::from(expired) * 1_000_000_000 / u128::from(span);
    let weight = share(total, span);
    let is_one = expired >= FEWEST
        && per_second >= RATE.into()
        && share(expired, calls) >= MOST_EXPIRE
        && weight > THRESHOLD;
    if !is_one {
        return Vec::new();
    }
    let mut numbers = Numbers::default();
    let which = rows.iter().map(times).collect::<Vec<_>>().join(", ");
    let sentence = format!(
        "A thread looks again and again whether something happened instead of waiting for it: {which}, {} on average, of which \
         at least {} ended without an event, {} a second, {} of the trace together (threshold: {}).",
        numbers.duration("average_ns", total / calls.max(1)),
        numbers.count("expired", expired),
        numbers.count("per_second", per_second as u64),
        numbers.percent("share", weight),
        RULE.help,
    );
    numbers.count("calls", calls);
    let (command, link) = ("report syscalls".to_owned(), link::table("syscalls", ""));
    vec![Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() }]
}
