//! Tables of intervals.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hodo_model::{
    Column, FinishContext, FlowThread, Shape, Summary, Table, Unit, Value,
    table::{Cell, TableBuilder, cells},
};

use super::{
    Interval, IntervalEnd,
    marks::PassedMarkers,
    summary::{Measure, Scale, bins, percentile},
};

/// The name of the report.
const NAME: &str = "latency";

/// Percentiles in summaries: the suffix of their names, and the rank in 1/1000.
pub const PERCENTILES: [(&str, u64); 7] =
    [("min", 0), ("p50", 500), ("p90", 900), ("p95", 950), ("p99", 990), ("p99_9", 999), ("max", 1000)];

/// The key by which intervals are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// The thread.
    Thread,
    /// The caller of the function; for events, the group.
    Caller,
    /// The CPU on which they began.
    Cpu,
    /// The time of their begin, in bins of equal length.
    Time,
}

impl Grouping {
    /// All groupings, with the names of their views.
    pub const ALL: [(&str, Grouping); 4] = [
        ("thread", Grouping::Thread),
        ("caller", Grouping::Caller),
        ("cpu", Grouping::Cpu),
        ("time", Grouping::Time),
    ];
}

/// The intervals of a complete trace.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundIntervals {
    pub(super) intervals: Vec<Interval>,
    /// Number of markers without a counterpart.
    pub(super) unmatched: u64,
    /// Number of instructions of all threads.
    pub(super) instructions: u64,
    /// The function, if there is a single one.
    pub(super) subject: String,
    /// For markers, the number of begins and ends reached.
    pub(super) passed: Option<PassedMarkers>,
    /// For markers that end in `popf`, what decides whether it turned interrupts on or off.
    pub(super) popf: Option<&'static str>,
}

impl FoundIntervals {
    /// Adds the intervals of a thread.
    pub(super) fn add(
        &mut self,
        thread: usize,
        context: &FinishContext<'_>,
        intervals: impl Iterator<Item = Interval>,
    ) {
        let name: Arc<str> = match context.flow_threads.get(thread) {
            Some(FlowThread { pid, tid, .. }) => format!("{pid}/{tid}").into(),
            None => thread.to_string().into(),
        };
        let begin = self.intervals.len();
        self.intervals.extend(intervals.map(|interval| Interval { thread: Arc::clone(&name), ..interval }));
        let own = &mut self.intervals[begin..];
        own.sort_by_key(|interval| (interval.first, std::cmp::Reverse(interval.instructions)));
        for (interval, number) in own.iter_mut().zip(1..) {
            interval.number = number;
        }
    }

    /// Makes the table of the selected view.
    pub(super) fn table(self, context: &FinishContext<'_>) -> Table {
        let view = context.selection.view.as_str();
        let mut summary = summary(&self.intervals, self.unmatched, self.instructions, &self.subject);
        if let Some(decides) = self.popf {
            summary.insert(0, ("popf_decided_by", decides.into()));
        }
        if let Some(PassedMarkers { begins, ends }) = self.passed {
            summary.splice(0..0, [("from_passed", begins.into()), ("to_passed", ends.into())]);
        }
        match Grouping::ALL.into_iter().find(|(name, _)| *name == view) {
            Some((_, grouping)) => grouped(summary, &self.intervals, grouping),
            None if view == "executions" => executions(summary, &self.intervals),
            None => histogram(summary, &self.intervals),
        }
    }
}

