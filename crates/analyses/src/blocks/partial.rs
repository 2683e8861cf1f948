//! The blocks executed in one chunk of a thread's trace.

use hodo_model::{Arrival, Code, End, FlowEvent, FunctionId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::clock::{NO_OTHERS, SegmentClock, Time, TimeShare};

/// A sequence of instructions, with its counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CountedBlock {
    /// The function; its module holds the code.
    pub function: FunctionId,
    /// The first instruction's offset in the module, as [`Code::offset`].
    pub offset: u64,
    /// The tick at which this content of the code begins, as [`Code::since`].
    pub since: u64,
    /// Lengths of the instructions in bytes.
    pub lengths: Vec<u8>,
    /// The kind of the last instruction.
    pub end: End,
    /// The target of a direct branch at the end, relative to the first instruction; else the block's end.
    pub target: i64,
    /// Its counts.
    pub counts: BlockCounts,
}

/// Execution counts of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockCounts {
    /// Number of executions.
    pub executions: u64,
    /// Number of times that the conditional branch at its end was taken.
    pub taken: u64,
    /// Number of times that it was not taken. A branch at which the trace ends counts as neither.
    pub not_taken: u64,
    /// Time of execution.
    pub time: Time,
    /// Core cycles of execution, if the trace counts them.
    pub cycles: u64,
    /// Number of instructions executed during these cycles.
    pub counted: u64,
}

impl BlockCounts {
    fn add(&mut self, other: &BlockCounts) {
        // A damaged clock may give any value, and a forged partial may contain any count.
        self.executions = self.executions.saturating_add(other.executions);
        self.taken = self.taken.saturating_add(other.taken);
        self.not_taken = self.not_taken.saturating_add(other.not_taken);
        self.time = self.time.saturating_add(other.time);
        self.cycles = self.cycles.saturating_add(other.cycles);
        self.counted = self.counted.saturating_add(other.counted);
    }
}

impl CountedBlock {
    /// Bytes from its first instruction to its end.
    pub fn size(&self) -> u64 {
        self.lengths.iter().map(|&length| u64::from(length)).sum()
    }

    /// Instructions executed in it.
    pub fn instructions(&self) -> u64 {
        self.counts.executions.saturating_mul(self.lengths.len() as u64)
    }
}

/// Identifies a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockKey {
    module: u32,
    offset: u64,
    since: u64,
    /// The number of instructions.
    length: u32,
}

fn key(block: &CountedBlock) -> BlockKey {
    let &CountedBlock { function, offset, since, ref lengths, .. } = block;
    BlockKey { module: function.module, offset, since, length: lengths.len() as u32 }
}

/// Distinct blocks in order of first execution.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<CountedBlock>", into = "Vec<CountedBlock>")]
struct BlockList {
    blocks: Vec<CountedBlock>,
    index: FxHashMap<BlockKey, u32>,
}

impl From<Vec<CountedBlock>> for BlockList {
    fn from(blocks: Vec<CountedBlock>) -> BlockList {
        let index = blocks.iter().zip(0..).map(|(block, index)| (key(block), index)).collect();
        BlockList { blocks, index }
    }
}

impl From<BlockList> for Vec<CountedBlock> {
    fn from(list: BlockList) -> Vec<CountedBlock> {
        list.blocks
    }
}

impl BlockList {
    /// Returns the index of the block of this code.
    #[inline]
    fn of(&mut self, at: &Arrival, code: &Code<'_>) -> u32 {
        let (module, length) = (at.function.module, code.lengths.len() as u32);
        let key = BlockKey { module, offset: code.offset, since: code.since, length };
        match self.index.get(&key) {
            Some(&index) => index,
            None => self.push(CountedBlock {
                function: at.function,
                offset: code.offset,
                since: code.since,
                lengths: code.lengths.to_vec(),
                end: code.end,
                target: code.target.wrapping_sub(at.address).cast_signed(),
                counts: BlockCounts::default(),
            }),
        }
    }

    #[cold]
    fn push(&mut self, block: CountedBlock) -> u32 {
        let index = u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks");
        self.index.insert(key(&block), index);
        self.blocks.push(block);
        index
    }

    #[inline]
    fn counts(&mut self, index: u32) -> &mut BlockCounts {
        &mut self.blocks[index as usize].counts
    }

    /// Adds the blocks of another list, and returns our index of each.
    fn add(&mut self, other: &BlockList) -> Vec<u32> {
        let mut indices = Vec::with_capacity(other.blocks.len());
        for block in &other.blocks {
            let index = match self.index.get(&key(block)) {
                Some(&index) => index,
                None => self.push(CountedBlock { counts: BlockCounts::default(), ..block.clone() }),
            };
            self.counts(index).add(&block.counts);
            indices.push(index);
        }
        indices
    }
}

