//! Columns and rows that several tables share.

use hodo_model::{Column, Unit, Value};

use crate::durations::Durations;

/// A table's columns and rows.
pub(crate) type TableRows = (Vec<Column>, Vec<Vec<Value>>);

/// The first columns of a table of intervals.
pub(crate) fn interval_columns() -> [Column; 2] {
    ["begin_ns", "duration_ns"].map(|name| Column::integer(name, Unit::Nanoseconds))
}

/// The columns that identify a thread, as [`Threads::cells`](hodo_model::kernel::Threads::cells).
pub(crate) fn thread_columns() -> [Column; 3] {
    let pid = Column::integer("pid", Unit::None).secondary();
    [Column::name("comm"), Column::integer("tid", Unit::None), pid]
}

/// Returns the columns of duration statistics, which follow the column of the count.
pub(crate) fn duration_columns() -> [Column; 7] {
    let column = |name| Column::integer(name, Unit::Nanoseconds);
    [
        column("total_ns"),
        column("min_ns").secondary(),
        column("average_ns"),
        column("p50_ns").secondary(),
        column("p95_ns").secondary(),
        column("p99_ns").secondary(),
        column("max_ns"),
    ]
}

/// The cells of [`duration_columns`].
pub(crate) fn duration_cells(durations: &Durations) -> [Value; 7] {
    let some = |length: u64| Some(length).filter(|_| durations.count > 0);
    let [p50, p95, p99] = durations.percentiles([50, 95, 99]);
    let cells =
        [Some(durations.total), some(durations.min), durations.average(), p50, p95, p99, some(durations.max)];
    cells.map(Value::from)
}

/// Sorts rows by a number in descending order, then by a key.
pub(crate) fn most_first<K: Ord>(rows: impl Iterator<Item = ((u64, K), Vec<Value>)>) -> Vec<Vec<Value>> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|((x, x_key), _), ((y, y_key), _)| y.cmp(x).then_with(|| x_key.cmp(y_key)));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Returns the share of a part in a whole.
pub(crate) fn share(part: u64, whole: u64) -> Value {
    if whole == 0 { Value::Null } else { (part as f64 / whole as f64).into() }
}
