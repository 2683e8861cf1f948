//! Queries. Each reads only blocks that may hold matching records, within a budget.

mod at;
mod change;
mod find;
mod page;
mod scan;
mod slices;

use std::sync::{Arc, atomic::AtomicBool};

pub use find::Wanted;
pub use slices::{LaneSlices, Slices, TimeCell, widened};

/// The lanes of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes<'a> {
    /// All lanes.
    All,
    /// These lanes, in any order.
    Some(&'a [u32]),
}

/// The greatest amount of work of a query.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Rows decoded, summaries read and cells filled.
    pub rows: u64,
    /// Set by the caller to stop the query.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Budget {
    /// 64 million rows: about a second.
    fn default() -> Budget {
        Budget { rows: 1 << 26, stop: None }
    }
}
