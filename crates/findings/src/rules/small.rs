//! Many small reads and writes.

use crate::{Evidence, Finding, Rule, evidence::span, link, numbers::Numbers, text::share};

/// An operation of fewer bytes than this is small.
const SMALL: u64 = 512;
/// Least number of operations for a finding.
const FEWEST: u64 = 1_000;
/// Largest acceptable share of the trace.
const THRESHOLD: f64 = 0.05;

pub(crate) const RULE: Rule = Rule {
    name: "small-io",
    help: "threads that read or write at least 1,000 times, below 512 bytes each, in more than 5 % of the trace, without opening, syncing and the like",
    needs: &[("io", "thread"), ("io", "operation")],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(("io", "thread")) else { return Vec::new() };
    let span = span(table);
    let rows = evidence.rows(("io", "thread"));
    let operations = evidence.rows(("io", "operation"));
    // The table does not say which thread made the other operations, such as opens and syncs: each may have made all.
    let others = operations.iter().filter(|row| !["read", "write"].contains(&row.text("operation")));
    let (mut other_count, mut other_time) = (0u64, 0u64);
    for row in others {
        other_count = other_count.saturating_add(row.integer("count"));
        other_time = other_time.saturating_add(row.integer("total_ns"));
    }
    let found = rows.iter().filter_map(|row| {
        let operations = row.integer("operations").saturating_sub(other_count);
        let total = row.integer("total_ns").saturating_sub(other_time);
        let bytes = row.integer("read_bytes").saturating_add(row.integer("written_bytes"));
        let part = share(total, span);
        let is_small = operations >= FEWEST && bytes > 0 && bytes / operations < SMALL && part > THRESHOLD;
        let mut numbers = Numbers::default();
        is_small.then(|| Finding {
            rule: RULE.name,
            weight: part,
            sentence: format!(
                "{} makes many small reads and writes: {} of {} bytes on average, {} in all, {} of the trace (thresholds: \
                 {} times, {SMALL} bytes, {}).",
                numbers.thread(row),
                numbers.count("operations", operations),
                numbers.count("average_bytes", bytes / operations),
                numbers.duration("total_ns", total),
                numbers.percent("share", part),
                numbers.count("fewest", FEWEST),
                numbers.percent("threshold", THRESHOLD),
            ),
            command: format!("report io --by file --tid {}", row.integer("tid")),
            link: link::table("io", "file"),
            numbers: numbers.list(),
        })
    });
    found.collect()
}