/// A conditional branch whose outcome depends on the next address.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PendingBranch {
    block: u32,
    target: u64,
    /// The address after the branch.
    next: u64,
}

/// The block that ran last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum LastBlock {
    /// Unknown: the chunk begins here.
    Unknown,
    /// None: flow is missing.
    Nothing,
    /// This block.
    Block(u32),
}

/// The block index of instructions that are not selected.
const UNSELECTED: u32 = u32::MAX;

/// The first address of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FirstAddress {
    /// It has not arrived yet.
    Unknown,
    /// It begins at this address.
    Address(u64),
    /// Unknown, because flow is missing before it.
    Lost,
}

/// The blocks of some chunks of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecutedBlocks {
    list: BlockList,
    first: FirstAddress,
    last: LastBlock,
    branch: Option<PendingBranch>,
    #[serde(skip)]
    clock: SegmentClock<u32>,
    /// The clock of core cycles.
    #[serde(skip)]
    cycles: SegmentClock<u32>,
    /// Nanoseconds that belong to the block that ran last before the chunk.
    before: u64,
}

impl ExecutedBlocks {
    pub(crate) fn unknown() -> ExecutedBlocks {
        ExecutedBlocks {
            list: BlockList::default(),
            first: FirstAddress::Unknown,
            last: LastBlock::Unknown,
            branch: None,
            clock: SegmentClock::default(),
            cycles: SegmentClock::default(),
            before: 0,
        }
    }

    #[inline]
    pub(crate) fn fold(&mut self, event: FlowEvent<'_>) {
        match event {
            FlowEvent::Run { at, code, .. } => self.run(&at, &code),
            FlowEvent::Leave { next } => {
                if let Some(next) = next {
                    self.arrive(next);
                }
                self.set_left(true);
            }
            FlowEvent::Gap => {
                self.lose();
                self.clock.gap();
                self.cycles.gap();
            }
            FlowEvent::Skip { instructions } => {
                self.clock.ran(UNSELECTED, instructions);
                self.cycles.ran(UNSELECTED, instructions);
                self.lose();
            }
            FlowEvent::Number(_) | FlowEvent::Interrupts(_) => {}
            FlowEvent::Begin(clock) => self.clock.begin(clock.map(|clock| clock.0)),
            FlowEvent::Time(clock) => {
                if self.clock.read(clock.0) {
                    self.share();
                }
            }
            FlowEvent::End => {
                self.clock.last_of_segment();
                self.share();
                self.clock.end();
                // No count of this segment covers the cycles of the last instructions.
                self.cycles = SegmentClock::default();
            }
            FlowEvent::Cycles(count) => self.count_cycles(count),
            _ => self.set_left(false),
        }
    }

    fn set_left(&mut self, left: bool) {
        self.clock.left = left;
        self.cycles.left = left;
    }

    /// Ends the sequence: the next instruction does not follow the last one.
    fn lose(&mut self) {
        self.branch = None;
        self.last = LastBlock::Nothing;
        if self.first == FirstAddress::Unknown {
            self.first = FirstAddress::Lost;
        }
    }

    #[inline]
    fn run(&mut self, at: &Arrival, code: &Code<'_>) {
        self.arrive(at.address);
        let block = self.list.of(at, code);
        self.list.counts(block).executions += 1;
        self.last = LastBlock::Block(block);
        if code.end == End::Conditional {
            let size: u64 = code.lengths.iter().map(|&length| u64::from(length)).sum();
            self.branch =
                Some(PendingBranch { block, target: code.target, next: at.address.wrapping_add(size) });
        }
        self.clock.ran(block, code.lengths.len() as u64);
        self.cycles.ran(block, code.lengths.len() as u64);
    }

    /// Continues at an address, which determines the outcome of the branch before it.
    #[inline]
    fn arrive(&mut self, address: u64) {
        if self.first == FirstAddress::Unknown {
            self.first = FirstAddress::Address(address);
        }
        if let Some(branch) = self.branch.take() {
            self.decide(branch, address);
        }
    }

    #[inline]
    fn decide(&mut self, branch: PendingBranch, address: u64) {
        let counts = self.list.counts(branch.block);
        // After an interrupt, execution may continue at neither address.
        let (taken, not_taken) = (address == branch.target, address == branch.next);
        counts.taken = counts.taken.wrapping_add(taken.into());
        counts.not_taken = counts.not_taken.wrapping_add((not_taken && branch.next != branch.target).into());
    }

    fn share(&mut self) {
        let ExecutedBlocks { list, clock, last, before, .. } = self;
        clock.share(NO_OTHERS, |share| match (share, *last) {
            (TimeShare::Ran { owner: UNSELECTED, .. }, _) => {}
            (TimeShare::Ran { owner: block, time, .. }, _) => {
                let counts = list.counts(block);
                counts.time = counts.time.saturating_add(time);
            }
            (TimeShare::Waited(time), LastBlock::Block(block)) => {
                let counts = list.counts(block);
                counts.time = counts.time.saturating_add(Time::of(time.length()));
            }
            (TimeShare::Waited(time), LastBlock::Unknown) => *before = before.saturating_add(time.length()),
            _ => {}
        });
    }

