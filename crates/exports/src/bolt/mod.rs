//! BOLT's pre-aggregated profile: counts of branches and of straight-line code, by address, for `perf2bolt -pa` (which writes
//! fdata) and `llvm-bolt -pa`.
//!
//! Fall-through counts are exact: BOLT adds a count to each edge between the blocks of a range, so each run counts its
//! inner edges, and each branch that was not taken counts its own edge. Source: `DataAggregator.h` of LLVM's BOLT.

use std::io;

use hodo_model::Loss;

use crate::{BranchProfile, Content, Export, Output};

pub(crate) const EXPORT: Export = Export {
    name: "bolt",
    help: "exact branch profile of one module for llvm-bolt -pa and perf2bolt -pa",
    content: Content::Branches(write),
};

/// An address that BOLT takes for another module's.
const ELSEWHERE: u64 = u64::MAX;

/// Losses have no place in this format; `hodo` prints them.
fn write(profile: &BranchProfile, _: &[Loss], out: Output<'_>) -> io::Result<()> {
    for ((from, to), executions) in &profile.taken {
        let (from, to) = (from.unwrap_or(ELSEWHERE), to.unwrap_or(ELSEWHERE));
        // Whether a branch was predicted is not recorded.
        writeln!(out, "B {from:x} {to:x} {executions} 0")?;
    }
    for ((from, to), executions) in profile.runs.iter().chain(&profile.next) {
        writeln!(out, "F {from:x} {to:x} {executions}")?;
    }
    out.flush()
}
