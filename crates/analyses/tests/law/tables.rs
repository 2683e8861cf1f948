//! Tables of an event trace as one chunk, and cut and merged.

use hodo_clock::Nanos;
use hodo_model::{
    AnyAnalysis, FinishContext, Heading, NoSources, Selection, Start, Table, Value,
    kernel::Records,
    pass::{Pass, Scratch, States},
};

/// The state of a chunk.
pub(crate) fn fold(pass: &Pass<'_>, events: &mut [Records], names: &[String], is_first: bool) -> States {
    let mut states = pass.begin(&Start { names, is_first, ..Start::default() });
    let runs: Vec<_> = (0..).zip(&*events).map(|(stream, records)| (stream, 0..records.len())).collect();
    pass.fold(&mut states, events, &runs, &mut Scratch::default());
    travelled(pass, &states)
}

/// The serialized form must contain the whole state.
fn travelled(pass: &Pass<'_>, states: &States) -> States {
    pass.unpack(pass.pack(states)).ok().unwrap()
}

/// Merges neighbours in an order that `choices` picks.
fn merge_all(pass: &Pass<'_>, mut parts: Vec<States>, choices: &[usize]) -> Option<States> {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(at + 1);
        let earlier = parts.remove(at);
        parts.insert(at, pass.merge(earlier, later));
    }
    parts.pop()
}

/// The table of a state.
pub(crate) fn table(
    pass: &Pass<'_>,
    states: &States,
    events: &[Records],
    names: &[String],
    selection: &Selection,
) -> Vec<Table> {
    pass.finish(travelled(pass, states), names, span(events), &[selection], &NoSources, 2)
}

fn time(records: &Records) -> Nanos {
    records.times(0).next().unwrap_or(Nanos(0))
}

fn span(events: &[Records]) -> (Nanos, Nanos) {
    (events.first().map_or(Nanos(0), time), events.last().map_or(Nanos(0), time))
}

/// The tables of a trace as one chunk, and of the same trace cut after the events that `cuts` marks, with the parts
/// merged in the order that `choices` picks.
pub(crate) fn both(
    (analysis, views): (&dyn AnyAnalysis, &[&str]),
    events: &mut [Records],
    names: &[String],
    cuts: impl Fn(usize) -> bool,
    choices: &[usize],
) -> (Vec<Table>, Vec<Table>) {
    let pass = Pass::new(&[analysis]);
    let (mut parts, mut ends) = (Vec::new(), Vec::new());
    let mut begin = 0;
    for end in 1..=events.len() {
        if end == events.len() || cuts(end) {
            parts.push(fold(&pass, &mut events[begin..end], names, begin == 0));
            ends.push(time(&events[end - 1]));
            begin = end;
        }
    }
    let whole = fold(&pass, events, names, true);
    let copies: Vec<_> = parts.iter().map(|part| travelled(&pass, part)).zip(ends).collect();
    let merged = merge_all(&pass, parts, choices).unwrap_or_else(|| fold(&pass, &mut [], names, true));
    let tables = |states| {
        let selection = |view: &&str| Selection { view: (*view).to_owned(), ..Selection::default() };
        let table = |view| table(&pass, states, events, names, &selection(view));
        views.iter().flat_map(table).collect()
    };
    let (mut whole_tables, mut merged_tables): (Vec<Table>, Vec<Table>) = (tables(&whole), tables(&merged));
    if let Some(heading) = analysis.heading() {
        whole_tables.extend(tables(&whole));
        merged_tables.push(streamed(&pass, heading, copies, &whole, events, names));
    }
    (whole_tables, merged_tables)
}

/// The table whose rows are emitted as soon as they are settled, from parts merged in order.
fn streamed(
    pass: &Pass<'_>,
    heading: Heading,
    parts: Vec<(States, Nanos)>,
    whole: &States,
    events: &[Records],
    names: &[String],
) -> Table {
    let selection = Selection::default();
    let span = span(events);
    let context = FinishContext::without_events(&selection, whole.threads(), &NoSources);
    let of = FinishContext { names, span, ..context };
    let mut rows = heading.builder();
    let mut states: Option<States> = None;
    for (later, until) in parts {
        let merged = match states.take() {
            Some(earlier) => pass.merge(earlier, later),
            None => later,
        };
        pass.settle(states.insert(merged), until, &of, [&mut rows]);
    }
    let last = states.unwrap_or_else(|| pass.begin(&Start { names, is_first: true, ..Start::default() }));
    let last = table(pass, &last, events, names, &selection).remove(0);
    last.rows().iter().for_each(|row| rows.row(row.iter().map(Value::cell)));
    rows.finish(last.summary)
}

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
    let rows = |table: &Table, column: &str| -> Vec<u64> {
        let place = table.columns().iter().position(|known| known.name == column).expect("a column");
        table.rows().iter().map(|row| integer(&row[place])).collect()
    };
    let running: u64 = intervals
        .rows()
        .iter()
        .zip(rows(intervals, "duration_ns"))
        .filter(|(row, _)| row.contains(&"running".into()))
        .map(|(_, duration)| duration)
        .sum();
    let sums = [
        ("states", figure(states, "running_ns")),
        ("states by thread", rows(states, "running_ns").iter().sum()),
        ("states by interval", running),
        ("cpu over time", figure(over_time, "busy_ns")),
        ("cpu by cpu", rows(by_cpu, "busy_ns").iter().sum()),
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
    let parts = ["busy_ns", "idle_ns", "unknown_ns"].map(|column| rows(by_cpu, column));
    let duration = figure(by_cpu, "duration_ns");
    match (0..by_cpu.rows().len()).find(|&row| parts.iter().map(|part| part[row]).sum::<u64>() != duration) {
        Some(row) => Err(format!("{:?}: not {duration} ns in all", by_cpu.rows()[row])),
        None => Ok(()),
    }
}

/// The values of a column of integers.
fn column(table: &Table, name: &str) -> Vec<u64> {
    let place = table.columns().iter().position(|known| known.name == name).expect("a column");
    table.rows().iter().map(|row| integer(&row[place])).collect()
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
    let in_state: u64 = intervals
        .rows()
        .iter()
        .zip(column(intervals, "duration_ns"))
        .filter(|(row, _)| row.contains(&"runnable".into()))
        .map(|(_, duration)| duration)
        .sum();
    let sums = [
        ("states by thread", column(states, "runnable_ns").iter().sum()),
        ("states by interval", in_state),
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
    let mut times: Vec<(u64, u64, u64)> = Vec::new();
    let begins = column(intervals, "begin_ns").into_iter().zip(column(intervals, "duration_ns"));
    times.extend(
        column(intervals, "tid").into_iter().zip(begins).map(|(tid, (begin, length))| (tid, begin, length)),
    );
    times.sort_unstable();
    let overlap = |pair: &[(u64, u64, u64)]| pair[0].0 == pair[1].0 && pair[0].1 + pair[0].2 > pair[1].1;
    let twice: Vec<u64> = times.windows(2).filter(|pair| overlap(pair)).map(|pair| pair[0].0).collect();
    let parts = STATES.map(|name| column(states, name));
    let mut whole = 0;
    for (row, (tid, lifetime)) in
        column(states, "tid").into_iter().zip(column(states, "lifetime_ns")).enumerate()
    {
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
    let found = table.summary.iter().find(|(known, _)| *known == name);
    integer(&found.expect("a figure").1)
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
