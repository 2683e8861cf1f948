//! Working threads that wait for something other than a CPU.

use std::collections::BTreeMap;

use crate::{
    Evidence, Finding, Need, Row, Rule,
    call_tree::{self, TREE, Tree},
    evidence::{figure, span},
    link,
    numbers::Numbers,
    text::{self, count, share},
};

/// Largest acceptable share of the trace that a thread waits.
const THRESHOLD: f64 = 0.1;
/// A thread works if it runs this share of the trace, or may have: where switches are missing, that is unknown. Others,
/// such as idle daemons, wait by design.
const WORKS: f64 = 0.005;

/// Parts of the names of system calls that wait for devices. A wait without a call is a page fault.
const OF_FILES: &str = "\
    read write sync open stat getdents sendfile splice copy_file io_ unlink rename \
    mkdir truncate fallocate access exec mmap close";

const THREADS: Need = ("states", "thread");
const WAITS: Need = ("states", "wait");
const DEVICES: Need = ("io", "device");
const HELD: Need = ("locks", "lock");

pub(crate) const LOCKS: Rule = Rule {
    name: "lock-wait",
    help: "threads that wait for a lock (futex) more than 10 % of the trace; where arguments are missing, in futex; in control flow alone, the time that passes outside of the program in pthread_mutex_lock and the like, at least 100 times and 10 % of the time of all threads",
    needs: &[WAITS, THREADS, HELD, TREE],
    find: locks,
};

pub(crate) const DISKS: Rule = Rule {
    name: "disk-wait",
    help: "working threads that wait for a device, in a page fault or a call that concerns files, more than 10 % of the trace",
    needs: &[WAITS, THREADS, DEVICES],
    find: disks,
};

/// Returns the waits of working threads that `wanted` selects, longest first, each with its share of the trace.
fn waits<'a>(evidence: &Evidence<'a>, wanted: impl Fn(&Row<'_>) -> bool) -> Vec<(f64, Row<'a>)> {
    let Some(table) = evidence.table(THREADS) else { return Vec::new() };
    let span = span(table);
    let ran = |row: &Row<'_>| row.integer("running_ns").saturating_add(row.integer("unknown_ns"));
    let works = |row: &Row<'_>| share(ran(row), span) >= WORKS;
    let working: Vec<u64> =
        evidence.rows(THREADS).iter().filter(|row| works(row)).map(|row| row.integer("tid")).collect();
    let waits = evidence.rows(WAITS).into_iter();
    let waits = waits.filter(|row| wanted(row) && working.contains(&row.integer("tid")));
    let mut waits: Vec<_> = waits.map(|row| (share(row.integer("total_ns"), span), row)).collect();
    waits.retain(|(part, _)| *part > THRESHOLD);
    waits.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    waits
}

fn locks(evidence: &Evidence<'_>) -> Vec<Finding> {
    match evidence.table(HELD) {
        Some(table) if figure(table, "waits") > 0 => contended(evidence, span(table)),
        None if evidence.table(WAITS).is_none() => {
            evidence.trees().iter().filter_map(locks_of_flow).collect()
        }
        _ => futexes(evidence),
    }
}

/// Functions that take a lock, and wait for it in a system call.
const TAKE_LOCKS: &[&str] = &[
    "pthread_mutex_lock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "lll_lock_wait",
    "lll_lock_wait_private",
];
/// The least number of calls.
const FEWEST_LOCKS: u64 = 100;

/// Returns whether a function takes a lock: the library's of C, or the slow path of Rust's.
fn takes_lock(function: &str) -> bool {
    let is_of_rust = function.contains("sync::") && function.contains("lock_contended");
    is_of_rust || TAKE_LOCKS.contains(&call_tree::plain_name(function))
}

/// The locks that threads wait for in control flow: the time that passes in the functions that take them, outside of the
/// program.
fn locks_of_flow(tree: &Tree<'_>) -> Option<Finding> {
    let takes_lock = tree.marked(takes_lock);
    let mut calls: BTreeMap<[&str; 2], (u64, u64)> = BTreeMap::new();
    tree.visit(|node| {
        let path = || node.callers.iter().chain([&node.row]);
        let Some(at) = path().position(|row| takes_lock[row.function as usize]) else { return };
        let lock = path().nth(at).map_or("", |row| tree.text(row.function));
        let caller = at.checked_sub(1).map_or("", |at| tree.text(node.callers[at].function));
        let of = calls.entry([caller, lock]).or_default();
        if at == node.callers.len() {
            of.0 = of.0.saturating_add(node.row.entries);
        }
        of.1 = of.1.saturating_add(node.row.outside_time_ns);
    });
    let sum = |of: fn(&(u64, u64)) -> u64| calls.values().map(of).fold(0, u64::saturating_add);
    let (entries, waited) = (sum(|of| of.0), sum(|of| of.1));
    let whole = figure(tree.table, "time_ns").saturating_add(figure(tree.table, "outside_time_ns"));
    let weight = share(waited, whole);
    if entries < FEWEST_LOCKS || weight <= THRESHOLD {
        return None;
    }
    let ([caller, lock], most) = calls.iter().max_by_key(|(_, of)| of.1)?;
    let mut numbers = Numbers::default();
    let sentence = format!(
        "Threads wait for locks: {} calls {} {}, and waits {} in it, {} each time. Waits for locks take {} of the time of all \
         threads (threshold {}).",
        numbers.function("caller", caller),
        text::name(lock),
        numbers.times("calls", most.0),
        numbers.duration("waited_ns", most.1),
        numbers.duration("average_ns", most.1 / most.0.max(1)),
        numbers.percent("share", weight),
        numbers.percent("threshold", THRESHOLD),
    );
    let (command, link) = ("report tree".to_owned(), link::flame());
    Some(Finding { rule: LOCKS.name, weight, sentence, command, link, numbers: numbers.list() })
}

