//! How often each block of a function ran in each of some executions: the iterations of its loops. No report lists this
//! analysis: the engine knows which executions to read.

use std::ops::Range;

use hodo_model::{
    Analysis, Column, FastFlow, FinishContext, FlowEvent, FlowInterest, FunctionId, Interest, Item, Shape,
    Start, Table, Unit, kernel::Threads,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Executions of a function by one thread.
#[derive(Clone, Debug)]
pub struct CountedExecutions {
    /// The function.
    pub function: FunctionId,
    /// The numbers of their instructions in the thread: in order, and apart from each other.
    pub executions: Vec<Range<u64>>,
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct BlockCounts {
    /// The executions of each function.
    pub of: Vec<CountedExecutions>,
}

/// A block of a function in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockOfExecution {
    /// The index of the function in [`BlockCounts::of`].
    pub function: u32,
    /// The index of the execution.
    pub execution: u32,
    /// Where the block begins: an offset in the module.
    pub offset: u64,
}

/// The blocks that ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BlockCountsPartial {
    number: u64,
    /// How often each block ran.
    pub counts: FxHashMap<BlockOfExecution, u64>,
}

impl BlockCounts {
    /// Returns the function with this id, and the execution of it that contains an instruction.
    fn find(&self, id: FunctionId, number: u64) -> Option<(u32, u32)> {
        let (function, of) = (0..).zip(&self.of).find(|(_, of)| of.function == id)?;
        let index = of.executions.partition_point(|range| range.end <= number);
        of.executions.get(index)?.contains(&number).then_some((function, index as u32))
    }
}

impl Analysis for BlockCounts {
    type Partial = BlockCountsPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Numbered)
    }

    fn begin(&self, _: &Start<'_>) -> BlockCountsPartial {
        BlockCountsPartial::default()
    }

    fn fold(&self, partial: &mut BlockCountsPartial, item: Item<'_>) {
        match item {
            Item::Flow(FlowEvent::Number(at)) => partial.number = at,
            Item::Flow(FlowEvent::Skip { instructions }) => partial.number += instructions,
            Item::Flow(FlowEvent::Run { at, instructions, code }) => {
                if let Some((function, execution)) = self.find(at.function, partial.number) {
                    let block = BlockOfExecution { function, execution, offset: code.offset };
                    *partial.counts.entry(block).or_default() += 1;
                }
                partial.number += instructions;
            }
            _ => {}
        }
    }

    fn merge(
        &self,
        mut earlier: BlockCountsPartial,
        later: BlockCountsPartial,
        _: &Threads,
    ) -> BlockCountsPartial {
        for (block, count) in later.counts {
            *earlier.counts.entry(block).or_default() += count;
        }
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, threads: Vec<BlockCountsPartial>, context: &FinishContext<'_>) -> Table {
        let all = threads.into_iter().reduce(|all, next| self.merge(all, next, context.threads));
        let mut counts: Vec<_> = all.unwrap_or_default().counts.into_iter().collect();
        counts.sort_unstable();
        let columns =
            ["function", "execution", "offset", "count"].map(|name| Column::integer(name, Unit::None));
        let row = |(block, count): (BlockOfExecution, u64)| {
            vec![block.function.into(), block.execution.into(), block.offset.into(), count.into()]
        };
        Table::new("loops", Shape::Counters, vec![], columns.into(), counts.into_iter().map(row))
    }
}

impl FastFlow for BlockCounts {
    type Memory = ();
}
