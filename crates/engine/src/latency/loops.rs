//! How often the blocks of functions ran in single executions: the iterations of their loops.

use std::collections::BTreeMap;

use hodo_analyses::loops::{BlockCounts, CountedExecutions};
use hodo_model::{Analysis, FunctionId, Names, Sources, kernel::Threads};

use super::{
    SampledExecution,
    trees::{only, spans_of},
};
use crate::{
    flow::{fold::fold, selection_filter::Numbers, trace::Trace},
    reading::Reading,
};

/// A block of a function, as it ran in some executions of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopBlock {
    /// Where it begins: file and line, or the offset in the function.
    pub at: String,
    /// How often it ran in each execution.
    pub counts: Vec<u64>,
}

/// Returns the blocks of each function with how often each ran in these executions of it, which are of one thread and in
/// order. `progress` gets the number of decoded bytes and returns whether to continue.
pub fn loops(
    flow: &Trace<'_>,
    executions: &[(FunctionId, Vec<SampledExecution>)],
    numbers: &Numbers,
    reading: Reading<'_>,
    progress: impl FnMut(u64) -> bool + Send,
) -> Vec<Vec<LoopBlock>> {
    let of = executions.iter().map(|(function, executions)| CountedExecutions {
        function: *function,
        executions: executions.iter().map(|one| one.first..one.first + one.instructions).collect(),
    });
    let analysis = BlockCounts { of: of.collect() };
    let locations: Vec<_> =
        executions.iter().flat_map(|(_, own)| own).map(|one| one.location(flow)).collect();
    let spans = spans_of(flow, &locations).1;
    let reading = only(&spans, numbers, reading);
    let (partials, _) = fold(flow, &analysis, reading, progress);
    let all = partials.into_iter().reduce(|all, next| analysis.merge(all, next, &Threads::default()));
    let mut blocks: Vec<BTreeMap<u64, Vec<u64>>> = vec![BTreeMap::new(); executions.len()];
    for (block, count) in all.unwrap_or_default().counts {
        let function = block.function as usize;
        let empty = || vec![0; executions[function].1.len()];
        let counts = blocks[function].entry(block.offset).or_insert_with(empty);
        counts[block.execution as usize] = count;
    }
    let named = |(function, blocks): (&FunctionId, BTreeMap<u64, Vec<u64>>)| {
        let block = |(offset, counts)| LoopBlock { at: place(flow, *function, offset), counts };
        blocks.into_iter().map(block).collect()
    };
    executions.iter().map(|(function, _)| function).zip(blocks).map(named).collect()
}

fn place(flow: &Trace<'_>, function: FunctionId, offset: u64) -> String {
    let modules = &flow.modules;
    let address = Sources::address(modules, function.module, offset);
    match Sources::line(modules, function.module, address) {
        Some(line) => format!("{}:{}", line.file.rsplit('/').next().unwrap_or(line.file), line.line),
        None => {
            format!("{}+{:#x}", modules.names(function).0, address.wrapping_sub(modules.start(function)))
        }
    }
}