/// The lock that threads waited for longest, where the trace says what they waited for.
fn contended(evidence: &Evidence<'_>, span: u64) -> Vec<Finding> {
    let mut locks = evidence.rows(HELD);
    locks.retain(|row| row.text("kind") == "lock");
    let Some(most) = locks.iter().max_by_key(|row| row.integer("total_ns")) else { return Vec::new() };
    let (total, held, waiters) =
        (most.integer("total_ns"), most.integer("holder_ns"), most.integer("waiters").max(1));
    let part = share(total / waiters, span);
    if part <= THRESHOLD {
        return Vec::new();
    }
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: LOCKS.name,
        weight: part,
        sentence: format!(
            "Threads wait for locks: {} waited for the lock at {}, {} times, {} together, {} of the trace each on average \
             (threshold {}), at most {} at once. In {} of it {} ({}) was the next to release it.",
            match numbers.count("waiters", waiters) {
                waiters if waiters == "1" => "one thread".to_owned(),
                waiters => format!("{waiters} threads"),
            },
            numbers.text("lock", most.text("lock")),
            numbers.count("waits", most.integer("count")),
            numbers.duration("total_ns", total),
            numbers.percent("share", part),
            numbers.percent("threshold", THRESHOLD),
            numbers.duration("longest_ns", most.integer("max_ns")),
            numbers.percent("holder_share", share(held, total)),
            numbers.text("holder", most.text("holder")),
            most.integer("holder_tid"),
        ),
        command: "report locks".to_owned(),
        link: link::table("locks", ""),
        numbers: numbers.list(),
    }]
}

/// Waits in `futex`, of which the trace does not say what for.
fn futexes(evidence: &Evidence<'_>) -> Vec<Finding> {
    let waits = waits(evidence, |row| row.text("call") == "futex");
    let Some((part, most)) = waits.first() else { return Vec::new() };
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: LOCKS.name,
        weight: *part,
        sentence: format!(
            "Threads wait for locks or for each other: {} waited {} in futex, {} of the trace (threshold {}), {} times, at \
             most {} at once. Threads with such waits: {}.",
            numbers.thread(most),
            numbers.duration("total_ns", most.integer("total_ns")),
            numbers.percent("share", *part),
            numbers.percent("threshold", THRESHOLD),
            numbers.count("waits", most.integer("count")),
            numbers.duration("longest_ns", most.integer("max_ns")),
            numbers.count("threads", waits.len() as u64),
        ),
        command: "report states --by wait".to_owned(),
        link: link::table("states", "wait"),
        numbers: numbers.list(),
    }]
}

fn disks(evidence: &Evidence<'_>) -> Vec<Finding> {
    let is_of_files = |call: &str| call.is_empty() || OF_FILES.split(' ').any(|part| call.contains(part));
    let is_wanted = |row: &Row<'_>| row.text("wait") == "uninterruptible" && is_of_files(row.text("call"));
    let waits = waits(evidence, is_wanted);
    let Some((part, most)) = waits.first() else { return Vec::new() };
    let call = match most.text("call") {
        "" => "page faults",
        call => call,
    };
    let others = match waits.len() - 1 {
        0 => String::new(),
        1 => " One other wait passes the threshold.".to_owned(),
        others => format!(" {} other waits pass the threshold.", count(others as u64)),
    };
    let mut numbers = Numbers::default();
    vec![Finding {
        rule: DISKS.name,
        weight: *part,
        sentence: format!(
            "Threads wait for a device: {} waited {} in {call}, {} of the trace (threshold {}), {} times, at most {} at \
             once.{others}{}",
            numbers.thread(most),
            numbers.duration("total_ns", most.integer("total_ns")),
            numbers.percent("share", *part),
            numbers.percent("threshold", THRESHOLD),
            numbers.count("waits", most.integer("count")),
            numbers.duration("longest_ns", most.integer("max_ns")),
            device(evidence, most.integer("total_ns"), &mut numbers).unwrap_or_default(),
        ),
        command: "report io --by device".to_owned(),
        link: link::table("io", "device"),
        numbers: numbers.list(),
    }]
}

/// The least share of a wait that the requests of a device take, so that it may be what the thread waits for. Where requests
/// are held back before they reach the device, none is.
const OF_DEVICE: f64 = 0.1;

/// Names the device whose requests took longest, if that explains a part of a wait.
fn device(evidence: &Evidence<'_>, waited: u64, numbers: &mut Numbers) -> Option<String> {
    let devices = evidence.rows(DEVICES);
    let most = devices.iter().max_by_key(|row| row.integer("total_ns"))?;
    if share(most.integer("total_ns"), waited) < OF_DEVICE {
        return None;
    }
    Some(format!(
        " Device {} took {} for {} requests ({}), {} on average.",
        numbers.text("device", most.text("device")),
        numbers.duration("device_total_ns", most.integer("total_ns")),
        numbers.count("requests", most.integer("count")),
        numbers.text("operation", most.text("operation")),
        numbers.duration("request_average_ns", most.integer("average_ns")),
    ))
}
