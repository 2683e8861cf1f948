//! Sums that tables of the same events share.

use hodo_model::{Selection, Table, Value};

/// Checks that the running times have the same sum in all tables, and that each CPU is always busy, idle or unknown.
///
/// # Errors
/// The differing values.
pub(crate) fn agreement(
    by_cpu: &Table,
    states: &Table,
    over_time: &Table,
    intervals: &Table,
    selection: &Selection,
) -> Result<(), String> {
    let busy = figure(by_cpu, "busy_ns");
    let sums = [
        ("states", figure(states, "running_ns")),
        ("states by thread", column(states, "running_ns").iter().sum()),
        ("states by interval", time_in(intervals, "running")),
        ("cpu over time", figure(over_time, "busy_ns")),
        ("cpu by cpu", column(by_cpu, "busy_ns").iter().sum()),
    ];
    if let Some((name, other)) = sums.into_iter().find(|(_, other)| *other != busy) {
        return Err(format!("{name} has {other} ns, cpu {busy} ns"));
    }
    if figure(over_time, "unknown_ns") != figure(by_cpu, "unknown_ns") {
        return Err("what is unknown differs over time".to_owned());
    }
    if !selection.tids.is_empty() {
        return Ok(());
    }
    let parts = ["busy_ns", "idle_ns", "unknown_ns"].map(|name| column(by_cpu, name));
    let duration = figure(by_cpu, "duration_ns");
    match (0..by_cpu.rows().len()).find(|&row| parts.iter().map(|part| part[row]).sum::<u64>() != duration) {
        Some(row) => Err(format!("{:?}: not {duration} ns in all", by_cpu.rows()[row])),
        None => Ok(()),
    }
}

/// The time of all threads in a state.
fn time_in(intervals: &Table, state: &str) -> u64 {
    let rows = intervals.rows().into_iter().zip(column(intervals, "duration_ns"));
    rows.filter(|(row, _)| row.contains(&state.into())).map(|(_, duration)| duration).sum()
}

/// The values of a column of integers.
fn column(table: &Table, name: &str) -> Vec<u64> {
    let index = table.columns().iter().position(|known| known.name == name).expect("a column");
    table.rows().iter().map(|row| integer(&row[index])).collect()
}

/// Checks that threads waited for CPUs as long as the queues of the CPUs say, in all tables of both.
///
/// # Errors
/// The differing values.
pub(crate) fn same_waits(
    queue: &Table,
    over_time: &Table,
    states: &Table,
    intervals: &Table,
) -> Result<(), String> {
    let runnable = figure(states, "runnable_ns");
    let sums = [
        ("states by thread", column(states, "runnable_ns").iter().sum()),
        ("states by interval", time_in(intervals, "runnable")),
        ("queue", figure(queue, "waited_ns")),
        ("queue by cpu", column(queue, "waited_ns").iter().sum()),
        ("queue over time", column(over_time, "waited_ns").iter().sum()),
    ];
    match sums.into_iter().find(|(_, other)| *other != runnable) {
        Some((name, other)) => Err(format!("{name} has {other} ns, states {runnable} ns")),
        None => Ok(()),
    }
}

/// Checks that the states of each thread last together as long as the thread is known to exist. Where switches are
/// missing, a thread may run on two CPUs at once; such threads are left out. Returns the number of the others.
///
/// # Errors
/// The thread, and its times.
pub(crate) fn whole_lives(states: &Table, intervals: &Table) -> Result<usize, String> {
    const STATES: [&str; 6] =
        ["running_ns", "runnable_ns", "interruptible_ns", "uninterruptible_ns", "stopped_ns", "unknown_ns"];
    let begins = column(intervals, "begin_ns").into_iter().zip(column(intervals, "duration_ns"));
    let mut times: Vec<(u64, (u64, u64))> = column(intervals, "tid").into_iter().zip(begins).collect();
    times.sort_unstable();
    let mut twice: Vec<u64> = Vec::new();
    for [(tid, (begin, length)), (next_tid, (next_begin, _))] in times.array_windows() {
        if tid == next_tid && begin + length > *next_begin {
            twice.push(*tid);
        }
    }
    let parts = STATES.map(|name| column(states, name));
    let mut whole = 0;
    let lifetimes = column(states, "tid").into_iter().zip(column(states, "lifetime_ns"));
    for (row, (tid, lifetime)) in lifetimes.enumerate() {
        let sum: u64 = parts.iter().map(|part| part[row]).sum();
        if twice.contains(&tid) {
            continue;
        }
        if sum != lifetime {
            return Err(format!("the states of {tid} last {sum} ns, its life {lifetime} ns"));
        }
        whole += 1;
    }
    Ok(whole)
}

fn figure(table: &Table, name: &str) -> u64 {
    integer(table.figure(name).expect("a figure"))
}

fn integer(value: &Value) -> u64 {
    match value {
        Value::Integer(value) => *value,
        other => panic!("{other:?} is no number"),
    }
}

/// Checks that `io` by thread and by file have the same sums.
///
/// # Errors
/// The differing values.
pub(crate) fn same_io(by_thread: &Table, by_file: &Table) -> Result<(), String> {
    let sums = |table: &Table| ["read_bytes", "written_bytes", "operations"].map(|name| figure(table, name));
    let (threads, files) = (sums(by_thread), sums(by_file));
    if threads == files { Ok(()) } else { Err(format!("by thread {threads:?}, by file {files:?}")) }
}

/// Checks that the pieces of a path follow each other, and add up to its span.
///
/// # Errors
/// The piece at which they do not.
pub(crate) fn are_seamless(path: &Table) -> Result<(), String> {
    let mut now = figure(path, "path_begin_ns");
    let end = now + figure(path, "span_ns");
    for row in path.rows() {
        let (begin, length) = (integer(&row[0]), integer(&row[1]));
        if begin != now || length == 0 {
            return Err(format!("{row:?} does not begin at {now}, or is empty"));
        }
        now += length;
    }
    if now == end && figure(path, "total_ns") == figure(path, "span_ns") {
        Ok(())
    } else {
        Err(format!("pieces end at {now}, the path at {end}"))
    }
}