/// Summarises all intervals.
pub fn summary(intervals: &[Interval], unmatched: u64, instructions: u64, subject: &str) -> Summary {
    let count = |ended: &[IntervalEnd]| {
        intervals.iter().filter(|interval| ended.contains(&interval.ended)).count() as u64
    };
    let mut summary: Summary = Vec::new();
    if !subject.is_empty() {
        summary.push(("function", subject.into()));
    }
    summary.extend([
        ("count", count(&[IntervalEnd::Returned]).into()),
        ("unmatched", (unmatched + count(&[IntervalEnd::Cut, IntervalEnd::Begun])).into()),
        ("incomplete", count(&[IntervalEnd::Lost]).into()),
        ("unwound", count(&[IntervalEnd::Unwound]).into()),
    ]);
    if instructions > 0 {
        summary.push(("run_instructions", instructions.into()));
    }
    for (measure, (total, percentiles)) in Measure::ALL.into_iter().zip(&FIGURES) {
        let sorted = measure.sorted(intervals);
        if sorted.is_empty() {
            continue;
        }
        summary.push((total, sorted.iter().fold(0, |sum: u64, &value| sum.saturating_add(value)).into()));
        let figures = percentiles.iter().zip(PERCENTILES);
        summary.extend(figures.map(|(&name, (_, permille))| (name, percentile(&sorted, permille).into())));
        // Complete intervals of unknown duration.
        let known = sorted.len() as u64;
        if measure == Measure::Time && known < count(&[IntervalEnd::Returned]) {
            summary.push(("without_time", (count(&[IntervalEnd::Returned]) - known).into()));
        }
    }
    summary
}

/// Names of the summary values of a measure: the sum, and [`PERCENTILES`].
macro_rules! figure_names {
    ($measure:literal, $unit:literal) => {
        (
            concat!($measure, "_total", $unit),
            [
                concat!($measure, "_min", $unit),
                concat!($measure, "_p50", $unit),
                concat!($measure, "_p90", $unit),
                concat!($measure, "_p95", $unit),
                concat!($measure, "_p99", $unit),
                concat!($measure, "_p99_9", $unit),
                concat!($measure, "_max", $unit),
            ],
        )
    };
}

/// By measure, as in [`Measure::ALL`].
const FIGURES: [(&str, [&str; 7]); 3] =
    [figure_names!("time", "_ns"), figure_names!("instructions", ""), figure_names!("cycles", "")];

/// Makes the histogram of each measure, with linear and with logarithmic bins.
pub fn histogram(summary: Summary, intervals: &[Interval]) -> Table {
    let columns = vec![
        Column::name("measure"),
        Column::name("bins"),
        Column::integer("from", Unit::None),
        Column::integer("until", Unit::None),
        Column::integer("count", Unit::Count),
        Column::integer("cumulated", Unit::Count),
    ];
    let mut rows = Vec::new();
    for measure in Measure::ALL {
        let sorted = measure.sorted(intervals);
        for scale in Scale::ALL {
            rows.extend(bins(&sorted, scale).into_iter().map(|bin| {
                let numbers = [bin.from, bin.until, bin.count, bin.cumulated].map(Value::from);
                [measure.name().into(), scale.name().into()].into_iter().chain(numbers).collect()
            }));
        }
    }
    Table::new(NAME, Shape::Counters, summary, columns, rows)
}

/// Makes the table of all intervals, by thread in order of begin.
fn executions(summary: Summary, intervals: &[Interval]) -> Table {
    let columns = vec![
        Column::name("thread"),
        Column::integer("number", Unit::None),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("time_ns", Unit::Nanoseconds),
        Column::integer("instructions", Unit::Count),
        Column::integer("cycles", Unit::Count).secondary(),
        Column::integer("first_instruction", Unit::None).secondary(),
        Column::name("caller"),
        Column::integer("cpu", Unit::None).secondary(),
        Column::integer("level", Unit::Count).secondary(),
        Column::name("ended"),
    ];
    let mut table = TableBuilder::new(NAME, Shape::Counters, columns);
    let integer = |value: Option<u64>| value.map_or(Cell::Null, Cell::Integer);
    for interval in intervals {
        table.row([
            Cell::Text(&interval.thread),
            Cell::Integer(interval.number),
            integer(interval.begin),
            integer(interval.time),
            integer(interval.instructions),
            integer(interval.cycles),
            integer(interval.first),
            Cell::Text(&interval.caller),
            integer(interval.cpu),
            Cell::Integer(interval.level),
            Cell::Text(interval.ended.name()),
        ]);
    }
    table.finish(summary)
}

