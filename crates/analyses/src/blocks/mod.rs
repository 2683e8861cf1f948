//! Exact counts of basic blocks, from which the executions of lines, instructions and branches are computed.
//!
//! Blocks are counted as they run and expanded into instructions and lines only at the end, so a profile by line costs
//! no more for a long run than for a short one over the same code.

mod flow;
mod functions;
mod lines;
mod partial;
mod table;

use hodo_model::{
    Analysis, Description, FastFlow, FinishContext, FlowInterest, FlowLoop, Interest, Item, Made, Role,
    Start, Table, Takes, kernel::Threads,
};

use crate::coverage;

pub use flow::{Flow, InstructionCount};
pub use lines::{LineCount, by_line, of_flow};
pub use partial::{BlockCounts, CountedBlock, ExecutedBlocks};

/// The kind of the table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocksReport {
    /// One row per block.
    Blocks,
    /// One row per source line.
    Lines,
    /// What ran, and what did not; several traces make one table.
    Coverage,
}

/// The analysis of block counts.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// What the rows are.
    pub report: BlocksReport,
}

/// The report of lines.
pub(crate) const fn lines_report<L: FlowLoop>() -> hodo_model::Report<L> {
    hodo_model::Report {
        description: Description {
            name: "lines",
            roles: &[Role::SourceLines],
            help: "exact counts of each line of source: executions, instructions, time",
            views: &["line", "function", "inlined"],
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Blocks { report: BlocksReport::Lines }),
    }
}

/// The report of blocks.
pub(crate) const fn blocks_report<L: FlowLoop>() -> hodo_model::Report<L> {
    hodo_model::Report {
        description: Description {
            name: "blocks",
            roles: &[Role::Blocks],
            help: "exact counts of each basic block: executions, branches taken and not taken",
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Blocks { report: BlocksReport::Blocks }),
    }
}

impl Analysis for Blocks {
    type Partial = ExecutedBlocks;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> ExecutedBlocks {
        ExecutedBlocks::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut ExecutedBlocks, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(event);
        }
    }

    fn merge(&self, earlier: ExecutedBlocks, later: ExecutedBlocks, _: &Threads) -> ExecutedBlocks {
        earlier.merge(later)
    }

    fn is_sound(&self, partial: &ExecutedBlocks) -> bool {
        partial.is_sound()
    }

    fn finish_several(&self, traces: Vec<(Vec<ExecutedBlocks>, FinishContext<'_>)>) -> Vec<Table> {
        match (self.report, traces.first().map(|(_, context)| context.selection)) {
            (BlocksReport::Coverage, Some(selection)) => {
                let traces = traces.into_iter().map(|(threads, context)| (threads, context.sources));
                vec![coverage::table(traces.collect(), &selection.view)]
            }
            _ => traces.into_iter().map(|(threads, context)| self.finish(threads, &context)).collect(),
        }
    }

    fn finish(&self, threads: Vec<ExecutedBlocks>, context: &FinishContext<'_>) -> Table {
        let (count, sources, view) = (threads.len() as u64, context.sources, context.selection.view.as_str());
        if self.report == BlocksReport::Coverage {
            return coverage::table(vec![(threads, sources)], view);
        }
        let whole = ExecutedBlocks::together(threads);
        match view {
            _ if self.report == BlocksReport::Blocks => table::blocks(&whole, count, sources),
            "function" => functions::lines(&whole, table::summary(&whole, count), sources),
            "inlined" => functions::inlined(&whole, table::summary(&whole, count), sources),
            _ => table::lines(&whole, count, sources),
        }
    }
}

impl FastFlow for Blocks {
    type Memory = ();
}
