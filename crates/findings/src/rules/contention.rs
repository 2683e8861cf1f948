//! Runnable threads that waited for a CPU.

use super::path;
use crate::{Evidence, Finding, Rule, link, numbers::Numbers, text::share};

/// Largest acceptable share of runnable time that threads wait for a CPU.
const THRESHOLD: f64 = 0.2;
/// Shorter waits, in nanoseconds together, are those of threads that start.
const LEAST: u64 = 10_000_000;

pub(crate) const RULE: Rule = Rule {
    name: "cpu-contention",
    help: "threads that wait for a CPU more than 20 % of the time in which they could run, and 10 ms together; not those of the critical path that are kept from running while their CPU is idle",
    needs: &[("states", "thread")],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let rows = evidence.rows(("states", "thread"));
    let sum = |column: &str| rows.iter().map(|row| row.integer(column)).fold(0, u64::saturating_add);
    let running = sum("running_ns");
    // A thread that is kept from running does not wait for a CPU.
    let waiting = sum("runnable_ns").saturating_sub(path::kept(evidence));
    let waiting_share = share(waiting, running.saturating_add(waiting));
    let Some(most) = rows.iter().max_by_key(|row| row.integer("runnable_ns")) else { return Vec::new() };
    if waiting_share <= THRESHOLD || waiting < LEAST {
        return Vec::new();
    }
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: RULE.name,
        weight: waiting_share,
        sentence: format!(
            "CPUs are contended: threads waited {} for a CPU, {} of the time in which they could run (threshold {}). \
             {} waited longest: {}; it ran for {}.",
            numbers.duration("waited_ns", waiting),
            numbers.percent("share", waiting_share),
            numbers.percent("threshold", THRESHOLD),
            numbers.thread(most),
            numbers.duration("thread_waited_ns", most.integer("runnable_ns")),
            numbers.duration("thread_ran_ns", most.integer("running_ns")),
        ),
        command: "report states".to_owned(),
        link: link::table("states", ""),
        numbers: numbers.list(),
    }]
}
