//! Tables of lines by function, and of functions that the compiler inlined.

use std::collections::BTreeMap;

use hodo_model::{Column, FunctionId, Shape, Sources, Summary, Table, Unit, Value};

use super::{CountedBlock, Flow, InstructionCount};
use crate::{clock::Time, columns::most_first};

/// The cost of some instructions.
#[derive(Clone, Copy, Debug, Default)]
struct BlockCost {
    instructions: u64,
    time: Time,
}

impl BlockCost {
    fn add(&mut self, executions: u64, time: Time) {
        self.instructions = self.instructions.saturating_add(executions);
        self.time = self.time.saturating_add(time);
    }
}

/// Returns the lines of each function, by module and function. Lines of functions inlined there belong to it. A row's
/// address is that of its first instruction that ran.
pub(super) fn lines(blocks: &[CountedBlock], summary: Summary, sources: &dyn Sources) -> Table {
    type Key<'s> = (FunctionId, Option<(&'s str, u32)>);
    let mut lines: BTreeMap<Key<'_>, (u64, BlockCost)> = BTreeMap::new();
    for flow in Flow::of(blocks, sources) {
        for instruction in &flow.instructions {
            let &InstructionCount { address, function, executions, time, .. } = instruction;
            let line = sources.line(flow.module, address).map(|line| (line.file, line.line));
            // Instructions are in order of address.
            let (_, cost) = lines.entry((function, line)).or_insert((address, BlockCost::default()));
            cost.add(executions, time);
        }
    }
    let rows = lines.into_iter().map(|((function, line), (address, cost))| {
        let (name, module) = sources.names(function);
        let row = vec![
            Value::from(cost.instructions),
            cost.time.nanoseconds().into(),
            line.map_or(Value::Null, |(file, line)| format!("{file}:{line}").into()),
            address.into(),
            name.into(),
            module.into(),
        ];
        ((cost.instructions, (function, address, line)), row)
    });
    let columns = vec![
        Column::integer("instructions", Unit::Instructions),
        Column::integer("time_ns", Unit::Nanoseconds),
        Column::text("line"),
        Column::integer("address", Unit::Address),
        Column::name("function"),
        Column::name("module").secondary(),
    ];
    Table::new("lines", Shape::Counters, summary, columns, most_first(rows))
}

/// The costs of a function that was inlined.
#[derive(Default)]
struct InlinedCosts {
    all: BlockCost,
    /// Without functions inlined into it.
    own: BlockCost,
}

/// Returns the functions that the compiler inlined into others, and their costs there.
pub(super) fn inlined(blocks: &[CountedBlock], summary: Summary, sources: &dyn Sources) -> Table {
    let mut functions: BTreeMap<(String, String), InlinedCosts> = BTreeMap::new();
    for flow in Flow::of(blocks, sources) {
        let Some(first) = flow.instructions.first() else { continue };
        let (_, module) = sources.names(first.function);
        let addresses: Vec<u64> = flow.instructions.iter().map(|instruction| instruction.address).collect();
        sources.inlined_frames(flow.module, &addresses, &mut |index, frames| {
            let &InstructionCount { executions, time, .. } = &flow.instructions[index];
            for (depth, function) in frames.iter().enumerate() {
                // A recursive function may be inlined into itself.
                if frames[..depth].contains(function) {
                    continue;
                }
                let costs = functions.entry((function.clone(), module.clone())).or_default();
                costs.all.add(executions, time);
                if depth == 0 {
                    costs.own.add(executions, time);
                }
            }
        });
    }
    let rows = functions.into_iter().map(|(names, InlinedCosts { all, own })| {
        let row = vec![
            Value::from(own.instructions),
            all.instructions.into(),
            own.time.nanoseconds().into(),
            all.time.nanoseconds().into(),
            names.0.as_str().into(),
            names.1.as_str().into(),
        ];
        ((all.instructions, names), row)
    });
    let columns = vec![
        Column::integer("self_instructions", Unit::Instructions),
        Column::integer("total_instructions", Unit::Instructions),
        Column::integer("self_time_ns", Unit::Nanoseconds),
        Column::integer("total_time_ns", Unit::Nanoseconds),
        Column::name("function"),
        Column::name("module").secondary(),
    ];
    Table::new("lines", Shape::Counters, summary, columns, most_first(rows))
}