    fn count_cycles(&mut self, count: u64) {
        let ExecutedBlocks { list, cycles, .. } = self;
        if !cycles.runs() {
            // The cycle count at which the instructions before began is unknown.
            return cycles.begin(Some(count));
        }
        if cycles.read(count) {
            cycles.share(NO_OTHERS, |share| {
                if let TimeShare::Ran { owner, instructions, piece, .. } = share
                    && owner != UNSELECTED
                {
                    let counts = list.counts(owner);
                    counts.cycles = counts.cycles.saturating_add(piece.span().length());
                    counts.counted += instructions;
                }
            });
        }
    }

    /// See [`hodo_model::Analysis::is_sound`].
    pub(crate) fn is_sound(&self) -> bool {
        let BlockList { blocks, index } = &self.list;
        let last = if let LastBlock::Block(block) = self.last { Some(block) } else { None };
        let mut named = last.into_iter().chain(self.branch.map(|branch| branch.block));
        index.len() == blocks.len() && named.all(|block| (block as usize) < blocks.len())
    }

    /// Joins two neighbouring partials.
    pub(crate) fn merge(mut self, later: ExecutedBlocks) -> ExecutedBlocks {
        match (later.first, self.branch.take()) {
            (FirstAddress::Address(address), Some(branch)) => self.decide(branch, address),
            (FirstAddress::Unknown, branch) => self.branch = branch,
            _ => {}
        }
        if self.first == FirstAddress::Unknown {
            self.first = later.first;
        }
        match self.last {
            LastBlock::Unknown => self.before = self.before.saturating_add(later.before),
            LastBlock::Block(block) => {
                let counts = self.list.counts(block);
                counts.time = counts.time.saturating_add(Time::of(later.before));
            }
            LastBlock::Nothing => {}
        }
        let indices = self.list.add(&later.list);
        let joined = |block: u32| indices[block as usize];
        match later.last {
            LastBlock::Unknown => {}
            LastBlock::Nothing => self.last = LastBlock::Nothing,
            LastBlock::Block(block) => self.last = LastBlock::Block(joined(block)),
        }
        if let Some(branch) = later.branch {
            self.branch = Some(PendingBranch { block: joined(branch.block), ..branch });
        }
        self
    }

    /// Returns the blocks of all threads, in order of address.
    pub fn together(threads: Vec<ExecutedBlocks>) -> Vec<CountedBlock> {
        let mut all: Vec<CountedBlock> = threads.into_iter().flat_map(|thread| thread.list.blocks).collect();
        // The same code may be mapped at different times.
        all.iter_mut().for_each(|block| block.since = 0);
        all.sort_unstable();
        all.dedup_by(|next, before| {
            // With equal counts, only the code decides.
            let next_counts = std::mem::replace(&mut next.counts, before.counts);
            let same = *next == *before;
            next.counts = next_counts;
            if same {
                before.counts.add(&next_counts);
            }
            same
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::{AnyAnalysis, AnyPartial, Place};

    use super::*;
    use crate::blocks::{Blocks, BlocksReport};

    /// A partial with one block that ends with a branch.
    fn partial() -> ExecutedBlocks {
        let at = Arrival { address: 1, function: FunctionId { module: 1, index: 0 }, place: Place::Entry };
        let code = Code {
            offset: 1,
            since: 0,
            lengths: &[1],
            bytes: &[0x90],
            isa: hodo_model::Isa::X86_64,
            end: End::Conditional,
            target: 9,
        };
        let mut partial = ExecutedBlocks::unknown();
        partial.fold(FlowEvent::Run { at, instructions: 1, code });
        partial
    }

    fn survives_a_part_file(partial: ExecutedBlocks) -> bool {
        let analysis: &dyn AnyAnalysis = &Blocks { report: BlocksReport::Blocks };
        let partial: AnyPartial = Box::new(partial);
        analysis.unpack(&analysis.pack(&partial)).is_some()
    }

    #[test]
    fn a_partial_with_wrong_indices_is_not_sound() {
        assert!(survives_a_part_file(partial()));
        let changes: [fn(&mut ExecutedBlocks); 3] = [
            |partial| partial.last = LastBlock::Block(1),
            |partial| partial.branch = Some(PendingBranch { block: 1, target: 0, next: 0 }),
            |partial| partial.list.blocks.push(partial.list.blocks[0].clone()),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut partial = partial();
            change(&mut partial);
            assert!(!survives_a_part_file(partial), "{index}");
        }
    }
}
