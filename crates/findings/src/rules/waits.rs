//! Working threads that wait for something other than a CPU.

use crate::{
    Evidence, Finding, Row, Rule,
    evidence::span,
    text::{count, duration, percent, share, thread},
};

/// Largest acceptable share of the trace that a thread waits.
const THRESHOLD: f64 = 0.1;
/// A thread works if it runs this share of the trace. Others, such as idle daemons, wait by design.
const WORKS: f64 = 0.005;

const NEEDS: &[crate::Need] = &[("states", "wait"), ("states", "thread")];

pub(crate) const LOCKS: Rule = Rule {
    name: "lock-wait",
    help: "working threads that wait for locks (futex) more than 10 % of the trace",
    needs: NEEDS,
    find: locks,
};

pub(crate) const DISKS: Rule = Rule {
    name: "disk-wait",
    help: "working threads that wait uninterruptibly, such as for a disk, more than 10 % of the trace",
    needs: NEEDS,
    find: disks,
};

/// Returns the waits of working threads that `wanted` selects, longest first, each with its share of the trace.
fn waits<'a>(evidence: &Evidence<'a>, wanted: impl Fn(&Row<'_>) -> bool) -> Vec<(f64, Row<'a>)> {
    let Some(table) = evidence.table(("states", "thread")) else { return Vec::new() };
    let span = span(table);
    let works = |row: &Row<'_>| share(row.integer("running_ns"), span) >= WORKS;
    let working: Vec<u64> = evidence
        .rows(("states", "thread"))
        .iter()
        .filter(|row| works(row))
        .map(|row| row.integer("tid"))
        .collect();
    let waits = evidence.rows(("states", "wait")).into_iter();
    let waits = waits.filter(|row| wanted(row) && working.contains(&row.integer("tid")));
    let mut waits: Vec<_> = waits.map(|row| (share(row.integer("total_ns"), span), row)).collect();
    waits.retain(|(part, _)| *part > THRESHOLD);
    waits.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    waits
}

fn locks(evidence: &Evidence<'_>) -> Vec<Finding> {
    let waits = waits(evidence, |row| row.text("call") == "futex");
    let Some((part, most)) = waits.first() else { return Vec::new() };
    vec![Finding {
        rule: LOCKS.name,
        weight: *part,
        sentence: format!(
            "Threads wait for locks: {} waited {} in futex, {} of the trace (threshold {}), {} times, at most {} at once; {} \
             threads waited so.",
            thread(most),
            duration(most.integer("total_ns")),
            percent(*part),
            percent(THRESHOLD),
            count(most.integer("count")),
            duration(most.integer("max_ns")),
            count(waits.len() as u64),
        ),
        command: "report states --by wait".to_owned(),
    }]
}

fn disks(evidence: &Evidence<'_>) -> Vec<Finding> {
    let waits = waits(evidence, |row| row.text("wait") == "uninterruptible");
    let Some((part, most)) = waits.first() else { return Vec::new() };
    let call = match most.text("call") {
        "" => String::new(),
        call => format!(" in {call}"),
    };
    vec![Finding {
        rule: DISKS.name,
        weight: *part,
        sentence: format!(
            "Threads wait for a device: {} waited {} uninterruptibly{call}, {} of the trace (threshold {}), {} times, at \
             most {} at once; {} such waits pass the threshold.",
            thread(most),
            duration(most.integer("total_ns")),
            percent(*part),
            percent(THRESHOLD),
            count(most.integer("count")),
            duration(most.integer("max_ns")),
            count(waits.len() as u64),
        ),
        command: "report io --by device".to_owned(),
    }]
}
