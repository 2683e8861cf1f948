//! Interrupts that take much time or are too frequent, and long times with interrupts off.

use crate::{
    Evidence, Finding, Rule,
    evidence::{figure, span},
    link,
    numbers::Numbers,
    text::share,
};

/// Largest acceptable share of one CPU's time in an interrupt's handler.
const TIME: f64 = 0.05;
/// Largest acceptable rate of interrupts, per second.
const RATE: u64 = 20_000;
/// Fewer interrupts are no storm, unless they take as long in all as the shortest trace that has storms, in nanoseconds.
const FEWEST: u64 = 20;
const SHORTEST: u64 = 10_000_000;
/// Longest acceptable time with interrupts off, in nanoseconds.
const LONGEST_OFF: u64 = 1_000_000;

pub(crate) const STORM: Rule = Rule {
    name: "interrupt-storm",
    help: "interrupts that take more than 5 % of a CPU, or occur more than 20,000 times per second; at least 20, or 10 ms of them, in a trace of at least 10 ms",
    needs: &[("irq", "handler")],
    find: storms,
};

pub(crate) const OFF: Rule = Rule {
    name: "interrupts-off",
    help: "times of more than 1 ms with interrupts off",
    needs: &[("irqoff", "cpu")],
    find: off,
};

fn storms(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(("irq", "handler")) else { return Vec::new() };
    let span = span(table);
    let rows = evidence.rows(("irq", "handler"));
    // From raise to handler nothing runs yet.
    let handlers = rows.iter().filter(|row| row.text("kind") != "raise");
    let found = handlers.filter_map(|row| {
        let (number, total) = (row.integer("count"), row.integer("total_ns"));
        let time_share = share(total, span);
        let rate = (u128::from(number) * 1_000_000_000 / u128::from(span)) as u64;
        let mut numbers = Numbers::default();
        let takes_time = time_share > TIME && (number >= FEWEST || total >= SHORTEST);
        (span >= SHORTEST && (takes_time || rate > RATE)).then(|| Finding {
            rule: STORM.name,
            weight: time_share,
            sentence: format!(
                "{}: {} {} ran {} times, {} a second, for {} in all, {} of a CPU (thresholds: {} a second, {}).",
                if rate > RATE { "Interrupts come in a storm" } else { "Interrupts take much of a CPU" },
                numbers.text("kind", row.text("kind")),
                numbers.text("name", row.text("name")),
                numbers.count("count", number),
                numbers.count("per_second", rate),
                numbers.duration("total_ns", total),
                numbers.percent("share", time_share),
                numbers.count("per_second_threshold", RATE),
                numbers.percent("threshold", TIME),
            ),
            command: "report irq".to_owned(),
            link: link::table("irq", ""),
            numbers: numbers.list(),
        })
    });
    found.collect()
}

fn off(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(("irqoff", "cpu")) else { return Vec::new() };
    let rows = evidence.rows(("irqoff", "cpu"));
    let Some(longest) = rows.iter().max_by_key(|row| row.integer("max_ns")) else { return Vec::new() };
    let max = longest.integer("max_ns");
    if max <= LONGEST_OFF {
        return Vec::new();
    }
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: OFF.name,
        weight: share(figure(table, "total_ns"), span(table)),
        sentence: format!(
            "Interrupts were off for {} at once (threshold {}).",
            numbers.duration("longest_ns", max),
            numbers.duration("threshold_ns", LONGEST_OFF),
        ),
        command: "report irqoff".to_owned(),
        link: link::table("irqoff", ""),
        numbers: numbers.list(),
    }]
}
