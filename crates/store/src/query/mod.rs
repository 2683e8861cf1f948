//! Queries: each reads the blocks that can hold what it asks for, and no more than it is allowed.

mod at;
mod change;
mod find;
mod scan;
mod slices;

use std::sync::{Arc, atomic::AtomicBool};

pub use find::Wanted;
pub use slices::{LaneSlices, Slice, Slices};

/// Which lanes a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes<'a> {
    /// All.
    All,
    /// These, in any order.
    Some(&'a [u32]),
}

/// How much work a query may be.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Rows decoded, summaries read and cells filled.
    pub rows: u64,
    /// Set by who does not want the answer any more.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Budget {
    /// 64 million rows: about a second.
    fn default() -> Budget {
        Budget { rows: 1 << 26, stop: None }
    }
}
