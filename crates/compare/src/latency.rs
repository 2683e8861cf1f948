//! Compares latencies of both sides: tables with a row per system call, interrupt, thread or period. Rows are matched
//! by their names; `count`, `total_ns` and percentiles are compared.

use std::collections::BTreeMap;

use hodo_model::{
    Column, Shape, Summary, Table, Type, Unit, Value,
    table::{Cell, cells},
};

use crate::{
    Sides,
    statistics::{ConfidenceInterval, SIGNIFICANT, benjamini_hochberg, bootstrap, mann_whitney},
};

/// The columns to compare, if a table has them.
const MEASURES: [&str; 5] = ["average_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns"];

/// The values of a row in one recording.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Index of the recording.
    recording: usize,
    count: u64,
    total: u64,
    /// Indexed as [`MEASURES`]; the maximum over rows with the same names.
    measures: [Option<u64>; MEASURES.len()],
}

/// The samples of each row, by its names, in order of recordings.
type Samples = BTreeMap<Vec<String>, Vec<Sample>>;

/// The differences between the latencies of two sides.
#[derive(Debug)]
pub struct Latencies {
    /// One row per difference, the largest change of total time first.
    pub table: Table,
    /// Rows whose median latency grew, with the relative growth; for groups of recordings, only significant growth.
    pub grown: Vec<(String, f64)>,
}

/// Compares tables of one report, one table per recording of each side.
pub fn latencies(tables: Sides<&[Table]>) -> Latencies {
    let recordings = tables.map(<[Table]>::len);
    let names: Vec<&'static str> = tables
        .a
        .iter()
        .chain(tables.b)
        .next()
        .map_or(Vec::new(), |table| key_columns(table).map(|(_, name)| name).collect());
    let samples = tables.map(read);
    let mut keys: Vec<&Vec<String>> = samples.a.keys().chain(samples.b.keys()).collect();
    keys.sort();
    keys.dedup();
    let are_groups = recordings.a > 1 && recordings.b > 1;
    let mut compared: Vec<ComparedRow<'_>> =
        keys.into_iter().map(|key| ComparedRow::new(key, &samples, recordings, are_groups)).collect();
    compared.retain(|row| row.sides.a != row.sides.b);
    let p_values: Vec<Option<f64>> = compared.iter().map(|row| row.p).collect();
    for (row, adjusted) in compared.iter_mut().zip(benjamini_hochberg(&p_values)) {
        row.adjusted = adjusted;
    }
    compared.sort_by(|x, y| {
        y.delta_total().abs().total_cmp(&x.delta_total().abs()).then_with(|| x.key.cmp(y.key))
    });
    let mut grown = Vec::new();
    for row in &compared {
        let is_certain = !are_groups || row.adjusted.is_some_and(|p| p < SIGNIFICANT);
        if let Some(growth) = row.growth().filter(|&growth| is_certain && growth > 0.0) {
            grown.push((row.key.join(" "), growth));
        }
    }
    let summary: Summary = vec![
        ("a_recordings", (recordings.a as u64).into()),
        ("b_recordings", (recordings.b as u64).into()),
        ("different", (compared.len() as u64).into()),
    ];
    let cells = compared.iter().map(|row| row.cells(are_groups));
    let name = tables.a.iter().chain(tables.b).next().map_or("latencies", Table::name);
    let table = Table::new(name, Shape::Counters, summary, columns(&names, are_groups), cells);
    Latencies { table, grown }
}

/// Returns the columns that name a row.
fn key_columns(table: &Table) -> impl Iterator<Item = (usize, &'static str)> {
    let named = table.columns().iter().enumerate();
    named
        .filter(|(_, column)| matches!(column.kind, Type::Name | Type::Text))
        .map(|(index, column)| (index, column.name))
}

/// Reads the rows of one side. Rows of a table with the same names become one sample.
fn read(tables: &[Table]) -> Samples {
    let mut samples = Samples::new();
    for (recording, table) in tables.iter().enumerate() {
        let position = |name: &str| table.columns().iter().position(|column| column.name == name);
        // The first column with the unit `Count` holds the count; its name varies.
        let count = table.columns().iter().position(|column| column.unit == Unit::Count);
        let (total, measures) = (position("total_ns"), MEASURES.map(position));
        let keys: Vec<usize> = key_columns(table).map(|(index, _)| index).collect();
        for batch in table.batches() {
            let columns = cells(batch);
            for row in 0..batch.num_rows() {
                let number = |column: Option<usize>| match columns[column?].cell(row) {
                    Cell::Integer(number) => Some(number),
                    _ => None,
                };
                let text = |&column: &usize| match columns[column].cell(row) {
                    Cell::Text(text) => text.to_owned(),
                    _ => String::new(),
                };
                let of_row = samples.entry(keys.iter().map(text).collect()).or_default();
                if of_row.last().is_none_or(|last| last.recording != recording) {
                    of_row.push(Sample { recording, ..Sample::default() });
                }
                let Some(own) = of_row.last_mut() else { continue };
                own.count = own.count.saturating_add(number(count).unwrap_or(0));
                own.total = own.total.saturating_add(number(total).unwrap_or(0));
                for (own, column) in own.measures.iter_mut().zip(measures) {
                    *own = (*own).max(number(column));
                }
            }
        }
    }
    samples
}

