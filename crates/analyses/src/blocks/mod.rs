//! Exact counts of basic blocks, and what follows from them: how often each line, instruction and branch
//! ran.
//!
//! Blocks are counted as they run and expanded into instructions and lines only at the end, so a profile
//! by line costs no more for a long run than for a short one over the same code.

mod flow;
mod lines;
mod partial;
mod table;

use hodo_trace::{Analysis, Seen, Sources, Table};

pub use flow::{Flow, InstructionCount};
pub use lines::{LineCount, by_line, of_flow};
pub use partial::{Block, Counts, Partial};

/// How the counts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// One row a block.
    Blocks,
    /// One row a line of source.
    Lines,
}

/// The counts of blocks as an analysis.
pub struct Blocks<'a> {
    /// How they are drawn.
    pub report: Report,
    /// Names and lines.
    pub sources: &'a dyn Sources,
}

impl Analysis for Blocks<'_> {
    type Partial = Partial;
    type Memory = ();

    fn unknown(&self) -> Partial {
        Partial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, seen: Seen<'_>) {
        partial.fold(seen);
    }

    fn merge(&self, earlier: Partial, later: Partial) -> Partial {
        earlier.merge(later)
    }

    fn finish(&self, threads: Vec<Partial>) -> Table {
        let count = threads.len() as u64;
        let whole = Partial::together(threads);
        match self.report {
            Report::Blocks => table::blocks(&whole, count, self.sources),
            Report::Lines => table::lines(&whole, count, self.sources),
        }
    }
}
