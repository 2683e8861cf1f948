//! Columns and rows that several tables have.

use hodo_trace::{Column, Unit, Value};

use crate::durations::Durations;

/// Columns of lengths of time.
pub(crate) fn duration_columns() -> [Column; 7] {
    let column = |name| Column::integer(name, Unit::Nanoseconds);
    [
        column("total_ns"),
        column("average_ns"),
        column("max_ns"),
        column("p50_ns").secondary(),
        column("p99_ns").secondary(),
        column("p95_ns").secondary(),
        column("min_ns").secondary(),
    ]
}

/// Their cells.
pub(crate) fn duration_cells(durations: &Durations) -> [Value; 7] {
    let some = |length: u64| if durations.count == 0 { Value::Null } else { length.into() };
    let percentile = |per_cent| durations.percentile(per_cent).map_or(Value::Null, Value::from);
    [
        durations.total.into(),
        durations.average().map_or(Value::Null, Value::from),
        some(durations.max),
        percentile(50),
        percentile(99),
        percentile(95),
        some(durations.min),
    ]
}

/// Rows by their first key, the highest first, then by the second.
pub(crate) fn most_time_first<K: Ord>(rows: impl Iterator<Item = (u64, K, Vec<Value>)>) -> Vec<Vec<Value>> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|one, other| (other.0, &one.1).cmp(&(one.0, &other.1)));
    rows.into_iter().map(|(_, _, row)| row).collect()
}

/// A part of a whole.
pub(crate) fn share(part: u64, whole: u64) -> Value {
    if whole == 0 { Value::Null } else { (part as f64 / whole as f64).into() }
}
