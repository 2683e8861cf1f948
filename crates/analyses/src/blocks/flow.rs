//! Computes counts of instructions, and of the steps between them, from counts of blocks.

use std::collections::BTreeMap;

use hodo_model::{End, FunctionId, Sources};

use super::CountedBlock;
use crate::clock::Time;

/// Execution counts of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionCount {
    /// Its address, as in its module's symbols.
    pub address: u64,
    /// Its function.
    pub function: FunctionId,
    /// Its offset in the module, as [`CountedBlock::offset`].
    pub offset: u64,
    /// Its length in bytes.
    pub length: u8,
    /// The kind of instruction if it ends a block.
    pub end: End,
    /// Number of executions.
    pub executions: u64,
    /// Its share of its blocks' time.
    pub time: Time,
    /// Its share of the core cycles of its blocks, if the trace counts them.
    pub cycles: u64,
    /// Number of its executions for which cycles are known.
    pub counted: u64,
    /// Number of times that a conditional branch was taken.
    pub taken: u64,
    /// Number of times that a conditional branch was not taken.
    pub not_taken: u64,
}

/// The executed instructions of one module in order of address, and the steps between them.
///
/// Blocks overlap where one begins in the middle of another; instructions do not.
#[derive(Debug)]
pub struct Flow {
    /// The module.
    pub module: u32,
    /// The instructions.
    pub instructions: Vec<InstructionCount>,
    /// Steps within a function: fall-through and direct jumps.
    pub(super) steps: Vec<FlowStep>,
}

/// A step from one instruction, or piece of code, to another: their indices, and how often it was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowStep {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) count: u64,
}

impl Flow {
    /// Returns the flow of each module that has blocks, in order.
    pub fn of(blocks: &[CountedBlock], sources: &dyn Sources) -> Vec<Flow> {
        let mut modules: BTreeMap<u32, Vec<&CountedBlock>> = BTreeMap::new();
        for block in blocks {
            modules.entry(block.function.module).or_default().push(block);
        }
        modules.into_iter().map(|(module, blocks)| Flow::of_module(module, &blocks, sources)).collect()
    }

    /// Returns how often each instruction was entered: its executions without the steps to it from its own function.
    pub(crate) fn entries(&self) -> Vec<u64> {
        let mut entries: Vec<u64> =
            self.instructions.iter().map(|instruction| instruction.executions).collect();
        for &FlowStep { from, to, count } in &self.steps {
            if self.instructions[from].function == self.instructions[to].function {
                entries[to] = entries[to].saturating_sub(count);
            }
        }
        entries
    }

    fn of_module(module: u32, blocks: &[&CountedBlock], sources: &dyn Sources) -> Flow {
        let mut instructions: BTreeMap<u64, InstructionCount> = BTreeMap::new();
        let mut steps: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut step = |from: u64, to: u64, count: u64| {
            if count > 0 {
                let sum = steps.entry((from, to)).or_default();
                *sum = sum.saturating_add(count);
            }
        };
        for block in blocks {
            let start = sources.address(module, block.offset);
            let total = block.lengths.len() as u128;
            let (mut address, mut last) = (start, start);
            for (index, &length) in (0u128..).zip(&block.lengths) {
                let part = |whole: u64| {
                    let until = |index: u128| (u128::from(whole) * index / total) as u64;
                    until(index + 1) - until(index)
                };
                let instruction = instructions.entry(address).or_insert(InstructionCount {
                    address,
                    function: block.function,
                    offset: block.offset.wrapping_add(address.wrapping_sub(start)),
                    length,
                    end: End::Next,
                    executions: 0,
                    time: Time::default(),
                    cycles: 0,
                    counted: 0,
                    taken: 0,
                    not_taken: 0,
                });
                instruction.executions = instruction.executions.saturating_add(block.counts.executions);
                let time = block.counts.time.part(index as u64, index as u64 + 1, total as u64);
                instruction.time = instruction.time.saturating_add(time);
                instruction.cycles = instruction.cycles.saturating_add(part(block.counts.cycles));
                instruction.counted = instruction.counted.saturating_add(part(block.counts.counted));
                if index + 1 == total && block.end != End::Next {
                    instruction.end = block.end;
                    instruction.taken = instruction.taken.saturating_add(block.counts.taken);
                    instruction.not_taken = instruction.not_taken.saturating_add(block.counts.not_taken);
                }
                if index > 0 {
                    step(last, address, block.counts.executions);
                }
                last = address;
                address = address.wrapping_add(u64::from(length));
            }
            let target = start.wrapping_add_signed(block.target);
            match block.end {
                End::Next => step(last, address, block.counts.executions),
                End::Jump => step(last, target, block.counts.executions),
                End::Conditional => {
                    step(last, target, block.counts.taken);
                    step(last, address, block.counts.not_taken);
                }
                End::Call | End::Return | End::Indirect | End::Far => {}
            }
        }
        Flow::with_returns(module, instructions.into_values().collect(), &steps)
    }

    /// Adds the steps of returns: if an instruction after a call was executed more often than the known steps to it
    /// explain, the difference is the number of returns.
    fn with_returns(
        module: u32,
        instructions: Vec<InstructionCount>,
        steps: &BTreeMap<(u64, u64), u64>,
    ) -> Flow {
        let index =
            |address| instructions.binary_search_by_key(&address, |instruction| instruction.address).ok();
        let known = steps
            .iter()
            .filter_map(|(&(from, to), &count)| Some(FlowStep { from: index(from)?, to: index(to)?, count }));
        let mut steps: Vec<FlowStep> = known.collect();
        let mut arrivals = vec![0u64; instructions.len()];
        steps.iter().for_each(|step| arrivals[step.to] = arrivals[step.to].saturating_add(step.count));
        for to in 1..instructions.len() {
            let (before, here) = (&instructions[to - 1], &instructions[to]);
            let follows = before.address.wrapping_add(u64::from(before.length)) == here.address;
            let returned = here.executions.saturating_sub(arrivals[to]).min(before.executions);
            if follows && returned > 0 && matches!(before.end, End::Call | End::Far) {
                steps.push(FlowStep { from: to - 1, to, count: returned });
            }
        }
        Flow { module, instructions, steps }
    }
}
