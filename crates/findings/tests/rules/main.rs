//! Each rule, on a table that passes its threshold and on one that does not.

use hodo_findings::{
    DIFFERENCE_RULES, Evidence, Execution, Executions, Finding, Need, PATTERNS, RULES, Rule, findings,
    further, needs, patterns, table, why,
};
use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

use tails::kinds;

mod allocation;
mod calls;
mod difference;
mod growth;
mod hot;
mod input;
mod tails;

const SECOND: u64 = 1_000_000_000;

/// A table of a second with text and integer columns, by the values of its first row.
fn made(
    name: &'static str,
    figures: &[(&'static str, u64)],
    columns: &[&'static str],
    rows: &[&[Value]],
) -> Table {
    let mut summary: Summary = figures.iter().map(|&(name, figure)| (name, figure.into())).collect();
    summary.extend([("begin_ns", 0u64.into()), ("end_ns", SECOND.into())]);
    let kind = |index: usize| rows.first().is_some_and(|row| matches!(row[index], Value::Text(_)));
    let column = |(index, &name): (usize, &&'static str)| match kind(index) {
        true => Column::name(name),
        false => Column::integer(name, Unit::None),
    };
    let columns = columns.iter().enumerate().map(column).collect();
    Table::new(name, Shape::Counters, summary, columns, rows.iter().map(|row| row.to_vec()))
}

fn found(tables: &[(Need, &Table)]) -> Vec<Finding> {
    let found = findings(&Evidence::new(tables.to_vec()));
    for finding in &found {
        assert!(finding.link.starts_with("#view=") && !finding.numbers.is_empty(), "{finding:?}");
        assert!(!finding.sentence.contains("  "), "{}", finding.sentence);
    }
    found
}

/// The names of the rules that find something.
fn rules(tables: &[(Need, &Table)]) -> Vec<&'static str> {
    found(tables).iter().map(|finding| finding.rule).collect()
}

#[test]
fn nothing_stands_out_of_nothing() {
    assert_eq!(found(&[]), []);
    let empty = made("states", &[], &["tid", "running_ns", "runnable_ns"], &[]);
    assert_eq!(found(&[(("states", "thread"), &empty)]), []);
}

#[test]
fn contention_needs_a_fifth_of_the_time() {
    let row: [Value; 4] = ["loop".into(), 7u64.into(), 80_000_000u64.into(), 20_000_000u64.into()];
    let quiet = made("states", &[], &["comm", "tid", "running_ns", "runnable_ns"], &[&row]);
    assert_eq!(rules(&[(("states", "thread"), &quiet)]), [] as [&str; 0]);
    let states = |runnable: u64| {
        let row: [Value; 4] = ["loop".into(), 7u64.into(), (4 * runnable - 1).into(), runnable.into()];
        made("states", &[], &["comm", "tid", "running_ns", "runnable_ns"], &[&row])
    };
    assert_eq!(rules(&[(("states", "thread"), &states(9_999_999))]), [] as [&str; 0], "less than 10 ms");
    let contended = states(10_000_000);
    let [finding] = &found(&[(("states", "thread"), &contended)])[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "cpu-contention");
    assert!(
        finding.sentence.contains("10.0 ms") && finding.sentence.contains("loop (7)"),
        "{}",
        finding.sentence
    );
    assert_eq!(finding.command, "report states");
}

/// A thread that works, and one of its waits.
fn waits(wait: &str, call: &str, total: u64, running: u64) -> [Table; 2] {
    let states: [Value; 4] = ["db".into(), 9u64.into(), running.into(), 0u64.into()];
    let wait: [Value; 7] =
        ["db".into(), 9u64.into(), wait.into(), call.into(), 3u64.into(), total.into(), total.into()];
    [
        made("states", &[], &["comm", "tid", "running_ns", "runnable_ns"], &[&states]),
        made("states", &[], &["comm", "tid", "wait", "call", "count", "total_ns", "max_ns"], &[&wait]),
    ]
}

#[test]
fn waits_count_for_threads_that_work() {
    let rules = |wait, call, total, running| {
        let [threads, waits] = waits(wait, call, total, running);
        rules(&[(("states", "thread"), &threads), (("states", "wait"), &waits)])
    };
    let works = SECOND / 100;
    assert_eq!(rules("interruptible", "futex", SECOND / 5, works), ["lock-wait"]);
    assert_eq!(rules("interruptible", "futex", SECOND / 10, works), [] as [&str; 0]);
    assert_eq!(rules("interruptible", "nanosleep", SECOND / 5, works), [] as [&str; 0], "it asked to sleep");
    assert_eq!(rules("uninterruptible", "read", SECOND / 5, works), ["disk-wait"]);
    assert_eq!(rules("interruptible", "futex", SECOND / 5, SECOND / 1000), [] as [&str; 0], "an idle daemon");
    assert_eq!(
        rules("uninterruptible", "sched_setaffinity", SECOND / 5, works),
        [] as [&str; 0],
        "no device"
    );
    assert_eq!(rules("uninterruptible", "", SECOND / 5, works), ["disk-wait"], "a page fault");
}

#[test]
fn waits_name_the_device() {
    let sentence = |tables: &[Table; 2], more: (Need, &Table)| {
        let found = found(&[(("states", "thread"), &tables[0]), (("states", "wait"), &tables[1]), more]);
        let [finding] = &found[..] else { panic!("one finding") };
        finding.sentence.clone()
    };
    let reported = |total: u64| {
        let row: [Value; 5] = ["sda".into(), "read".into(), total.into(), 3u64.into(), (total / 3).into()];
        let devices = made("io", &[], &["device", "operation", "total_ns", "count", "average_ns"], &[&row]);
        sentence(&waits("uninterruptible", "read", SECOND / 5, SECOND / 10), (("io", "device"), &devices))
    };
    let long = reported(SECOND / 50);
    assert!(long.ends_with("Device sda took 20.0 ms for 3 requests (read), 6.67 ms on average."), "{long}");
    let short = reported(SECOND / 50 - 1);
    assert!(!short.contains("sda"), "less than a tenth of the wait: {short}");
}

#[test]
fn migrations_are_measured_by_running() {
    let rules = |migrations: u64, time: u64| {
        let moved: [Value; 3] = ["hop".into(), 5u64.into(), migrations.into()];
        let ran: [Value; 3] = ["hop".into(), 5u64.into(), time.into()];
        let sched = made("sched", &[], &["comm", "tid", "migrations"], &[&moved]);
        let cpu = made("cpu", &[], &["comm", "tid", "time_ns"], &[&ran]);
        rules(&[(("sched", "thread"), &sched), (("cpu", "thread"), &cpu)])
    };
    assert_eq!(rules(200, 199_999_999), ["migrations"]);
    assert_eq!(rules(200, 200_000_000), [] as [&str; 0]);
    assert_eq!(rules(199, 1_000), [] as [&str; 0]);
}

#[test]
fn small_reads_are_many_small_and_slow() {
    let rules = |operations: u64, bytes: u64, total: u64| {
        let row: [Value; 6] =
            ["cat".into(), 3u64.into(), bytes.into(), 0u64.into(), operations.into(), total.into()];
        let columns = ["comm", "tid", "read_bytes", "written_bytes", "operations", "total_ns"];
        rules(&[(("io", "thread"), &made("io", &[], &columns, &[&row]))])
    };
    assert_eq!(rules(1_000, 511_999, SECOND / 10), ["small-io"]);
    assert_eq!(rules(999, 1_000, SECOND / 10), [] as [&str; 0]);
    assert_eq!(rules(1_000, 512_000, SECOND / 10), [] as [&str; 0]);
    assert_eq!(rules(1_000, 1_000, SECOND / 20), [] as [&str; 0]);
    let row: [Value; 6] =
        ["db".into(), 3u64.into(), 0u64.into(), 50_000u64.into(), 2_000u64.into(), (SECOND / 2).into()];
    let columns = ["comm", "tid", "read_bytes", "written_bytes", "operations", "total_ns"];
    let threads = made("io", &[], &columns, &[&row]);
    let sync: [Value; 3] = ["sync".into(), 1_000u64.into(), (SECOND * 9 / 20).into()];
    let operations = made("io", &[], &["operation", "count", "total_ns"], &[&sync]);
    let both = [(("io", "thread"), &threads), (("io", "operation"), &operations)];
    assert_eq!(self::rules(&both), [] as [&str; 0], "most of the time is that of fsync");
    assert_eq!(self::rules(&both[..1]), ["small-io"]);
}

#[test]
fn interrupts_storm_by_time_or_rate() {
    let rules = |count: u64, total: u64| {
        let row: [Value; 4] = ["hard".into(), "nvme".into(), count.into(), total.into()];
        rules(&[(("irq", "handler"), &made("irq", &[], &["kind", "name", "count", "total_ns"], &[&row]))])
    };
    assert_eq!(rules(1, SECOND / 10), ["interrupt-storm"]);
    let short = |end: u64| {
        let row: [Value; 4] = ["soft".into(), "SCHED".into(), 400u64.into(), (end / 2).into()];
        let mut irq = made("irq", &[], &["kind", "name", "count", "total_ns"], &[&row]);
        irq.summary.retain(|(name, _)| *name != "end_ns");
        irq.summary.push(("end_ns", end.into()));
        self::rules(&[(("irq", "handler"), &irq)])
    };
    assert_eq!(short(10_000_000), ["interrupt-storm"]);
    assert_eq!(short(9_999_999), [] as [&str; 0], "in so short a time nothing is a storm");
    assert_eq!(rules(20_001, 1), ["interrupt-storm"]);
    assert_eq!(rules(20_000, SECOND / 20), [] as [&str; 0]);
    let raised: [Value; 4] = ["raise".into(), "TIMER".into(), 1u64.into(), SECOND.into()];
    let raised = made("irq", &[], &["kind", "name", "count", "total_ns"], &[&raised]);
    assert_eq!(self::rules(&[(("irq", "handler"), &raised)]), [] as [&str; 0], "it waits to run");
    let off = |max: u64| {
        let row: [Value; 2] = [0u64.into(), max.into()];
        made("irqoff", &[("total_ns", max)], &["cpu", "max_ns"], &[&row])
    };
    let names = |max| self::rules(&[(("irqoff", "cpu"), &off(max))]);
    assert_eq!(names(1_000_001), ["interrupts-off"]);
    assert_eq!(names(1_000_000), [] as [&str; 0]);
}

#[test]
fn exceptions_and_gaps_of_control_flow() {
    let functions = |raised: u64, gaps: u64| {
        let row: [Value; 3] = ["_Unwind_RaiseException".into(), raised.into(), 10u64.into()];
        let figures = [("instructions", 1000), ("gaps", gaps), ("lost_time_ns", 1), ("time_ns", 99)];
        made("functions", &figures, &["function", "total_instructions", "calls"], &[&row])
    };
    let rules_with = |raised, gaps| rules(&[(("functions", ""), &functions(raised, gaps))]);
    assert_eq!(rules_with(51, 0), ["exceptions"]);
    assert_eq!(rules_with(50, 0), [] as [&str; 0]);
    assert_eq!(rules_with(50, 2), ["lost"]);
    assert_eq!(rules_with(51, 2), ["exceptions", "lost"], "the worse one first");
}

#[test]
fn the_recorders_own_share() {
    let functions = |own: u64| {
        let rows: [[Value; 3]; 3] = [
            ["perf_event_mmap".into(), own.into(), 10u64.into()],
            ["perf_event_comm".into(), 5u64.into(), 1u64.into()],
            ["perf_event_alloc".into(), 500u64.into(), 1u64.into()],
        ];
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        made("functions", &[("instructions", 1000)], &["function", "total_instructions", "calls"], &rows)
    };
    let rules_with = |own| rules(&[(("functions", ""), &functions(own))]);
    assert_eq!(rules_with(16), ["recorder"]);
    assert_eq!(rules_with(15), [] as [&str; 0]);
}

#[test]
fn a_slow_first_call_is_no_tail() {
    let found = |counts, first| found(&[(("latency", "instructions"), &kinds(counts, [5, 100], 0.5, first))]);
    let [finding] = &found([149, 1], 100)[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "first-call");
    assert!(finding.sentence.contains("that ran 100 instructions, the 149 others 5"), "{}", finding.sentence);
    assert_eq!(found([149, 1], 5)[0].rule, "heavy-tail", "a later one is slow");
    assert_eq!(found([149, 2], 100)[0].rule, "heavy-tail", "a second one is slow");
    assert_eq!(found([18, 1], 100), [], "too few");
    let cheap = kinds([149, 1], [1, 20], 0.5, 20);
    assert_eq!(rules(&[(("latency", "instructions"), &cheap)]), [] as [&str; 0], "too cheap");
}

#[test]
fn slow_executions_in_a_rhythm() {
    let executions = kinds([990, 10], [5, 30], 0.03, 5);
    let table = |every: usize| {
        let cost = |number: usize| if number % every == 7 { 30 } else { 5 };
        let execution = |number| Execution {
            number: number as u64,
            begin: None,
            end: None,
            instructions: cost(number),
            caller: 0,
        };
        let all: Vec<Execution> = (0..1000).map(execution).collect();
        let slow = all.iter().filter(|one| one.instructions >= 30).copied().collect();
        patterns("get", "program", &Executions { all, step: 1, slow })
    };
    let found = |patterns: &Table, executions: &Table| {
        found(&[(("latency", "instructions"), executions), (PATTERNS, patterns)])
    };
    let [finding] = &found(&table(100), &executions)[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "rhythm");
    assert!(
        finding.sentence.contains("in a rhythm, every 100th, with a strength of 100 %: 10 of 1,000"),
        "{}",
        finding.sentence
    );
    assert_eq!(found(&table(400), &executions), [], "fewer than 5");
    assert_eq!(found(&table(100), &kinds([990, 10], [5, 30], 0.02, 5)), [], "at most 2 % of the run");
}

#[test]
fn a_rule_says_why_it_finds_nothing() {
    let slow = kinds([149, 1], [5, 100], 0.5, 100);
    let evidence = Evidence::new(vec![(("latency", "instructions"), &slow)]);
    let why =
        |name: &str| why(RULES.iter().find(|rule| rule.name == name).expect("a rule"), &evidence, findings);
    assert!(
        why("heavy-tail").contains("the tail of get costs most, 50 % of the run; only its first"),
        "{}",
        why("heavy-tail")
    );
    assert!(why("first-call").contains("It fired: get is slow in its first call only"));
    assert!(why("lost").contains("have no rows in this input"), "{}", why("lost"));
}

#[test]
fn threads_of_a_pool_are_compared_with_their_mean() {
    let rules = |shares: &[u64], whole: u64| {
        let main: [Value; 3] = [9u64.into(), 9u64.into(), (whole - shares.iter().sum::<u64>()).into()];
        let workers = (10u64..).zip(shares).map(|(tid, &share)| [9u64.into(), tid.into(), share.into()]);
        let rows: Vec<[Value; 3]> = [main].into_iter().chain(workers).collect();
        let rows: Vec<&[Value]> = rows.iter().map(<[Value; 3]>::as_slice).collect();
        let threads = made("threads", &[("instructions", whole)], &["pid", "tid", "instructions"], &rows);
        found(&[(("threads", ""), &threads)])
    };
    let [finding] = &rules(&[151, 75, 74], 600)[..] else { panic!("one finding") };
    assert_eq!((finding.rule, finding.command.as_str()), ("unequal-threads", "report threads --pid 9"));
    assert!(finding.sentence.contains("thread 10, one of 3 that process 9 started"), "{}", finding.sentence);
    assert_eq!(rules(&[150, 75, 75], 600), [], "1.5 times the mean");
    assert_eq!(rules(&[151, 75, 74], 2_000), [], "that costs little of the run");
    assert_eq!(rules(&[200, 50], 600), [], "two are no pool");
}

#[test]
fn threads_with_different_roles_are_not_compared() {
    let row = |tid: u64, instructions: u64, role: &str| -> [Value; 4] {
        [9u64.into(), tid.into(), instructions.into(), role.into()]
    };
    let found = |roles: [&str; 3]| {
        let rows = [row(10, 151, roles[0]), row(11, 75, roles[1]), row(12, 74, roles[2])];
        let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
        let columns = ["pid", "tid", "instructions", "role"];
        let threads = made(
            "threads",
            &[("instructions", 600)],
            &columns[..3],
            &rows.iter().map(|row| &row[..3]).collect::<Vec<_>>(),
        );
        assert_eq!(further(&Evidence::new(vec![(("threads", ""), &threads)])), [("tree", "thread")]);
        let roles = made("tree", &[], &columns, &rows);
        found(&[(("threads", ""), &threads), (("tree", "thread"), &roles)])
    };
    let [finding] = &found(["work"; 3])[..] else { panic!("one finding") };
    assert!(finding.sentence.contains("one of 3 that process 9 started with work"), "{}", finding.sentence);
    assert_eq!(found(["read", "parse", "write"]), []);
}

#[test]
fn lost_events_come_first() {
    let cpu = made("cpu", &[("events_lost", 12), ("packets_lost", 1)], &["tid"], &[]);
    let [threads, waits] = waits("interruptible", "futex", SECOND / 2, SECOND / 10);
    let tables = [(("cpu", "thread"), &cpu), (("states", "thread"), &threads), (("states", "wait"), &waits)];
    assert_eq!(rules(&tables), ["lost", "lock-wait"]);
}

#[test]
fn findings_are_a_table() {
    let cpu = made("cpu", &[("events_lost", 12)], &["tid"], &[]);
    let table = table(&found(&[(("cpu", "thread"), &cpu)]));
    assert_eq!(table.row_count(), 1);
    assert_eq!(table.rows()[0][1], "lost".into());
    assert_eq!(table.rows()[0][4], "#view=tables&report=lost".into());
    let numbers = &found(&[(("cpu", "thread"), &cpu)])[0].numbers;
    assert_eq!(*numbers, [("events", 12u64.into()), ("packets", 0u64.into())]);
}

#[test]
fn every_rule_says_what_it_reads_and_has_a_test() {
    for rule in RULES.iter().chain(DIFFERENCE_RULES) {
        let tests = [
            include_str!("main.rs"),
            include_str!("allocation.rs"),
            include_str!("calls.rs"),
            include_str!("difference.rs"),
            include_str!("growth.rs"),
            include_str!("hot.rs"),
        ];
        let name = format!("\"{}\"", rule.name);
        let is_tested = tests.iter().any(|text| text.contains(&name));
        assert!(is_tested, "add a test of both sides of the threshold of {}", rule.name);
        assert!(!rule.needs.is_empty() && !rule.help.is_empty(), "{}", rule.name);
    }
    let is_read = |rule: &Rule| rule.needs.iter().all(|need| needs().contains(need));
    assert!(RULES.iter().all(is_read));
}

/// A cause of a critical path: wait, call, cause, comm, host, detail, total.
type Cause<'c> = (&'c str, &'c str, &'c str, &'c str, &'c str, &'c str, u64);

/// Returns the causes of a critical path of 1 µs, each with a count of 3.
fn path_of(causes: &[Cause<'_>]) -> Table {
    let row = |&(wait, call, cause, comm, host, detail, total): &Cause<'_>| -> [Value; 9] {
        let texts = [wait, call, cause, comm, host, detail].map(Value::from);
        let [wait, call, cause, comm, host, detail] = texts;
        [wait, call, cause, comm, 7u64.into(), host, detail, 3u64.into(), total.into()]
    };
    let rows: Vec<_> = causes.iter().map(row).collect();
    let columns = ["wait", "call", "cause", "comm", "tid", "host", "detail", "count", "total_ns"];
    let rows: Vec<&[Value]> = rows.iter().map(|row| &row[..]).collect();
    let mut table = made("critical-path", &[("total_ns", 1_000)], &columns, &rows);
    table.summary.push(("thread", "db (9)".into()));
    table
}

#[test]
fn causes_of_a_critical_path_need_a_twentieth_of_it() {
    let path = |cause, wait, total| path_of(&[(wait, "futex", cause, "low", "", "middle (8)", total)]);
    let need = ("critical-path", "cause");
    assert_eq!(rules(&[(need, &path("cpu", "lock", 50))]), [] as [&str; 0]);
    assert_eq!(rules(&[(need, &path("running", "", 900))]), [] as [&str; 0], "its own work is no wait");
    assert_eq!(rules(&[(need, &path("unknown", "lock", 900))]), [] as [&str; 0], "no cause is known");
    let mut joins = path("running", "lock", 900);
    assert_eq!(rules(&[(need, &joins)]), ["critical-path"]);
    joins.summary.retain(|(name, _)| *name != "thread");
    joins.summary.push(("thread", "low (9)".into()));
    assert_eq!(rules(&[(need, &joins)]), [] as [&str; 0], "it waits for a worker of its program");
    let inverted = path("cpu", "lock", 51);
    let [finding] = &found(&[(need, &inverted)])[..] else { panic!("one finding") };
    assert_eq!((finding.rule, finding.command.as_str()), ("critical-path", "path"));
    for part in
        ["db (9)", "51 ns of 1.00 µs", "futex (lock)", "low (7) could run, but middle (8) had the CPU"]
    {
        assert!(finding.sentence.contains(part), "{}", finding.sentence);
    }
}

#[test]
fn a_thread_that_is_kept_from_an_idle_cpu_does_not_wait_for_one() {
    let millisecond = 1_000_000;
    let path = |each| path_of(&[("preempted", "", "cpu", "db", "", "idle", each)]);
    let path_need = ("critical-path", "cause");
    let states = made(
        "states",
        &[],
        &["comm", "tid", "running_ns", "runnable_ns"],
        &[&["db".into(), 9u64.into(), (10 * millisecond).into(), (40 * millisecond).into()]],
    );
    let found_with = |each| found(&[(("states", "thread"), &states), (path_need, &path(each))]);
    let [finding] = &found_with(40 * millisecond)[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "critical-path");
    assert!(finding.sentence.contains("its CPU was idle: it was kept from running"), "{}", finding.sentence);
    // A CPU that wakes up takes less than a millisecond.
    let rules: Vec<_> = found_with(millisecond).iter().map(|finding| finding.rule).collect();
    assert!(rules.contains(&"cpu-contention"), "{rules:?}");
}

#[test]
fn threads_that_have_the_cpu_of_one_are_one_cause() {
    let on = |detail, total| ("child", "wait4", "cpu", "cc1", "", detail, total);
    let need = ("critical-path", "cause");
    // None of the two has a twentieth of the path.
    let both = path_of(&[on("tar (744)", 30), on("cat (750)", 40), on("idle", 20)]);
    let [finding] = &found(&[(need, &both)])[..] else { panic!("one finding") };
    let expected = "70 ns of 1.00 µs, 7.0 % (threshold 5.0 %), 6 times, it waited in wait4 (child), and cc1 (7) could run, but \
                    2 others had the CPU, longest cat (750) (40 ns).";
    assert!(finding.sentence.ends_with(expected), "{}", finding.sentence);
}

#[test]
fn a_task_that_delays_several_boards_is_one_cause() {
    let on = |host, detail, total| ("message", "", "cpu", "sobel", host, detail, total);
    let need = ("critical-path", "cause");
    // Neither of the two has a twentieth of the path.
    let both = path_of(&[
        on("slave-1", "urgent of slave-1", 30),
        on("slave-5", "urgent of slave-5", 25),
        on("slave-5", "idle", 40),
    ]);
    let [finding] = &found(&[(need, &both)])[..] else { panic!("one finding") };
    let expected = "55 ns of 1.00 µs, 5.5 % (threshold 5.0 %), 6 times, it waited (message), and sobel of slave-1 and \
                    slave-5 could run, but urgent of slave-1 and urgent of slave-5 had the CPU.";
    assert!(finding.sentence.ends_with(expected), "{}", finding.sentence);
    let hosts = ["a", "b", "c", "d", "e", "f"];
    let many = path_of(&hosts.map(|host| ("message", "", "running", "sobel", host, "", 20)));
    let [finding] = &found(&[(need, &many)])[..] else { panic!("one finding") };
    assert!(finding.sentence.ends_with("sobel of a, b, c, d and 2 more ran."), "{}", finding.sentence);
}
