//! Critical paths and states of small traces, in which it is plain to see who waits for whom, and tasks of boards.

use hodo_analyses::{
    cpu::CpuUse,
    critical_path::CRITICAL_PATH,
    queue::{Changes, Queue},
    sched::Scheduling,
    states::States,
    tasks,
    waits::WAITS,
    wakers::{EachWakeup, Wakers},
};
use hodo_clock::Nanos;
use hodo_model::{
    AnyAnalysis, NoSources, Selection, Start, Table, Value,
    kernel::{Kind, PrevState, Records, VOCABULARY, Wakeups},
    pass::{Pass, Scratch},
};

/// A field: its position in the record, and its value.
type Field = (usize, i64);

/// A kernel event.
#[derive(Clone, Copy)]
struct Event<'e> {
    time: u64,
    cpu: u32,
    /// The running thread, if the event contains it.
    tid: Option<u32>,
    kind: Kind,
    fields: &'e [Field],
}

const fn event(time: u64, cpu: u32, tid: Option<u32>, kind: Kind, fields: &[Field]) -> Event<'_> {
    Event { time, cpu, tid, kind, fields }
}

/// Fields as a slice.
const fn fields<const N: usize>(fields: &'static [Field; N]) -> &'static [Field] {
    fields
}

/// `prev_state` of a thread that waits, and of one that was preempted.
const SLEEPS: i64 = 1;
const PREEMPTED: i64 = 0;

/// A switch on a CPU at a time: from whom, its state, to whom.
macro_rules! switch {
    ($time:literal, $cpu:literal, $prev:literal, $state:expr, $next:literal) => {
        event($time, $cpu, None, Kind::SchedSwitch, fields(&[(1, $prev), (2, $state), (4, $next)]))
    };
}

/// A wake-up on a CPU at a time, of a thread that will run on another CPU.
macro_rules! wake {
    ($time:literal, $cpu:literal, $tid:literal, $target:literal) => {
        event($time, $cpu, None, Kind::SchedWaking, fields(&[(0, $tid), (1, $target)]))
    };
}

/// An event without fields that matter.
macro_rules! event {
    ($time:literal, $cpu:literal, $kind:ident) => {
        event($time, $cpu, None, Kind::$kind, fields(&[]))
    };
    ($time:literal, $cpu:literal, $kind:ident, $fields:expr) => {
        event($time, $cpu, None, Kind::$kind, fields(&$fields))
    };
}

/// The table of a view for a thread, of the whole trace.
fn table(analysis: &dyn AnyAnalysis, events: &[Event<'_>], view: &str, tid: u32) -> Table {
    table_of(analysis, events, view, tid, None)
}

/// The table of a view for a thread, in a window.
fn table_of(
    analysis: &dyn AnyAnalysis,
    events: &[Event<'_>],
    view: &str,
    tid: u32,
    window: Option<(Nanos, Nanos)>,
) -> Table {
    table_with(analysis, events, Wakeups::Wakeup, (view, &[tid], window))
}

/// The table of a view for some threads, in a window.
fn table_with(
    analysis: &dyn AnyAnalysis,
    events: &[Event<'_>],
    wakeups: Wakeups,
    (view, tids, window): (&str, &[u32], Option<(Nanos, Nanos)>),
) -> Table {
    let pass = Pass::new(&[analysis]);
    let names = ["futex".to_owned(), "read".to_owned()];
    let mut states = pass.begin(&Start { names: &names, is_first: true, wakeups });
    for &Event { time, cpu, tid, kind, fields } in events {
        let mut records = Records::default();
        records.push(Nanos(time), (cpu, tid), kind, 0);
        let words = VOCABULARY.iter().find(|words| words.kind == kind).unwrap();
        for index in 0..words.fields.len() {
            match fields.iter().find(|(own, _)| *own == index) {
                Some(&(_, value)) => records.integer(value),
                None => records.absent(),
            }
        }
        pass.fold(&mut states, &mut [records], &[(0, 0..1)], &mut Scratch::default());
    }
    let span = (Nanos(events[0].time), Nanos(events[events.len() - 1].time));
    let selection = Selection { view: view.to_owned(), tids: tids.to_vec(), window, ..Selection::default() };
    pass.finish(states, &names, span, &[&selection], &NoSources, 1).remove(0)
}

/// The pieces of a path: begin, duration, thread, cause, detail.
fn path(events: &[Event<'_>], tid: u32) -> Vec<String> {
    let table = table(&CRITICAL_PATH, events, "piece", tid);
    let index = |name: &str| table.columns().iter().position(|column| column.name == name).unwrap();
    let text = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    let cells = ["begin_ns", "duration_ns", "tid", "cause", "detail"].map(index);
    let line = |row: Vec<Value>| cells.map(|cell| text(&row[cell])).join(" ").trim_end().to_owned();
    table.rows().into_iter().map(line).collect()
}

/// 3 waits for a lock that 2 holds, who waits for one that 1 holds, who is preempted by 9.
const CHAIN: &[Event<'static>] = &[
    switch!(0, 0, 0, PREEMPTED, 1),
    switch!(0, 1, 0, PREEMPTED, 2),
    switch!(0, 2, 0, PREEMPTED, 3),
    event!(10, 1, SyscallEntry),
    switch!(11, 1, 2, SLEEPS, 0),
    event!(20, 2, SyscallEntry),
    switch!(21, 2, 3, SLEEPS, 0),
    switch!(30, 0, 1, PREEMPTED, 9),
    switch!(50, 0, 9, SLEEPS, 1),
    wake!(60, 0, 2, 1),
    switch!(62, 1, 0, PREEMPTED, 2),
    wake!(70, 1, 3, 2),
    switch!(75, 2, 0, PREEMPTED, 3),
    switch!(100, 2, 3, SLEEPS, 0),
];

#[test]
fn a_chain_of_locks_leads_to_the_thread_that_was_preempted() {
    let expected = [
        "0 21 3 running",
        "21 9 1 running",
        "30 20 1 cpu 9",
        "50 10 1 running",
        "60 2 2 cpu idle",
        "62 8 2 running",
        "70 5 3 cpu idle",
        "75 25 3 running",
    ];
    assert_eq!(path(CHAIN, 3), expected);
    let waits = table(&WAITS, CHAIN, "thread", 3).rows();
    let texts: Vec<&Value> = waits.iter().map(|row| &row[4]).collect();
    assert_eq!(texts, [&"3".into(), &"lock".into(), &"2".into(), &"cpu".into(), &"cpu: idle".into()]);
    assert_eq!(
        waits.iter().map(|row| &row[0]).collect::<Vec<_>>(),
        [54u64, 49, 49, 5, 5].map(Value::from).iter().collect::<Vec<_>>()
    );
}

#[test]
fn a_device_is_waited_for_from_the_request_on() {
    // 2 asks the device for 1, who waits for it; before that, 2 worked.
    let events = [
        switch!(0, 0, 0, PREEMPTED, 1),
        switch!(0, 1, 0, PREEMPTED, 2),
        switch!(10, 0, 1, SLEEPS, 0),
        event!(30, 1, BlockIssue, [(0, 8 << 20), (1, 77)]),
        switch!(40, 1, 2, SLEEPS, 0),
        event!(90, 0, IrqEntry, [(0, 5)]),
        event!(91, 0, BlockComplete, [(0, 8 << 20), (1, 77)]),
        wake!(92, 0, 1, 0),
        event!(93, 0, IrqExit),
        switch!(95, 0, 0, PREEMPTED, 1),
        switch!(99, 0, 1, SLEEPS, 0),
    ];
    let expected =
        ["0 10 1 running", "10 20 2 running", "30 62 1 block 8:0", "92 3 1 cpu idle", "95 4 1 running"];
    assert_eq!(path(&events, 1), expected);
}

#[test]
fn a_request_begins_when_it_is_issued_first() {
    let events = [
        switch!(0, 0, 0, PREEMPTED, 1),
        event!(10, 0, BlockIssue, [(0, 8 << 20), (1, 77)]),
        switch!(12, 0, 1, SLEEPS, 0),
        // The device was busy, and a kernel worker issues the request again.
        switch!(35, 0, 0, PREEMPTED, 5),
        event!(40, 0, BlockIssue, [(0, 8 << 20), (1, 77)]),
        switch!(45, 0, 5, SLEEPS, 0),
        event!(90, 0, IrqEntry, [(0, 5)]),
        event!(91, 0, BlockComplete, [(0, 8 << 20), (1, 77)]),
        wake!(92, 0, 1, 0),
        event!(93, 0, IrqExit),
        switch!(95, 0, 0, PREEMPTED, 1),
        switch!(99, 0, 1, SLEEPS, 0),
    ];
    let expected = ["0 12 1 running", "12 80 1 block 8:0", "92 3 1 cpu idle", "95 4 1 running"];
    assert_eq!(path(&events, 1), expected);
}

#[test]
fn the_interrupted_thread_is_no_waker() {
    let interrupted = |kinds: [(Kind, &'static [Field]); 2]| {
        let [(entry, fields), (exit, _)] = kinds;
        let events = [
            switch!(0, 0, 0, PREEMPTED, 1),
            switch!(10, 0, 1, SLEEPS, 7),
            event(50, 0, None, entry, fields),
            wake!(51, 0, 1, 0),
            event(52, 0, None, exit, &[]),
            switch!(55, 0, 7, PREEMPTED, 1),
            switch!(60, 0, 1, SLEEPS, 7),
        ];
        path(&events, 1)[1].clone()
    };
    assert_eq!(interrupted([(Kind::TimerEntry, &[]), (Kind::TimerExit, &[])]), "10 41 1 timer");
    let soft = [(Kind::SoftirqEntry, fields(&[(0, 6)])), (Kind::SoftirqExit, fields(&[]))];
    assert_eq!(interrupted(soft), "10 41 1 interrupt softirq TASKLET");
}

#[test]
fn a_packet_leads_to_its_sender() {
    let events = [
        switch!(0, 0, 0, PREEMPTED, 1),
        switch!(0, 1, 0, PREEMPTED, 2),
        switch!(10, 0, 1, SLEEPS, 0),
        event!(40, 1, NetQueue, [(2, 0xbeef)]),
        event!(42, 1, SoftirqEntry, [(0, 3)]),
        event!(43, 1, NetReceive, [(2, 0xbeef)]),
        wake!(44, 1, 1, 0),
        event!(45, 1, SoftirqExit),
        switch!(46, 0, 0, PREEMPTED, 1),
        switch!(50, 0, 1, SLEEPS, 0),
    ];
    let expected =
        ["0 10 1 running", "10 30 2 running", "40 4 1 network", "44 2 1 cpu idle", "46 4 1 running"];
    assert_eq!(path(&events, 1), expected);
}

#[test]
fn what_the_trace_does_not_record_is_unknown() {
    let events = [
        switch!(10, 0, 7, SLEEPS, 1),
        switch!(20, 0, 1, SLEEPS, 0),
        // No wake-up.
        switch!(30, 0, 0, PREEMPTED, 1),
        // 1 leaves, but 5 came last: a switch is missing.
        switch!(40, 0, 1, SLEEPS, 5),
        switch!(60, 0, 8, SLEEPS, 1),
        switch!(70, 0, 1, SLEEPS, 0),
    ];
    let path = path(&events, 1);
    assert_eq!(path[0], "10 10 1 running");
    assert_eq!(path[1], "20 10 1 unknown its wake-up is not recorded");
    let total: u64 = path.iter().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(total, 60);
}

#[test]
fn an_event_of_another_thread_shows_that_a_switch_is_missing() {
    // 7 came last, but 2 makes a system call, and wakes 1 later.
    let events = [
        switch!(0, 0, 0, PREEMPTED, 1),
        switch!(0, 1, 0, PREEMPTED, 2),
        switch!(10, 1, 2, PREEMPTED, 7),
        switch!(20, 0, 1, SLEEPS, 0),
        event(30, 1, Some(2), Kind::SyscallEntry, &[]),
        event(40, 1, Some(2), Kind::SchedWaking, fields(&[(0, 1), (1, 0)])),
        switch!(45, 0, 0, PREEMPTED, 1),
        switch!(50, 1, 2, SLEEPS, 0),
        switch!(60, 0, 1, SLEEPS, 0),
    ];
    let expected = [
        "0 20 1 running",
        "20 10 2 unknown events are missing",
        "30 10 2 running",
        "40 5 1 cpu idle",
        "45 15 1 running",
    ];
    assert_eq!(path(&events, 1), expected);
}

#[test]
fn a_new_thread_continues_its_parent() {
    // 1 makes 2 and waits for it; before it was made, the path is of 1 itself.
    let events = [
        switch!(0, 0, 0, PREEMPTED, 1),
        switch!(5, 0, 1, SLEEPS, 3),
        event!(10, 0, SchedFork, [(1, 2), (3, 3)]),
        event!(12, 0, SchedWakeup, [(0, 2), (1, 1)]),
        switch!(14, 1, 0, PREEMPTED, 2),
        wake!(20, 1, 1, 2),
        switch!(22, 2, 0, PREEMPTED, 1),
        switch!(30, 2, 1, SLEEPS, 0),
    ];
    let expected = [
        "0 5 1 running",
        "5 7 3 running",
        "12 2 2 cpu idle",
        "14 6 2 running",
        "20 2 1 cpu idle",
        "22 8 1 running",
    ];
    assert_eq!(path(&events, 1), expected);
}

#[test]
fn a_window_may_end_within_a_wait() {
    let whole = table(&CRITICAL_PATH, CHAIN, "piece", 3).rows();
    let part = table_of(&CRITICAL_PATH, CHAIN, "piece", 3, Some((Nanos(25), Nanos(45)))).rows();
    // 1 ran for 5 ns of it, and was preempted by 9 for 15.
    let cells = |row: &[Value]| (row[0].clone(), row[1].clone());
    let expected = [(25u64.into(), 5u64.into()), (30u64.into(), 15u64.into())];
    assert_eq!(part.iter().map(|row| cells(row)).collect::<Vec<(Value, Value)>>(), expected);
    assert_eq!((&part[0][2..], &part[1][2..]), (&whole[1][2..], &whole[2][2..]));
}

#[test]
fn tasks_run_from_switch_to_switch() {
    let events = [
        event!(10, 0, TaskSwitch, [(0, 0), (1, 1)]),
        event!(20, 0, TaskSwitch, [(0, 1), (1, 2)]),
        event!(25, 0, TaskSwitch, [(0, 2), (1, 0)]),
        event!(40, 0, TaskSwitch, [(0, 0), (1, 1)]),
        // 1 came last, but 2 leaves: a switch is missing.
        event!(50, 0, TaskSwitch, [(0, 2), (1, 0)]),
    ];
    let rows = table(&tasks::TaskIntervals, &events, "interval", 0).rows();
    let cells: Vec<[Value; 3]> =
        rows.iter().map(|row| [row[0].clone(), row[1].clone(), row[3].clone()]).collect();
    let expected = [(10u64, 10u64, "1".into()), (20, 5, "2".into()), (40, 10, Value::Null)];
    assert_eq!(cells, expected.map(|(begin, length, task)| [begin.into(), length.into(), task]));
    let sums = table(&tasks::TaskSums, &events, "task", 0);
    assert_eq!((sums.figure("runs"), sums.figure("total_ns")), (Some(&3u64.into()), Some(&25u64.into())));
    let totals: Vec<[Value; 2]> = sums.rows().iter().map(|row| [row[1].clone(), row[8].clone()]).collect();
    assert_eq!(totals, [[10u64.into(), Value::Null], [10u64.into(), "1".into()], [5u64.into(), "2".into()]]);
}

#[test]
fn a_thread_that_an_event_contains_does_not_wait_for_a_cpu() {
    // The switches to 5 at 25 and from it at 35 are missing.
    let with = |tid: u32| {
        [
            switch!(0, 0, 0, PREEMPTED, 5),
            switch!(10, 0, 5, SLEEPS, 0),
            wake!(20, 0, 5, 0),
            event(20, 0, None, Kind::SchedWakeup, fields(&[(0, 5), (1, 0)])),
            event(30, 0, Some(tid), Kind::SyscallEntry, fields(&[])),
            event(40, 0, Some(0), Kind::SyscallEntry, fields(&[])),
            switch!(90, 0, 0, PREEMPTED, 5),
            switch!(100, 0, 5, SLEEPS, 0),
        ]
    };
    let row =
        |analysis: &dyn AnyAnalysis, tid: u32| table(analysis, &with(tid), "thread", 5).rows().remove(0);
    let times = |tid| row(&States, tid)[3..].to_vec();
    // Running, waiting for a CPU, waiting for something else (3 ways), unknown, all.
    assert_eq!(times(5), [20u64, 0, 10, 0, 0, 70, 100].map(Value::from));
    assert_eq!(times(0), [20u64, 70, 10, 0, 0, 0, 100].map(Value::from));
    let wakeups = |tid| table(&Scheduling::<false>, &with(tid), "thread", 5).figure("wakeups").cloned();
    assert_eq!((wakeups(5), wakeups(0)), (Some(0u64.into()), Some(1u64.into())));
    // Waited, and waited until an unknown time.
    let waited = |tid| table(&Queue, &with(tid), "cpu", 0).rows()[0][4..].to_vec();
    assert_eq!(
        (waited(5), waited(0)),
        ([0u64, 10].map(Value::from).into(), [70u64, 0].map(Value::from).into())
    );
}

#[test]
fn a_thread_that_runs_before_the_first_switch_does_not_wait() {
    let events = [
        switch!(0, 1, 0, PREEMPTED, 9),
        // 5 runs on CPU 0, and is about to sleep when it is woken: it runs on. 6 waits.
        event!(10, 1, SchedWakeup, [(0, 5), (1, 0)]),
        event!(20, 1, SchedWakeup, [(0, 6), (1, 0)]),
        switch!(30, 0, 5, SLEEPS, 6),
        switch!(60, 0, 6, SLEEPS, 0),
        switch!(70, 1, 9, SLEEPS, 0),
    ];
    let times = |tid| table(&States, &events, "thread", tid).rows().remove(0)[3..].to_vec();
    assert_eq!(times(5), [30u64, 0, 40, 0, 0, 0, 70].map(Value::from));
    assert_eq!(times(6), [30u64, 10, 10, 0, 0, 0, 50].map(Value::from));
    let queue = table(&Queue, &events, "cpu", 0);
    let figures = ["waited_ns", "max", "unknown_ns"].map(|name| queue.figure(name).cloned());
    assert_eq!(figures, [10u64, 1, 0].map(|value| Some(value.into())));
    let changes = table(&Changes, &events, "change", 0).rows();
    let of_0 =
        changes.into_iter().filter(|row| row[1] == 0u64.into()).map(|row| [row[0].clone(), row[2].clone()]);
    let expected = [(10u64, 0u64), (20, 1), (30, 0)].map(|(at, length)| [Value::from(at), length.into()]);
    assert_eq!(of_0.collect::<Vec<_>>(), expected);
}

/// 5 ran on CPU 0 first, so it came to CPU 1 by a switch that is missing, as the tracer began later there.
#[test]
fn a_thread_that_came_from_another_cpu_did_not_run_from_the_begin() {
    let events = [
        switch!(10, 0, 5, SLEEPS, 0),
        event!(20, 0, SchedWakeup, [(0, 5), (1, 0)]),
        event!(21, 0, SchedMigrate, [(0, 5), (2, 1)]),
        switch!(50, 1, 5, SLEEPS, 6),
        switch!(60, 1, 6, SLEEPS, 0),
    ];
    // From 10 it sleeps, from 20 it waits for CPU 0, from 21 it waits or runs.
    let times = table(&States, &events, "thread", 5).rows().remove(0)[3..].to_vec();
    assert_eq!(times, [0u64, 1, 20, 0, 0, 29, 50].map(Value::from));
    let queue = table(&Queue, &events, "cpu", 0);
    let figures = ["waited_ns", "unknown_ns"].map(|name| queue.figure(name).cloned());
    assert_eq!(figures, [1u64, 29].map(|value| Some(value.into())));
    let cpus = table_with(&CpuUse, &events, Wakeups::Wakeup, ("cpu", &[], None));
    let figures = ["busy_ns", "unknown_ns", "switches_missing"].map(|name| cpus.figure(name).cloned());
    assert_eq!(figures, [10u64, 40, 1].map(|value| Some(value.into())));
}

#[test]
fn a_thread_waits_after_a_preemption_too() {
    let events = [
        switch!(0, 0, 0, PREEMPTED, 5),
        switch!(10, 0, 5, PREEMPTED, 6),
        // 5 waits already.
        event!(15, 0, SchedWakeup, [(0, 5), (1, 0)]),
        switch!(30, 0, 6, SLEEPS, 5),
        switch!(40, 0, 5, SLEEPS, 0),
        event!(50, 0, SchedWakeup, [(0, 5), (1, 0)]),
        switch!(53, 0, 0, PREEMPTED, 5),
    ];
    let sched = table(&Scheduling::<false>, &events, "thread", 5);
    let figures = ["waits", "queued_ns", "preempted_ns", "wakeups"].map(|name| sched.figure(name).cloned());
    assert_eq!(figures, [2u64, 23, 20, 1].map(|value| Some(value.into())));
    let slowest = table(&Scheduling::<false>, &events, "slowest", 5).rows();
    let cells = slowest.iter().map(|row| [row[3].clone(), row[6].clone()]);
    let expected =
        [(20u64, "preemption"), (3, "wakeup")].map(|(length, after)| [length.into(), after.into()]);
    assert_eq!(cells.collect::<Vec<[Value; 2]>>(), expected);
    assert_eq!(table(&States, &events, "thread", 5).figure("runnable_ns"), Some(&23u64.into()));
}

#[test]
fn a_state_without_a_meaning_is_unknown() {
    let leaves = [(1, 5), (2, PrevState::Unknown.number()), (4, 0)];
    let events = [
        switch!(0, 0, 0, PREEMPTED, 5),
        event(10, 0, None, Kind::SchedSwitch, &leaves),
        event!(25, 0, SchedWakeup, [(0, 5), (1, 0)]),
        switch!(30, 0, 0, PREEMPTED, 5),
        switch!(40, 0, 5, SLEEPS, 0),
    ];
    let times = table(&States, &events, "thread", 5).rows().remove(0)[3..].to_vec();
    assert_eq!(times, [20u64, 5, 0, 0, 0, 15, 40].map(Value::from));
    let path = path(&events, 5);
    assert!(
        path.iter().any(|piece| piece.contains("the code of its state has no known meaning")),
        "{path:?}"
    );
}

/// Cells that need wake-ups are null if the trace has none.
#[test]
fn without_wakeups_nothing_is_zero() {
    let events = [
        switch!(0, 0, 0, PREEMPTED, 5),
        switch!(10, 0, 5, PREEMPTED, 6),
        switch!(20, 0, 6, SLEEPS, 5),
        switch!(30, 0, 5, SLEEPS, 0),
    ];
    let table = |analysis: &dyn AnyAnalysis, view: &str| {
        table_with(analysis, &events, Wakeups::Missing, (view, &[], None))
    };
    let sched = table(&Scheduling::<false>, "thread");
    for name in ["waits", "queued_ns", "wakeups"] {
        assert_eq!(sched.figure(name), Some(&Value::Null), "{name}");
    }
    assert_eq!(sched.figure("preempted_ns"), Some(&10u64.into()));
    for (table, names) in [
        (table(&Queue, "cpu"), &["waited_ns", "mean", "max"][..]),
        (table(&Wakers, "pair"), &["wakeups", "pairs"]),
        (table(&EachWakeup, "wakeup"), &["wakeups"]),
    ] {
        for name in names {
            assert_eq!(table.figure(name), Some(&Value::Null), "{name}");
        }
        assert!(table.rows().iter().all(|row| row[1..].iter().all(|cell| *cell == Value::Null)));
    }
    assert!(sched.rows().iter().all(|row| row.contains(&Value::Null)));
}
