//! The tables of models.

use std::collections::BTreeMap;

use hodo_model::{
    CacheGeometry, Column, FinishContext, FunctionId, Shape, Sources, Summary, Table, Unit, Value,
};

use super::state::{Block, BlockResult, ModelState};
use crate::columns::most_first;

/// Instructions that the modelled processor retires in a cycle without a miss.
const WIDTH: u64 = 4;
/// Cycles that a wrongly predicted branch costs.
const BRANCH_MISS_CYCLES: u64 = 15;
/// Cycles that an instruction costs whose line is not in the cache.
const FETCH_MISS_CYCLES: u64 = 10;
/// The predictor that counts for cycles: the index of `gshare`.
const PREDICTOR: usize = 1;

/// Sums of several blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    instructions: u64,
    result: BlockResult,
}

impl Sum {
    fn add(&mut self, block: &Block, result: &BlockResult) {
        let instructions = result.executions.all.saturating_mul(block.length.into());
        self.instructions = self.instructions.saturating_add(instructions);
        self.result.add(result);
    }

    fn cycles(&self) -> u64 {
        let branches = self.result.branch_misses[PREDICTOR].saturating_add(self.result.target_misses);
        let waits = branches.saturating_mul(BRANCH_MISS_CYCLES);
        let fetches = self.result.fetch_misses.saturating_mul(FETCH_MISS_CYCLES);
        (self.instructions / WIDTH).saturating_add(waits).saturating_add(fetches)
    }

    fn cells(&self) -> Vec<Value> {
        let BlockResult { executions, branch_misses, target_misses, fetch_misses } = self.result;
        let mut cells = vec![self.cycles().into(), self.instructions.into(), executions.branches.into()];
        cells.extend(branch_misses.map(Value::from));
        cells.extend([executions.jumps, target_misses, fetch_misses].map(Value::from));
        cells
    }
}

/// The columns of [`Sum::cells`].
fn columns() -> Vec<Column> {
    let count = |name| Column::integer(name, Unit::Count);
    vec![
        count("modelled_cycles"),
        Column::integer("instructions", Unit::Instructions),
        count("conditional_branches"),
        count("modelled_bimodal_misses"),
        count("modelled_gshare_misses"),
        count("modelled_cachegrind_misses"),
        count("indirect_branches"),
        count("modelled_target_misses"),
        count("modelled_icache_misses"),
    ]
}

/// Makes the table of a view.
pub(super) fn table(
    threads: &[ModelState],
    count: u64,
    geometry: CacheGeometry,
    context: &FinishContext<'_>,
) -> Table {
    let mut blocks: BTreeMap<Block, BlockResult> = BTreeMap::new();
    for (block, result) in threads.iter().flat_map(ModelState::results) {
        blocks.entry(block).or_default().add(&result);
    }
    let mut all = Sum::default();
    blocks.iter().for_each(|(block, result)| all.add(block, result));
    let summary = summary(&all, count, geometry);
    match context.selection.view.as_str() {
        "block" => by_place(&blocks, summary, context.sources, |_| true, |block| block.offset),
        "branch" => by_place(
            &blocks,
            summary,
            context.sources,
            |block| block.is_conditional,
            |block| block.offset.wrapping_add(block.last.into()),
        ),
        _ => by_function(&blocks, summary, context.sources),
    }
}

fn summary(all: &Sum, threads: u64, geometry: CacheGeometry) -> Summary {
    let BlockResult { executions, branch_misses, target_misses, fetch_misses } = all.result;
    vec![
        ("instructions", all.instructions.into()),
        ("threads", threads.into()),
        ("conditional_branches", executions.branches.into()),
        ("indirect_branches", executions.jumps.into()),
        ("modelled_bimodal_misses", branch_misses[0].into()),
        ("modelled_gshare_misses", branch_misses[PREDICTOR].into()),
        ("modelled_cachegrind_misses", branch_misses[2].into()),
        ("modelled_target_misses", target_misses.into()),
        ("modelled_icache", geometry.to_string().into()),
        ("modelled_icache_misses", fetch_misses.into()),
        ("modelled_cycles", all.cycles().into()),
    ]
}

fn by_function(blocks: &BTreeMap<Block, BlockResult>, summary: Summary, sources: &dyn Sources) -> Table {
    let mut functions: BTreeMap<FunctionId, Sum> = BTreeMap::new();
    for (block, result) in blocks {
        functions.entry(block.function).or_default().add(block, result);
    }
    let rows = functions.iter().map(|(&id, sum)| {
        let (function, module) = sources.names(id);
        let mut row = sum.cells();
        row.extend([function, module].map(Value::from));
        ((sum.cycles(), id), row)
    });
    let mut columns = columns();
    columns.extend([Column::name("function"), Column::name("module").secondary()]);
    Table::new("models", Shape::Counters, summary, columns, most_first(rows))
}

/// Rows of blocks that are chosen, by an offset in their module.
fn by_place(
    blocks: &BTreeMap<Block, BlockResult>,
    summary: Summary,
    sources: &dyn Sources,
    is_chosen: impl Fn(&Block) -> bool,
    offset: impl Fn(&Block) -> u64,
) -> Table {
    let mut places: BTreeMap<(FunctionId, u64), Sum> = BTreeMap::new();
    for (block, result) in blocks.iter().filter(|(block, _)| is_chosen(block)) {
        places.entry((block.function, offset(block))).or_default().add(block, result);
    }
    let rows = places.iter().map(|(&(id, offset), sum)| {
        let (function, module) = sources.names(id);
        let address = sources.address(id.module, offset);
        let line = sources.line(id.module, address).map(|line| format!("{}:{}", line.file, line.line));
        let mut row = sum.cells();
        row.extend([line.into(), address.into(), function.into(), module.into()]);
        ((sum.cycles(), (id, offset)), row)
    });
    let mut columns = columns();
    columns.extend([
        Column::text("line"),
        Column::integer("address", Unit::Address),
        Column::name("function"),
        Column::name("module").secondary(),
    ]);
    Table::new("models", Shape::Counters, summary, columns, most_first(rows))
}
