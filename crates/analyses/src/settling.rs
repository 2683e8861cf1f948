//! Rows of a table of intervals or instants, which leave as soon as no later event can change them.

use hodo_clock::Nanos;
use hodo_model::TableBuilder;
use serde::{Deserialize, Serialize};

/// The most rows that are kept at a time.
const MOST_ROWS: usize = 1 << 21;

/// Adds rows to a table, in order. Returns how many.
pub(crate) fn add_in_order<R: Ord>(
    mut rows: Vec<R>,
    table: &mut TableBuilder,
    add: impl Fn(&mut TableBuilder, &R),
) -> u64 {
    rows.sort_unstable();
    for row in &rows {
        add(table, row);
    }
    rows.len() as u64
}

/// Rows with the time at which each is complete: the end of an interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettlingRows<R> {
    rows: Vec<(Nanos, R)>,
    /// The number of rows that the table has already emitted.
    pub(crate) settled: u64,
    pub(crate) left_out: u64,
}

impl<R> Default for SettlingRows<R> {
    fn default() -> SettlingRows<R> {
        SettlingRows { rows: Vec::new(), settled: 0, left_out: 0 }
    }
}

impl<R> SettlingRows<R> {
    /// Adds a row that is complete at `end`. Rows beyond [`MOST_ROWS`] are counted and left out.
    #[inline]
    pub(crate) fn see(&mut self, end: Nanos, row: R) {
        if self.rows.len() < MOST_ROWS {
            self.rows.push((end, row));
        } else {
            self.left_out += 1;
        }
    }

    /// The number of rows that are kept.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds the rows of a later neighbour.
    pub(crate) fn add(&mut self, later: SettlingRows<R>, known: impl Fn(R) -> R) {
        self.left_out += later.left_out;
        later.rows.into_iter().for_each(|(end, row)| self.see(end, known(row)));
    }

    /// Takes the rows that are complete before `until`, in no order. Later rows are complete at `until` at the
    /// earliest, and the order of those that are complete at the same time is not known yet.
    pub(crate) fn settle(&mut self, until: Nanos) -> Vec<(Nanos, R)> {
        self.rows.extract_if(.., |(end, _)| *end < until).collect()
    }

    /// Takes all remaining rows, in no order.
    pub(crate) fn rest(&mut self) -> Vec<(Nanos, R)> {
        std::mem::take(&mut self.rows)
    }
}
