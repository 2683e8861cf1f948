//! Tables of `hodo latency` beyond those of the report.

use hodo_engine::latency::{CallTree, HistogramBin, Interval, Measure, PERCENTILES, Scale, bins, percentile};
use hodo_model::{Column, Shape, Summary, Table, Unit, Value};

/// Returns percentiles, one row per measure.
pub fn percentiles(summary: Summary, intervals: &[Interval]) -> Table {
    let mut columns = vec![Column::name("measure")];
    let heading = |name| if name == "p99_9" { "p99.9" } else { name };
    columns.extend(PERCENTILES.map(|(name, _)| Column::integer(heading(name), Unit::Count)));
    columns.push(Column::integer("total", Unit::Count));
    let row = |measure: Measure| -> Option<Vec<Value>> {
        let sorted = measure.sorted(intervals);
        let total = sorted.iter().fold(0, |sum: u64, &value| sum.saturating_add(value));
        let mut row: Vec<Value> = vec![measure.name().into()];
        row.extend(PERCENTILES.map(|(_, permille)| Value::from(percentile(&sorted, permille))));
        row.push(total.into());
        (!sorted.is_empty()).then_some(row)
    };
    let rows: Vec<Vec<Value>> = Measure::ALL.into_iter().filter_map(row).collect();
    // The rows hold these figures already.
    let is_row = |name: &str| {
        Measure::ALL.iter().any(|measure| name.starts_with(measure.name().trim_end_matches("_ns")))
    };
    let summary = summary.into_iter().filter(|(name, _)| !is_row(name)).collect();
    Table::new("latency", Shape::Counters, summary, columns, rows)
}

/// Length of the longest bar, in characters.
const BAR: u64 = 40;

/// Draws a bar with a resolution of an eighth of a character.
fn bar(count: u64, greatest: u64) -> String {
    let eighths = (u128::from(count) * u128::from(BAR) * 8).div_ceil(u128::from(greatest.max(1))) as u64;
    let partial = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][(eighths % 8) as usize];
    "█".repeat((eighths / 8) as usize) + partial
}

/// Returns a histogram with bars.
pub fn histogram(intervals: &[Interval], measure: Measure, scale: Scale) -> Option<Table> {
    let bins = bins(&measure.sorted(intervals), scale);
    let greatest = bins.iter().map(|bin| bin.count).max()?;
    let name = match measure {
        Measure::Time => "time",
        Measure::Instructions => "instructions",
        Measure::Cycles => "cycles",
    };
    let columns = vec![
        Column::integer("from", measure.unit()),
        Column::integer("until", measure.unit()),
        Column::integer("count", Unit::Count),
        Column::integer("cumulated", Unit::Count),
        Column::text("histogram"),
    ];
    let row = |bin: &HistogramBin| -> Vec<Value> {
        let numbers = [bin.from, bin.until, bin.count, bin.cumulated].map(Value::from);
        numbers.into_iter().chain([bar(bin.count, greatest).into()]).collect()
    };
    let rows: Vec<Vec<Value>> = bins.iter().map(row).collect();
    Some(Table::new(name, Shape::Counters, Vec::new(), columns, rows))
}

/// Returns a table of executions, the worst first.
pub fn outliers(intervals: &[&Interval]) -> Table {
    let columns = vec![
        Column::name("thread"),
        Column::integer("number", Unit::None),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("time_ns", Unit::Nanoseconds),
        Column::integer("instructions", Unit::Count),
        Column::integer("cycles", Unit::Count).secondary(),
        Column::name("caller"),
        Column::name("ended").secondary(),
    ];
    let row = |interval: &&Interval| -> Vec<Value> {
        vec![
            (&*interval.thread).into(),
            interval.number.into(),
            interval.begin.into(),
            interval.time.into(),
            interval.instructions.into(),
            interval.cycles.into(),
            (&*interval.caller).into(),
            interval.ended.name().into(),
        ]
    };
    Table::new(
        "outliers",
        Shape::Counters,
        Vec::new(),
        columns,
        intervals.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Returns the call tree of one execution.
pub fn tree(interval: &Interval, tree: &CallTree) -> Table {
    let has_waiting = tree.nodes.iter().any(|node| node.waiting.is_some());
    let mut columns = vec![
        Column::integer("depth", Unit::Count),
        Column::name("function"),
        Column::name("module").secondary(),
        Column::integer("recursion", Unit::Count),
        Column::integer("calls", Unit::Count),
        Column::integer("instructions", Unit::Count),
        Column::integer("self_instructions", Unit::Count),
        Column::integer("time_ns", Unit::Nanoseconds),
    ];
    columns.extend(has_waiting.then(|| Column::integer("waiting_ns", Unit::Nanoseconds).secondary()));
    let rows = tree.nodes.iter().map(|node| -> Vec<Value> {
        let mut row = vec![
            (node.depth as u64).into(),
            (&*node.function).into(),
            (&*node.module).into(),
            node.recursion.into(),
            node.calls.into(),
            node.instructions.into(),
            node.self_instructions.into(),
            node.time.into(),
        ];
        row.extend(has_waiting.then(|| node.waiting.into()));
        row
    });
    let summary = vec![
        ("thread", (&*interval.thread).into()),
        ("number", interval.number.into()),
        ("begin_ns", interval.begin.into()),
        ("time_ns", interval.time.into()),
        ("instructions", interval.instructions.into()),
        ("ended", interval.ended.name().into()),
    ];
    Table::new("execution", Shape::Tree, summary, columns, rows.collect::<Vec<_>>())
}
