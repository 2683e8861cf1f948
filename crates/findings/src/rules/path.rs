//! What a thread's critical path was spent for.

use hodo_model::Value;

use crate::{
    Evidence, Finding, Row, Rule,
    evidence::figure,
    text::{count, duration, percent, share, thread},
};

/// The share of the path that a cause may have.
const THRESHOLD: f64 = 0.05;
/// As many causes are named; the command shows the others.
const MOST: usize = 4;

pub(crate) const RULE: Rule = Rule {
    name: "critical-path",
    help: "causes with more than 5 % of the critical path of the thread that was recorded, or ran longest",
    needs: &[("critical-path", "cause")],
    find,
};

/// What happened meanwhile, in words. `None` for what the subject asked for, for times of which nothing is known, and for
/// the work of its program: of the subject itself, and of threads with its name, `own`, such as workers that it joins.
fn cause(row: &Row<'_>, own: &str) -> Option<String> {
    let who = match row.text("host") {
        "" => thread(row),
        host if host == row.text("comm") => host.to_owned(),
        host => format!("{} of {host}", row.text("comm")),
    };
    let (wait, detail) = (row.text("wait"), row.text("detail"));
    let what = match (row.text("cause"), wait) {
        ("running", "") | ("unknown", _) | ("timer", "sleep") => return None,
        ("running", _) if row.text("host").is_empty() && row.text("comm") == own => return None,
        ("running", _) => format!("{who} ran"),
        ("cpu", _) if detail == "idle" => format!("{who} waited for an idle CPU to wake up"),
        ("cpu", _) => format!("{who} could run, but {detail} had the CPU"),
        ("block", _) => format!("the device {detail} worked"),
        ("network", _) => "a packet was in the network".to_owned(),
        ("message", _) => "a message was on its way".to_owned(),
        ("timer", _) => "a timer ran".to_owned(),
        (_, _) => format!("an interrupt was due ({detail})"),
    };
    let call = row.text("call");
    Some(match (wait, call) {
        ("", _) => what,
        ("other", "") => format!("it waited, and {what}"),
        (wait, "") => format!("it waited ({wait}), and {what}"),
        ("other", call) => format!("it waited in {call}, and {what}"),
        (wait, call) => format!("it waited in {call} ({wait}), and {what}"),
    })
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(table) = evidence.table(RULE.needs[0]) else { return Vec::new() };
    let Some(Value::Text(subject)) = table.figure("thread") else { return Vec::new() };
    let own = subject.rsplit_once(" (").map_or(subject.as_str(), |(name, _)| name);
    let span = figure(table, "total_ns");
    let rows = evidence.rows(RULE.needs[0]);
    let found = rows.iter().filter_map(|row| {
        let part = share(row.integer("total_ns"), span);
        let cause = cause(row, own).filter(|_| part > THRESHOLD)?;
        Some(Finding {
            rule: RULE.name,
            weight: part,
            sentence: format!(
                "On the critical path of {subject}: {} of {}, {} (threshold {}), {} times, {cause}.",
                duration(row.integer("total_ns")),
                duration(span),
                percent(part),
                percent(THRESHOLD),
                count(row.integer("count")),
            ),
            command: "path".to_owned(),
        })
    });
    found.take(MOST).collect()
}
