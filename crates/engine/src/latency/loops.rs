//! How often the blocks of functions ran in single executions: the iterations of their loops.
//!
//! ```text
//! chunks with these executions ──blocks──► block of a function, in the execution that runs ──┐
//!                              ──paths──► runs of each path ──at the end of an execution────┴─► counts
//! ```

use std::{collections::BTreeMap, mem, ops::Range};

use hodo_code::{Graph, Labels};
use hodo_flow::{Event, Executed, Sink, Step};
use hodo_model::{FunctionId, Names, Sources};
use rustc_hash::FxHashMap;

use super::{
    SampledExecution,
    trees::{only, spans_of},
};
use crate::{
    flow::{
        event::arrival,
        segments::{StreamSink, decode_all},
        selection_filter::{Numbers, SelectionFilter},
        trace::Trace,
    },
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
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Vec<Vec<LoopBlock>> {
    let of_function = |(function, executions): &(FunctionId, Vec<SampledExecution>)| CountedExecutions {
        function: *function,
        executions: executions.iter().map(|one| one.first..one.first + one.instructions).collect(),
    };
    let counted: Vec<CountedExecutions> = executions.iter().map(of_function).collect();
    let locations: Vec<_> =
        executions.iter().flat_map(|(_, own)| own).map(|one| one.location(flow)).collect();
    let (pending, spans) = spans_of(flow, &locations);
    let Some(&context) = pending.keys().next() else { return vec![Vec::new(); executions.len()] };
    let reading = only(&spans, numbers, reading);
    let all = counts(flow, &counted, context, reading, &mut progress);
    let mut blocks: Vec<BTreeMap<u64, Vec<u64>>> = vec![BTreeMap::new(); executions.len()];
    for (BlockOfExecution { function, execution, offset }, count) in all {
        let empty = || vec![0; executions[function as usize].1.len()];
        blocks[function as usize].entry(offset).or_insert_with(empty)[execution as usize] = count;
    }
    let named = |(function, blocks): (&FunctionId, BTreeMap<u64, Vec<u64>>)| {
        let block = |(offset, counts)| LoopBlock { at: place(flow, *function, offset), counts };
        blocks.into_iter().map(block).collect()
    };
    executions.iter().map(|(function, _)| function).zip(blocks).map(named).collect()
}

/// Counts the blocks of executions of a thread. `progress` is an object, as each copy of this function contains a decoder.
fn counts(
    flow: &Trace<'_>,
    counted: &[CountedExecutions],
    context: u32,
    reading: Reading<'_>,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> FxHashMap<BlockOfExecution, u64> {
    let mut all: FxHashMap<BlockOfExecution, u64> = FxHashMap::default();
    decode_all(
        flow,
        reading,
        |chunk, paths| BlockCounter {
            filter: SelectionFilter::new(flow, chunk, reading),
            context,
            counted,
            constant: Constant::default(),
            paths,
            counts: FxHashMap::default(),
        },
        BlockCounter::finish,
        |_, of_chunk| {
            of_chunk.into_iter().for_each(|(block, count)| *all.entry(block).or_default() += count);
            true
        },
        progress,
    );
    all
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

/// Executions of a function.
#[derive(Debug)]
struct CountedExecutions {
    function: FunctionId,
    /// The numbers of their instructions in the thread: in order, and apart from each other.
    executions: Vec<Range<u64>>,
}

impl CountedExecutions {
    /// Returns the execution that contains an instruction, and the first number from which the answer is another one.
    fn at(&self, number: u64) -> (Option<u32>, u64) {
        let index = self.executions.partition_point(|range| range.end <= number);
        match self.executions.get(index) {
            Some(range) if range.contains(&number) => (Some(index as u32), range.end),
            Some(next) => (None, next.start),
            None => (None, u64::MAX),
        }
    }
}

/// A block of a function in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockOfExecution {
    /// The index of the function.
    function: u32,
    /// The index of the execution.
    execution: u32,
    /// Where the block begins: an offset in the module.
    offset: u64,
}

/// A block of a counted function on a path.
#[derive(Clone, Copy, Debug)]
struct BlockOfPath {
    /// The instructions of the path before it.
    before: u32,
    /// The index of the function.
    function: u32,
    offset: u64,
}

/// A learned path, and its runs.
#[derive(Clone, Copy, Debug)]
struct Path {
    instructions: u32,
    /// End index of its blocks; they begin where those of the previous path end.
    blocks_end: u32,
    /// Runs that are not counted yet, all in the same executions.
    runs: u64,
}

/// The learned paths of a decoding thread, reused from chunk to chunk.
#[derive(Debug, Default)]
struct BlockPaths {
    paths: Vec<Path>,
    blocks: Vec<BlockOfPath>,
    /// Paths with runs that are not counted yet.
    ran: Vec<u32>,
}

impl BlockPaths {
    /// What a path does to the counts depends on no state.
    const STATE: u32 = 0;

    fn range(&self, path: u32) -> Range<usize> {
        let begin = (path as usize).checked_sub(1).map_or(0, |before| self.paths[before].blocks_end);
        begin as usize..self.paths[path as usize].blocks_end as usize
    }

    /// Adds a path whose blocks are the newest; returns its number.
    fn push(&mut self, instructions: u32) -> u32 {
        self.paths.push(Path { instructions, blocks_end: self.blocks.len() as u32, runs: 0 });
        self.paths.len() as u32 - 1
    }

    fn join(&mut self, first: u32, second: u32) -> u32 {
        let [before, after] = [first, second].map(|path| self.paths[path as usize].instructions);
        self.blocks.extend_from_within(self.range(first));
        let later = self.blocks.len();
        self.blocks.extend_from_within(self.range(second));
        self.blocks[later..].iter_mut().for_each(|block| block.before += before);
        self.push(before + after)
    }

    /// Notes a run of a path.
    #[inline]
    fn run(&mut self, path: u32) {
        let own = &mut self.paths[path as usize];
        if own.runs == 0 {
            self.ran.push(path);
        }
        own.runs += 1;
    }
}

/// The executions that run, and until when these are the same.
#[derive(Debug, Default)]
struct Constant {
    /// Of each function.
    executions: Vec<Option<u32>>,
    /// The number of the first instruction with others.
    until: u64,
}

/// Counts the blocks in a chunk.
struct BlockCounter<'x, 'f> {
    filter: SelectionFilter<'x, 'f>,
    /// The thread that made the executions.
    context: u32,
    counted: &'x [CountedExecutions],
    constant: Constant,
    paths: BlockPaths,
    counts: FxHashMap<BlockOfExecution, u64>,
}

impl BlockCounter<'_, '_> {
    /// Returns the index of a function whose blocks are counted.
    fn index(&self, function: FunctionId) -> Option<u32> {
        let index = self.counted.iter().position(|of| of.function == function)?;
        Some(index as u32)
    }

    fn add(&mut self, function: u32, execution: u32, offset: u64, count: u64) {
        *self.counts.entry(BlockOfExecution { function, execution, offset }).or_default() += count;
    }

    /// Counts the runs of paths so far in the executions that ran until now.
    fn settle(&mut self) {
        for path in mem::take(&mut self.paths.ran) {
            let runs = mem::take(&mut self.paths.paths[path as usize].runs);
            for index in self.paths.range(path) {
                let BlockOfPath { function, offset, .. } = self.paths.blocks[index];
                if let Some(&Some(execution)) = self.constant.executions.get(function as usize) {
                    self.add(function, execution, offset, runs);
                }
            }
        }
    }

    /// Counts a path that begins at an instruction with this number, in whose course executions may begin or end.
    #[cold]
    fn cross(&mut self, path: u32, number: u64) {
        self.settle();
        for index in self.paths.range(path) {
            let BlockOfPath { before, function, offset } = self.paths.blocks[index];
            let (execution, _) = self.counted[function as usize].at(number + u64::from(before));
            if let Some(execution) = execution {
                self.add(function, execution, offset, 1);
            }
        }
        let next = number + u64::from(self.paths.paths[path as usize].instructions);
        let at = self.counted.iter().map(|of| of.at(next));
        let (executions, ends): (Vec<_>, Vec<_>) = at.unzip();
        self.constant = Constant { executions, until: ends.into_iter().min().unwrap_or(u64::MAX) };
    }

    /// Returns the number of the next instruction, if it is of the thread whose executions are counted.
    #[inline]
    fn number(&self) -> Option<u64> {
        self.filter.number().filter(|_| self.filter.context == self.context)
    }

    fn finish(mut self) -> (FxHashMap<BlockOfExecution, u64>, BlockPaths) {
        self.settle();
        (self.counts, self.paths)
    }
}

impl StreamSink for BlockCounter<'_, '_> {
    fn begin_segment(&mut self) {
        self.filter.begin_segment();
    }

    fn skip(&mut self, instructions: u64) {
        self.filter.ran(instructions);
    }
}

impl Sink for BlockCounter<'_, '_> {
    #[inline]
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        if let Some(function) = self.index(arrival(block.start, block.label).function)
            && let Some(number) = self.number()
            && let (Some(execution), _) = self.counted[function as usize].at(number)
        {
            self.add(function, execution, executed.provenance().origin.offset, 1);
        }
        self.filter.ran(executed.lengths.len() as u64);
    }

    const TAKES_BLOCKS: bool = true;

    fn takes_paths(&self) -> bool {
        true
    }

    fn state(&mut self) -> Option<u32> {
        Some(BlockPaths::STATE)
    }

    fn learn<L: Labels>(&mut self, _: u32, steps: &[Step], graph: &Graph<'_, L>) -> Option<(u32, u32)> {
        let mut before = 0;
        for step in steps {
            if let Some(function) = self.index(arrival(step.start, step.label()).function) {
                let offset = graph.provenance(step.block).origin.offset;
                self.paths.blocks.push(BlockOfPath { before, function, offset });
            }
            before += u32::from(step.instructions);
        }
        Some((self.paths.push(before), BlockPaths::STATE))
    }

    fn join(&mut self, first: u32, second: u32) -> Option<u32> {
        Some(self.paths.join(first, second))
    }

    #[inline]
    fn path(&mut self, path: u32) {
        let instructions = u64::from(self.paths.paths[path as usize].instructions);
        if let Some(number) = self.number() {
            if number + instructions <= self.constant.until {
                self.paths.run(path);
            } else {
                self.cross(path, number);
            }
        }
        self.filter.ran(instructions);
    }

    fn forget(&mut self) {
        self.settle();
        self.paths = BlockPaths::default();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Time(now) => self.filter.time(now),
            Event::Switch(context) => self.filter.switch(context),
            _ => {}
        }
    }
}
