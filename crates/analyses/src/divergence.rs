//! The instructions of one execution, or digests of them, for the comparison of two executions. No report lists these
//! analyses: the engine knows which instructions to read.

use std::{collections::BTreeMap, hash::Hasher, ops::Range};

use hodo_model::{
    Analysis, Column, FastFlow, FinishContext, FlowEvent, FlowInterest, Interest, Item, Shape, Start, Table,
    Unit, kernel::Threads,
};
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};

/// An executed instruction: its index in the execution, and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedInstruction {
    /// Its number in the execution, from 0.
    pub index: u64,
    /// Its module.
    pub module: u32,
    /// Its offset in the module.
    pub offset: u64,
    /// A hash of the module's content and the offset.
    pub key: u64,
}

/// Passes the instructions of an item to `each`; their indices are their numbers in the thread.
fn instructions(
    number: &mut u64,
    item: Item<'_>,
    modules: &[u64],
    mut each: impl FnMut(ExecutedInstruction),
) {
    match item {
        Item::Flow(FlowEvent::Number(next)) => *number = next,
        Item::Flow(FlowEvent::Skip { instructions }) => *number += instructions,
        Item::Flow(FlowEvent::Run { at, instructions, code }) => {
            let module = at.function.module;
            let mut offset = code.offset;
            for &length in code.lengths {
                let mut hasher = FxHasher::default();
                hasher.write_u64(modules.get(module as usize).copied().unwrap_or(0));
                hasher.write_u64(offset);
                each(ExecutedInstruction { index: *number, module, offset, key: hasher.finish() });
                offset = offset.wrapping_add(u64::from(length));
                *number += 1;
            }
            // Lengths are missing only if the code itself is missing.
            *number += instructions - code.lengths.len() as u64;
        }
        _ => {}
    }
}

/// Computes digests of an execution's blocks: sums of a hash of each instruction and its index, so the order of
/// addition doesn't matter.
#[derive(Clone, Debug)]
pub struct Digests {
    /// Numbers of the execution's instructions in its thread.
    pub wanted: Range<u64>,
    /// The number of instructions of a block, at least 1.
    pub block: u64,
    /// For each module, a hash that identifies its content.
    pub modules: Vec<u64>,
}

/// The digests of some instructions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DigestsPartial {
    number: u64,
    /// By the number of the block.
    pub digests: BTreeMap<u64, u64>,
}

impl Analysis for Digests {
    type Partial = DigestsPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Numbered)
    }

    fn begin(&self, _: &Start<'_>) -> DigestsPartial {
        DigestsPartial::default()
    }

    fn fold(&self, partial: &mut DigestsPartial, item: Item<'_>) {
        let DigestsPartial { number, digests } = partial;
        instructions(number, item, &self.modules, |step| {
            if !self.wanted.contains(&step.index) {
                return;
            }
            let index = step.index - self.wanted.start;
            let mut hasher = FxHasher::default();
            hasher.write_u64(step.key);
            hasher.write_u64(index);
            let sum = digests.entry(index / self.block).or_default();
            *sum = sum.wrapping_add(hasher.finish());
        });
    }

    fn merge(&self, mut earlier: DigestsPartial, later: DigestsPartial, _: &Threads) -> DigestsPartial {
        for (block, sum) in later.digests {
            let own = earlier.digests.entry(block).or_default();
            *own = own.wrapping_add(sum);
        }
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, threads: Vec<DigestsPartial>, context: &FinishContext<'_>) -> Table {
        let all = threads.into_iter().reduce(|all, next| self.merge(all, next, context.threads));
        let columns = vec![Column::integer("block", Unit::None), Column::integer("digest", Unit::None)];
        let rows = all.unwrap_or_default().digests.into_iter();
        Table::new(
            "digests",
            Shape::Counters,
            vec![],
            columns,
            rows.map(|(block, sum)| vec![block.into(), sum.into()]),
        )
    }
}

impl FastFlow for Digests {
    type Memory = ();
}

/// Collects the instructions in a range of numbers.
#[derive(Clone, Debug)]
pub struct InstructionCollector {
    /// The number of the execution's first instruction in its thread.
    pub first: u64,
    /// The numbers of the instructions to collect.
    pub wanted: Range<u64>,
    /// As in [`Digests`].
    pub modules: Vec<u64>,
}

/// Collected instructions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepsPartial {
    number: u64,
    /// In the order of execution.
    pub steps: Vec<ExecutedInstruction>,
}

impl Analysis for InstructionCollector {
    type Partial = StepsPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Numbered)
    }

    fn begin(&self, _: &Start<'_>) -> StepsPartial {
        StepsPartial::default()
    }

    fn fold(&self, partial: &mut StepsPartial, item: Item<'_>) {
        let StepsPartial { number, steps } = partial;
        instructions(number, item, &self.modules, |step| {
            if self.wanted.contains(&step.index) {
                steps.push(ExecutedInstruction { index: step.index - self.first, ..step });
            }
        });
    }

    fn merge(&self, mut earlier: StepsPartial, later: StepsPartial, _: &Threads) -> StepsPartial {
        earlier.steps.extend(later.steps);
        earlier
    }

    fn finish(&self, threads: Vec<StepsPartial>, _: &FinishContext<'_>) -> Table {
        let columns = ["index", "module", "offset", "key"].map(|name| Column::integer(name, Unit::None));
        let steps = threads.into_iter().flat_map(|partial| partial.steps);
        let rows = steps
            .map(|step| vec![step.index.into(), step.module.into(), step.offset.into(), step.key.into()]);
        Table::new("steps", Shape::Points, vec![], columns.into(), rows)
    }
}

impl FastFlow for InstructionCollector {
    type Memory = ();
}