/// One row of a side: means over its recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    count: f64,
    total: f64,
    measures: [Option<f64>; MEASURES.len()],
}

impl Mean {
    fn of(samples: &[Sample], recordings: usize) -> Mean {
        let all = recordings.max(1) as f64;
        let mean =
            |value: fn(&Sample) -> u64| samples.iter().map(|sample| value(sample) as f64).sum::<f64>() / all;
        let mut measures = [None; MEASURES.len()];
        for (index, measure) in measures.iter_mut().enumerate() {
            let known: Vec<f64> = samples
                .iter()
                .filter_map(|sample| sample.measures[index].map(|value| value as f64))
                .collect();
            *measure = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        }
        Mean { count: mean(|sample| sample.count), total: mean(|sample| sample.total), measures }
    }
}

/// A row of the comparison.
struct ComparedRow<'k> {
    key: &'k Vec<String>,
    sides: Sides<Mean>,
    /// The p-value of the difference of averages, for groups.
    p: Option<f64>,
    /// Of that difference.
    interval: Option<ConfidenceInterval>,
    /// The p-value, adjusted for the number of rows.
    adjusted: Option<f64>,
}

/// Index of the median in [`MEASURES`].
const MEDIAN: usize = 1;

impl<'k> ComparedRow<'k> {
    fn new(
        key: &'k Vec<String>,
        samples: &Sides<Samples>,
        recordings: Sides<usize>,
        are_groups: bool,
    ) -> ComparedRow<'k> {
        let samples = samples.each().map(|samples| samples.get(key).map_or(&[][..], Vec::as_slice));
        let sides = Sides::new(Mean::of(samples.a, recordings.a), Mean::of(samples.b, recordings.b));
        let averages = samples.map(|samples| {
            let known = samples.iter().filter(|sample| sample.count > 0);
            known.map(|sample| sample.total as f64 / sample.count as f64).collect::<Vec<f64>>()
        });
        let p = mann_whitney(&averages.a, &averages.b).filter(|_| are_groups);
        let interval = bootstrap(&averages.a, &averages.b).filter(|_| are_groups);
        ComparedRow { key, sides, p, interval, adjusted: None }
    }

    fn delta_total(&self) -> f64 {
        self.sides.b.total - self.sides.a.total
    }

    /// Returns the relative growth of the median.
    fn growth(&self) -> Option<f64> {
        let Sides { a, b } = self.sides.map(|side| side.measures[MEDIAN]);
        let (a, b) = a.zip(b)?;
        (a > 0.0).then(|| (b - a) / a)
    }

    fn cells(&self, are_groups: bool) -> Vec<Value> {
        let Sides { a, b } = self.sides;
        let mut cells: Vec<Value> = self.key.iter().map(|name| name.as_str().into()).collect();
        cells.extend([a.count, b.count, self.delta_total()].map(Value::from));
        cells.push(self.growth().into());
        for (a, b) in a.measures.into_iter().zip(b.measures) {
            cells.extend([a, b].map(Value::from));
        }
        if are_groups {
            let (low, high) =
                (self.interval.map(|interval| interval.low), self.interval.map(|interval| interval.high));
            cells.extend([low, high, self.p, self.adjusted].map(Value::from));
        }
        cells
    }
}

fn columns(names: &[&'static str], are_groups: bool) -> Vec<Column> {
    let time = |name| Column::real(name, Unit::Nanoseconds);
    let mut columns: Vec<Column> = names.iter().map(|name| Column::name(name)).collect();
    columns.extend([
        Column::real("a_count", Unit::Count),
        Column::real("b_count", Unit::Count),
        time("delta_total_ns"),
        Column::real("p50_growth", Unit::Share),
        time("a_average_ns").secondary(),
        time("b_average_ns").secondary(),
        time("a_p50_ns"),
        time("b_p50_ns"),
        time("a_p95_ns").secondary(),
        time("b_p95_ns").secondary(),
        time("a_p99_ns"),
        time("b_p99_ns"),
        time("a_max_ns").secondary(),
        time("b_max_ns").secondary(),
    ]);
    if are_groups {
        columns.extend([
            time("low_average_ns").secondary(),
            time("high_average_ns").secondary(),
            Column::real("p_value", Unit::None).secondary(),
            Column::real("p_adjusted", Unit::None),
        ]);
    }
    columns
}
