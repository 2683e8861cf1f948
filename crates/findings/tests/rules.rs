//! Each rule, on a table that passes its threshold and on one that does not.

use hodo_findings::{Evidence, Finding, Need, RULES, findings, needs, table};
use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

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
    let kind = |place: usize| rows.first().is_some_and(|row| matches!(row[place], Value::Text(_)));
    let column = |(place, &name): (usize, &&'static str)| match kind(place) {
        true => Column::name(name),
        false => Column::integer(name, Unit::None),
    };
    let columns = columns.iter().enumerate().map(column).collect();
    Table::new(name, Shape::Counters, summary, columns, rows.iter().map(|row| row.to_vec()))
}

fn found(tables: &[(Need, &Table)]) -> Vec<Finding> {
    findings(&Evidence::new(tables.to_vec()))
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
    let states = |runnable: u64| {
        let row: [Value; 4] = ["loop".into(), 7u64.into(), 800u64.into(), runnable.into()];
        made("states", &[], &["comm", "tid", "running_ns", "runnable_ns"], &[&row])
    };
    assert_eq!(rules(&[(("states", "thread"), &states(200))]), [] as [&str; 0]);
    let contended = states(201);
    let [finding] = &found(&[(("states", "thread"), &contended)])[..] else { panic!("one finding") };
    assert_eq!(finding.rule, "cpu-contention");
    assert!(
        finding.sentence.contains("201 ns") && finding.sentence.contains("loop (7)"),
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
}

#[test]
fn interrupts_storm_by_time_or_rate() {
    let rules = |count: u64, total: u64| {
        let row: [Value; 4] = ["hard".into(), "nvme".into(), count.into(), total.into()];
        rules(&[(("irq", "handler"), &made("irq", &[], &["kind", "name", "count", "total_ns"], &[&row]))])
    };
    assert_eq!(rules(1, SECOND / 10), ["interrupt-storm"]);
    assert_eq!(rules(20_001, 1), ["interrupt-storm"]);
    assert_eq!(rules(20_000, SECOND / 20), [] as [&str; 0]);
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
    let of = |raised, gaps| rules(&[(("functions", ""), &functions(raised, gaps))]);
    assert_eq!(of(51, 0), ["exceptions"]);
    assert_eq!(of(50, 0), [] as [&str; 0]);
    assert_eq!(of(50, 2), ["lost"]);
    assert_eq!(of(51, 2), ["exceptions", "lost"], "the worse one first");
}

#[test]
fn tails_are_heavy_long_and_of_many() {
    let rules = |count: u64, max: u64, share: f64| {
        let columns = vec![
            Column::name("function"),
            Column::integer("count", Unit::Count),
            Column::real("tail_share", Unit::Share),
            Column::integer("instructions_p50", Unit::Count),
            Column::integer("instructions_max", Unit::Count),
        ];
        let row: Vec<Value> = vec!["serve<'a>".into(), count.into(), share.into(), 10u64.into(), max.into()];
        let table = Table::new("latency", Shape::Counters, Vec::new(), columns, [row]);
        found(&[(("latency", "histogram"), &table)])
    };
    let [finding] = &rules(100, 88, 0.021)[..] else { panic!("one finding") };
    assert_eq!(finding.command, r"latency --compare --function 'serve<'\''a>'");
    assert!(finding.sentence.contains("88 instructions, 8 times the median of 10"), "{}", finding.sentence);
    assert_eq!(rules(99, 88, 0.021), []);
    assert_eq!(rules(100, 87, 0.021), []);
    assert_eq!(rules(100, 88, 0.02), []);
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
}

#[test]
fn every_rule_says_what_it_reads() {
    for rule in RULES {
        assert!(!rule.needs.is_empty() && !rule.help.is_empty(), "{}", rule.name);
        assert!(rule.needs.iter().all(|need| needs().contains(need)), "{}", rule.name);
    }
}

#[test]
fn causes_of_a_critical_path_need_a_twentieth_of_it() {
    let path = |cause: &str, wait: &str, total: u64| {
        let row: [Value; 9] = [
            wait.into(),
            "futex".into(),
            cause.into(),
            "low".into(),
            7u64.into(),
            "".into(),
            "middle (8)".into(),
            3u64.into(),
            total.into(),
        ];
        let columns = ["wait", "call", "cause", "comm", "tid", "host", "detail", "count", "total_ns"];
        let mut table = made("critical-path", &[("total_ns", 1_000)], &columns, &[&row]);
        table.summary.push(("thread", "db (9)".into()));
        table
    };
    let need = ("critical-path", "cause");
    assert_eq!(rules(&[(need, &path("cpu", "lock", 50))]), [] as [&str; 0]);
    assert_eq!(rules(&[(need, &path("running", "", 900))]), [] as [&str; 0], "its own work is no wait");
    let inverted = path("cpu", "lock", 51);
    let [finding] = &found(&[(need, &inverted)])[..] else { panic!("one finding") };
    assert_eq!((finding.rule, finding.command.as_str()), ("critical-path", "path"));
    for part in
        ["db (9)", "51 ns of 1.00 µs", "futex (lock)", "low (7) could run, but middle (8) had the CPU"]
    {
        assert!(finding.sentence.contains(part), "{}", finding.sentence);
    }
}
