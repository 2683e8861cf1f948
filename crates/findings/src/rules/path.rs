//! What a thread's critical path was spent for.

use hodo_model::Value;

use crate::{
    Evidence, Finding, Row, Rule,
    evidence::figure,
    link,
    numbers::Numbers,
    text::{count, duration, share, thread},
};

/// The share of the path that a cause may have.
const THRESHOLD: f64 = 0.05;
/// As many causes are named; the command shows the others.
const MOST: usize = 4;

/// A CPU that sleeps runs a woken thread after less than this, in nanoseconds.
const WAKES_WITHIN: u64 = 1_000_000;

pub(crate) const RULE: Rule = Rule {
    name: "critical-path",
    help: "causes with more than 5 % of the critical path of the thread that was recorded, or ran longest; a thread that could run while its CPU was idle, for more than 1 ms each time on average, was kept from running",
    needs: &[("critical-path", "cause")],
    find,
};

/// Rows of one cause. On boards, these are the rows of all hosts where the task of one name waited for one task. Where a
/// thread could run, they are those of all threads that had its CPU.
struct Group<'r> {
    rows: Vec<&'r Row<'r>>,
    total: u64,
    count: u64,
}

/// At most this many hosts of a group are listed.
const MOST_HOSTS: usize = 4;

/// Returns the task in `task of host`, if the detail is one of this row's host.
fn task<'r>(row: &'r Row<'_>) -> Option<&'r str> {
    row.text("detail").strip_suffix(row.text("host"))?.strip_suffix(" of ")
}

/// Returns whether a row is of a thread that could run while another one had the CPU, outside of boards.
fn had_cpu(row: &Row<'_>) -> bool {
    row.text("cause") == "cpu" && row.text("detail") != "idle" && task(row).is_none()
}

/// Returns whether a row is of a thread that could run, and did not although its CPU was idle. Boards have no such limits.
fn is_kept(row: &Row<'_>) -> bool {
    let each = row.integer("total_ns") / row.integer("count").max(1);
    let is_idle = row.text("cause") == "cpu" && row.text("detail") == "idle";
    is_idle && row.text("host").is_empty() && each > WAKES_WITHIN
}

/// Returns how long threads of the critical path were kept from running on idle CPUs, in nanoseconds.
pub(crate) fn kept(evidence: &Evidence<'_>) -> u64 {
    let rows = evidence.rows(RULE.needs[0]);
    rows.iter().filter(|row| is_kept(row)).map(|row| row.integer("total_ns")).fold(0, u64::saturating_add)
}

/// Groups rows by cause, those with the greatest total first.
fn groups<'r>(rows: &'r [Row<'r>]) -> Vec<Group<'r>> {
    let is_one = |a: &Row<'_>, b: &Row<'_>| {
        let same = |column| a.text(column) == b.text(column);
        let on_boards = !a.text("host").is_empty() && !b.text("host").is_empty();
        let is_one_task = on_boards && (same("detail") || (task(a).is_some() && task(a) == task(b)));
        let is_one_thread = had_cpu(a) && had_cpu(b) && same("host") && a.integer("tid") == b.integer("tid");
        (is_one_task || is_one_thread) && ["wait", "call", "cause", "comm"].into_iter().all(same)
    };
    let mut groups: Vec<Group<'r>> = Vec::new();
    for row in rows {
        let (total, count) = (row.integer("total_ns"), row.integer("count"));
        match groups.iter_mut().find(|group| is_one(group.rows[0], row)) {
            Some(group) => {
                group.rows.push(row);
                (group.total, group.count) = (group.total + total, group.count + count);
            }
            None => groups.push(Group { rows: vec![row], total, count }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.total));
    groups
}

/// Lists the text of each row: `a, b and c`, or `a, b, c, d and 3 more`.
fn listed(rows: &[&Row<'_>], text: impl Fn(&Row<'_>) -> String) -> String {
    let (named, more) = rows.split_at(rows.len().min(MOST_HOSTS));
    let mut names: Vec<String> = named.iter().map(|row| text(row)).collect();
    let last = match more.len() {
        0 => names.pop().unwrap_or_default(),
        more => format!("{more} more"),
    };
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}

/// Returns the cause of a group of pieces as a clause. `None` if the subject requested it (a sleep), if it is unknown, and if
/// it is work of the subject or of threads with its name, `own`, such as workers that it joins.
fn cause(group: &Group<'_>, own: &str) -> Option<String> {
    let row = group.rows[0];
    let who = match row.text("host") {
        "" => thread(row),
        host if host == row.text("comm") => host.to_owned(),
        _ => format!("{} of {}", row.text("comm"), listed(&group.rows, |row| row.text("host").to_owned())),
    };
    let wait = row.text("wait");
    let detail = match task(row) {
        Some(_) => listed(&group.rows, |row| row.text("detail").to_owned()),
        None => row.text("detail").to_owned(),
    };
    let what = match (row.text("cause"), wait) {
        ("running", "") | ("unknown", _) | ("timer", "sleep") => return None,
        ("running", _) if row.text("host").is_empty() && row.text("comm") == own => return None,
        ("running", _) => format!("{who} ran"),
        ("cpu", _) if is_kept(row) => format!(
            "{who} could run and its CPU was idle: it was kept from running, as by a limit of its group's CPU time (cpu.max)"
        ),
        ("cpu", _) if detail == "idle" => format!("{who} waited for an idle CPU to wake up"),
        ("cpu", _) => match group.rows.len() {
            others @ 2.. if had_cpu(row) => {
                let most =
                    group.rows.iter().max_by_key(|row| row.integer("total_ns")).unwrap_or(&group.rows[0]);
                format!(
                    "{who} could run, but {} others had the CPU, longest {} ({})",
                    count(others as u64),
                    most.text("detail"),
                    duration(most.integer("total_ns"))
                )
            }
            _ => format!("{who} could run, but {detail} had the CPU"),
        },
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
    let found = groups(&rows).into_iter().filter_map(|group| {
        let part = share(group.total, span);
        let cause = cause(&group, own).filter(|_| part > THRESHOLD)?;
        let mut numbers = Numbers::default();
        Some(Finding {
            rule: RULE.name,
            weight: part,
            sentence: format!(
                "On the critical path of {subject}: {} of {}, {} (threshold {}), {} times, {cause}.",
                numbers.duration("total_ns", group.total),
                numbers.duration("path_ns", span),
                numbers.percent("share", part),
                numbers.percent("threshold", THRESHOLD),
                numbers.count("count", group.count),
            ),
            command: "path".to_owned(),
            link: link::table("critical-path", "cause"),
            numbers: numbers.list(),
        })
    });
    found.take(MOST).collect()
}
