//! Threads that migrate between CPUs too often.

use crate::{Evidence, Finding, Rule, link, numbers::Numbers, text::share};

/// Running time per migration, in nanoseconds, below which a thread migrates too often.
const RUNNING_PER_MIGRATION: u64 = 1_000_000;
/// Least number of migrations for a finding.
const FEWEST: u64 = 200;

pub(crate) const RULE: Rule = Rule {
    name: "migrations",
    help: "threads that move to another CPU more than once per millisecond of running, at least 200 times",
    needs: &[("sched", "thread"), ("cpu", "thread")],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let running = evidence.rows(("cpu", "thread"));
    let ran = |tid: u64| {
        running.iter().find(|row| row.integer("tid") == tid).map_or(0, |row| row.integer("time_ns"))
    };
    let rows = evidence.rows(("sched", "thread"));
    let storms = rows.iter().filter_map(|row| {
        let (migrations, time) = (row.integer("migrations"), ran(row.integer("tid")));
        let often = migrations >= FEWEST && time < migrations.saturating_mul(RUNNING_PER_MIGRATION);
        often.then_some((row, migrations, time))
    });
    let storms: Vec<_> = storms.collect();
    let Some(&(most, migrations, time)) = storms.iter().max_by_key(|(_, migrations, _)| *migrations) else {
        return Vec::new();
    };
    let all: u64 = storms.iter().map(|(_, migrations, _)| migrations).sum();
    let switches: u64 = storms.iter().map(|(row, ..)| row.integer("switches")).sum();
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: RULE.name,
        weight: share(all, switches),
        sentence: format!(
            "Threads migrate all the time: {} moved {} times between CPUs, once per {} of running (threshold 1 ms). \
             Threads that did so: {}, {} times together, with {} of their switches.",
            numbers.thread(most),
            numbers.count("migrations", migrations),
            numbers.duration("running_per_migration_ns", time / migrations.max(1)),
            numbers.count("threads", storms.len() as u64),
            numbers.count("all_migrations", all),
            numbers.percent("share", share(all, switches)),
        ),
        command: "report sched".to_owned(),
        link: link::table("sched", ""),
        numbers: numbers.list(),
    }]
}