/// Reads the intervals of a table of the view `executions`; `None` for other tables.
pub fn of_table(table: &Table) -> Option<Vec<Interval>> {
    let mut intervals = Vec::with_capacity(table.row_count());
    let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
    for batch in table.batches() {
        let columns = cells(batch);
        for row in 0..batch.num_rows() {
            let text = |column: usize| match columns.get(column)?.cell(row) {
                Cell::Text(text) => Some(text),
                _ => None,
            };
            let number = |column: usize| match columns.get(column)?.cell(row) {
                Cell::Integer(number) => Some(number),
                _ => None,
            };
            // The columns are those that `executions` makes, in its order.
            let ended = IntervalEnd::of_name(text(10)?)?;
            intervals.push(Interval {
                thread: shared(&mut names, text(0)?),
                number: number(1)?,
                begin: number(2),
                time: number(3),
                instructions: number(4),
                cycles: number(5),
                first: number(6),
                caller: shared(&mut names, text(7)?),
                cpu: number(8),
                level: number(9)?,
                ended,
            });
        }
    }
    Some(intervals)
}

/// Interns a name.
fn shared(names: &mut BTreeSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return Arc::clone(known);
    }
    let name: Arc<str> = name.into();
    names.insert(Arc::clone(&name));
    name
}

/// Maximum number of time bins.
const SPANS: u64 = 20;

/// Makes the table of percentiles of each group, in order of groups.
pub fn grouped(summary: Summary, intervals: &[Interval], grouping: Grouping) -> Table {
    let begins = || intervals.iter().filter_map(|interval| interval.begin);
    let first = begins().min().unwrap_or(0);
    let width = (begins().max().unwrap_or(0) - first) / SPANS + 1;
    let mut groups: BTreeMap<(u64, &str), Vec<Interval>> = BTreeMap::new();
    for interval in intervals {
        let key = match grouping {
            Grouping::Thread => Some((0, &*interval.thread)),
            Grouping::Caller => Some((0, &*interval.caller)),
            Grouping::Cpu => interval.cpu.map(|cpu| (cpu, "")),
            Grouping::Time => interval.begin.map(|begin| (first + (begin - first) / width * width, "")),
        };
        key.into_iter().for_each(|key| groups.entry(key).or_default().push(interval.clone()));
    }
    let mut columns = vec![match grouping {
        Grouping::Thread => Column::name("thread"),
        Grouping::Caller => Column::name("caller"),
        Grouping::Cpu => Column::integer("cpu", Unit::None),
        Grouping::Time => Column::integer("from_ns", Unit::Nanoseconds),
    }];
    columns.push(Column::integer("count", Unit::Count));
    for measure in [Measure::Time, Measure::Instructions] {
        let names: [&'static str; 5] = match measure {
            Measure::Time => ["time_total_ns", "time_p50_ns", "time_p95_ns", "time_p99_ns", "time_max_ns"],
            _ => [
                "instructions_total",
                "instructions_p50",
                "instructions_p95",
                "instructions_p99",
                "instructions_max",
            ],
        };
        columns.extend(names.map(|name| Column::integer(name, measure.unit())));
    }
    let rows = groups.into_iter().map(|((number, name), own)| {
        let key = match grouping {
            Grouping::Thread | Grouping::Caller => name.into(),
            Grouping::Cpu | Grouping::Time => number.into(),
        };
        let complete = own.iter().filter(|interval| interval.ended.is_complete()).count() as u64;
        let mut row: Vec<Value> = vec![key, complete.into()];
        for measure in [Measure::Time, Measure::Instructions] {
            let sorted = measure.sorted(&own);
            let total = sorted.iter().fold(0, |sum: u64, &value| sum.saturating_add(value));
            row.push(Some(total).filter(|_| !sorted.is_empty()).into());
            row.extend([500, 950, 990, 1000].map(|permille| Value::from(percentile(&sorted, permille))));
        }
        row
    });
    let rows: Vec<Vec<Value>> = rows.collect();
    Table::new(NAME, Shape::Counters, summary, columns, rows)
}
