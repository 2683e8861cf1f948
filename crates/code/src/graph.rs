//! Blocks of one address space, built on first use.

use std::{
    hash::BuildHasher,
    mem,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use hashbrown::HashTable;
use hodo_isa::{Isa, Step, Terminator};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::{
    AddressSpace, Block, BlockBytes, BlockId, CompactBlock, EdgeKind, FunctionId, Label, Labels, Origin,
    Place, Provenance, Snapshot,
    block::{NOT_SEEN, NOT_TAKEN, TAKEN},
    native::Native,
    padding,
    snapshot::{ReadStep, Reader},
};

/// Maximum instructions of a block: longer blocks are split, so that one look-up stays cheap.
const LONGEST_BLOCK: u32 = 1 << 10;

/// An empty set of branch outcomes for [`Graph::pass_branches`].
pub const NO_OUTCOMES: u64 = 1 << 63;

/// Why code can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing is mapped at the address.
    Unmapped(u64),
    /// A module is mapped at the address, but its bytes are unknown.
    MissingBytes(u64, Origin),
    /// The bytes are no valid instruction.
    Invalid(u64),
}

impl Unreadable {
    /// Returns the address of the unreadable instruction.
    pub fn address(&self) -> u64 {
        match *self {
            Unreadable::Unmapped(address)
            | Unreadable::MissingBytes(address, _)
            | Unreadable::Invalid(address) => address,
        }
    }
}

/// The result of a label look-up.
#[derive(Clone, Copy, Debug, Default)]
struct Labelled {
    from: Origin,
    /// Number of bytes from that origin on that belong to the function.
    length: u64,
    label: Label,
}

/// The blocks of one address space in one instruction set.
#[derive(Debug)]
pub struct Graph<'a, L> {
    number: u64,
    space: &'a AddressSpace<'a>,
    labels: &'a L,
    isa: Isa,
    reader: Reader<'a>,
    labelled: Labelled,
    blocks: Vec<Block>,
    /// The compact form of each block, and its start address.
    compact_blocks: Vec<CompactBlock>,
    starts: Vec<u64>,
    /// Functions by function number.
    functions: Vec<FunctionId>,
    /// The label of each function at the lowest of its offsets at which a look-up began.
    lowest_labels: Vec<Labelled>,
    numbers: FxHashMap<FunctionId, u32>,
    /// Source and validity of each block's code.
    provenances: Vec<Provenance>,
    /// Instruction lengths of all blocks.
    lengths: Vec<u8>,
    /// The bytes of the instructions of all blocks.
    bytes: BlockBytes,
    /// The block used last at each address, hashed by its address in `starts`; `versions` holds the others.
    index: HashTable<BlockId>,
    /// All blocks of an address that has several, ordered by the first tick of their validity.
    versions: FxHashMap<u64, Vec<BlockId>>,
    pub(crate) native: Native,
}

impl<'a, L: Labels> Graph<'a, L> {
    /// Creates a graph without blocks.
    pub fn new(space: &'a AddressSpace<'a>, labels: &'a L, isa: Isa) -> Graph<'a, L> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Graph {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            space,
            labels,
            isa,
            reader: Reader::default(),
            labelled: Labelled::default(),
            blocks: Vec::new(),
            compact_blocks: Vec::new(),
            starts: Vec::new(),
            functions: Vec::new(),
            lowest_labels: Vec::new(),
            numbers: FxHashMap::default(),
            provenances: Vec::new(),
            lengths: Vec::new(),
            bytes: BlockBytes::default(),
            index: HashTable::new(),
            versions: FxHashMap::default(),
            native: Native::default(),
        }
    }

    /// Returns a nonzero number that is unique among the graphs of this process.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns a block by its id, which must be from this graph.
    #[inline]
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// Returns the compact form of a block.
    #[inline]
    pub fn compact(&self, id: BlockId) -> CompactBlock {
        self.compact_blocks[id.0 as usize]
    }

    /// Follows conditional branches within one function while the successors are known. Returns the block reached and
    /// the number of instructions passed. The highest bit of `outcomes` is the next outcome, and the lowest set bit
    /// marks the end; the outcomes left remain there.
    #[inline]
    pub fn pass_branches(&self, mut id: BlockId, function: u32, outcomes: &mut u64) -> (BlockId, u32) {
        let (mut bits, mut instructions) = (*outcomes, 0);
        while bits != NO_OUTCOMES {
            let compact = &self.compact_blocks[id.0 as usize];
            let next = compact.next[(bits >> 63) as usize];
            if compact.edge != EdgeKind::Branch || compact.function != function || next == NOT_SEEN {
                break;
            }
            instructions += u32::from(compact.instructions);
            (id, bits) = (next, bits << 1);
        }
        *outcomes = bits;
        (id, instructions)
    }

    /// Returns the start address of a block. It is the same as in the block, but saves loading another cache line.
    #[inline]
    pub fn start(&self, id: BlockId) -> u64 {
        self.starts[id.0 as usize]
    }

    /// Returns the function with a number.
    #[inline]
    pub fn function(&self, number: u32) -> FunctionId {
        self.functions[number as usize]
    }

    /// Returns the return address of the call at the end of a block, if possible without loading the block.
    #[inline]
    pub fn return_address(&self, id: BlockId) -> u64 {
        self.compact(id).next(NOT_TAKEN).map_or_else(|| self.block(id).end, |next| self.start(next))
    }

    /// Returns source and validity of a block's code.
    #[inline]
    pub fn provenance(&self, id: BlockId) -> &Provenance {
        &self.provenances[id.0 as usize]
    }

    /// Returns source and validity of the code of each block, by id.
    #[inline]
    pub fn provenances(&self) -> &[Provenance] {
        &self.provenances
    }

    /// Returns the lengths of a block's instructions, in bytes.
    #[inline]
    pub fn lengths(&self, block: &Block) -> &[u8] {
        &self.lengths[block.first_length as usize..][..block.instructions as usize]
    }

    /// The bytes of all blocks.
    #[inline]
    pub fn bytes(&self) -> &BlockBytes {
        &self.bytes
    }

    /// Returns the code of the blocks as it is at `tick`.
    #[inline]
    pub fn snapshot(&self, tick: u64) -> Snapshot<'a> {
        Snapshot { space: self.space, isa: self.isa, tick }
    }

    /// Returns where the byte at `address` comes from at `tick`.
    pub fn origin(&self, address: u64, tick: u64) -> Option<Origin> {
        self.space.at(address, tick).map(|(content, _)| content.origin)
    }

    /// Returns what labels the code.
    pub fn labels(&self) -> &'a L {
        self.labels
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether the graph has no blocks yet.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the block that begins at `address` at `tick`.
    ///
    /// # Errors
    /// Returns [`Unreadable`] if there is no readable code.
    #[inline]
    pub fn at(&mut self, address: u64, tick: u64) -> Result<BlockId, Unreadable> {
        let found = self.index.find(hash(address), |&id| self.start(id) == address);
        match found {
            Some(&id) if self.holds(id, tick) => Ok(id),
            _ => self.build(address, tick),
        }
    }

    /// Returns the block at the direct target of `id` if its branch is taken, else the one after its end.
    ///
    /// # Errors
    /// As for [`at`](Graph::at).
    #[inline]
    pub fn follow(&mut self, id: BlockId, taken: bool, tick: u64) -> Result<BlockId, Unreadable> {
        match self.compact(id).next(taken) {
            Some(next) if self.holds(next, tick) => Ok(next),
            _ => self.find_successor(id, taken, tick),
        }
    }

    /// Looks up a successor that the compact form of `id` lacks, or that is not valid at `tick`, and keeps it there.
    #[inline(never)]
    fn find_successor(&mut self, id: BlockId, taken: bool, tick: u64) -> Result<BlockId, Unreadable> {
        let block = self.block(id);
        let (terminator, to) = (block.terminator, if taken { block.target } else { block.end });
        // Most branches stay in their function: a look-up that starts from its known part is cheap.
        self.labelled = self.lowest_labels[self.compact_blocks[id.0 as usize].function as usize];
        let successor = self.at(to, tick)?;
        let next = &mut self.compact_blocks[id.0 as usize].next;
        match terminator {
            Terminator::None | Terminator::Jump => *next = [successor; 2],
            _ => next[usize::from(taken)] = successor,
        }
        Ok(successor)
    }

    /// Returns the block at `to`, the target of the indirect branch at the end of `id`.
    ///
    /// # Errors
    /// As for [`at`](Graph::at).
    #[inline]
    pub fn indirect_target(&mut self, id: BlockId, to: u64, tick: u64) -> Result<BlockId, Unreadable> {
        // The slot of the direct target caches the last indirect one.
        match self.compact(id).next(TAKEN) {
            Some(last) if self.is_at(last, to, tick) => Ok(last),
            _ => {
                let target = self.at(to, tick)?;
                self.compact_blocks[id.0 as usize].next[usize::from(TAKEN)] = target;
                Ok(target)
            }
        }
    }

    /// Returns whether `id` is a block of this graph that begins at `address` at `tick`.
    #[inline]
    pub fn is_at(&self, id: BlockId, address: u64, tick: u64) -> bool {
        self.starts.get(id.0 as usize) == Some(&address) && self.holds(id, tick)
    }

    /// Returns whether the code of a block is valid at `tick`.
    #[inline]
    pub fn holds(&self, id: BlockId, tick: u64) -> bool {
        !self.is_versioned() || self.provenance(id).valid.contains(&tick)
    }

    /// Returns whether some code changes over time.
    #[inline]
    pub fn is_versioned(&self) -> bool {
        self.space.is_versioned()
    }

    #[inline(never)]
    fn build(&mut self, address: u64, tick: u64) -> Result<BlockId, Unreadable> {
        if let Some(id) = self.version(address, tick) {
            self.remember(address, id);
            return Ok(id);
        }
        let (block, provenance) = self.decode_block(address, tick)?;
        let code = self.snapshot(tick);
        let id = BlockId(u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks"));
        let start = provenance.valid.start;
        let function = block.label.function_id();
        let number = *self.numbers.entry(function).or_insert(self.functions.len() as u32);
        if number as usize == self.functions.len() {
            self.functions.push(function);
            self.lowest_labels.push(self.labelled);
        }
        let (asked, lowest) = (&self.labelled, &mut self.lowest_labels[number as usize]);
        if asked.label.function_id() == function && asked.from.offset < lowest.from.offset {
            *lowest = *asked;
        }
        self.bytes.push(|to| self.reader.append_bytes(code, block.start..block.end, to));
        self.compact_blocks.push(CompactBlock::of(&block, provenance.is_lasting(), number));
        self.starts.push(block.start);
        self.blocks.push(block);
        self.provenances.push(provenance);
        if let Some(before) = self.remember(address, id) {
            let versions = self.versions.entry(address).or_insert_with(|| vec![before]);
            let index = versions.partition_point(|&id| self.provenances[id.0 as usize].valid.start <= start);
            versions.insert(index, id);
        }
        Ok(id)
    }

    /// Makes `id` the block used last at its address, and returns the previous one.
    fn remember(&mut self, address: u64, id: BlockId) -> Option<BlockId> {
        let start = |&id: &BlockId| self.starts[id.0 as usize];
        match self.index.find_mut(hash(address), |id| start(id) == address) {
            Some(last) => Some(mem::replace(last, id)),
            None => {
                self.index.insert_unique(hash(address), id, |id| hash(start(id)));
                None
            }
        }
    }

    /// Returns the known block at `address` that is valid at `tick`. The validities of blocks at one address do
    /// not overlap.
    fn version(&self, address: u64, tick: u64) -> Option<BlockId> {
        let versions = self.versions.get(&address)?;
        let after = versions.partition_point(|&id| self.provenance(id).valid.start <= tick);
        versions[..after].last().copied().filter(|&id| self.provenance(id).valid.contains(&tick))
    }

    fn decode_block(&mut self, start: u64, tick: u64) -> Result<(Block, Provenance), Unreadable> {
        let mut block = Block {
            start,
            end: start,
            instructions: 0,
            terminator: Terminator::None,
            target: start,
            writes_cr3: false,
            is_over_padding: false,
            label: Label::default(),
            first_length: self.lengths.len() as u32,
        };
        let mut provenance = Provenance { origin: Origin { module: 0, offset: start }, valid: 0..u64::MAX };
        // End of the label's range; address and origin of the last label look-up.
        let mut boundary = start;
        let mut labelled = (start, Origin { module: u32::MAX, offset: 0 });
        while block.instructions < LONGEST_BLOCK && block.terminator == Terminator::None {
            match self.reader.read(self.snapshot(tick), block.end) {
                Ok(ReadStep { step, origin, valid }) => {
                    let (address, first) = labelled;
                    let offset = first.offset.wrapping_add(block.end - address);
                    let is_contiguous = origin == Origin { offset, ..first };
                    if !is_contiguous || block.end >= boundary {
                        labelled = (block.end, origin);
                        if !self.enter_function(&mut block, &mut provenance, origin, &mut boundary) {
                            break;
                        }
                    }
                    let unchanged = &mut provenance.valid;
                    *unchanged = unchanged.start.max(valid.start)..unchanged.end.min(valid.end);
                    self.append(&mut block, step);
                }
                Err(unreadable) if block.instructions == 0 => return Err(unreadable),
                Err(_) => break,
            }
        }
        if block.terminator == Terminator::Call {
            block.is_over_padding = self.skips_padding(&block, tick, &mut provenance.valid);
        }
        Ok((block, provenance))
    }

    /// Returns whether a direct call goes to its own function, over [padding that never returns](padding).
    fn skips_padding(&mut self, block: &Block, tick: u64, valid: &mut Range<u64>) -> bool {
        if !padding::never_returns(self.snapshot(tick), block.end..block.target, valid) {
            return false;
        }
        let known = self.labelled;
        let label = self.origin(block.target, tick).map(|origin| self.label(origin).0);
        self.labelled = known;
        label.is_some_and(|label| label.function_id() == block.label.function_id())
    }

    /// Labels a block that begins at a function's boundary. Returns `false` if another function begins, so that the
    /// block has to end.
    fn enter_function(
        &mut self,
        block: &mut Block,
        provenance: &mut Provenance,
        origin: Origin,
        boundary: &mut u64,
    ) -> bool {
        let (label, length) = self.label(origin);
        *boundary = block.end.saturating_add(length.max(1));
        if block.instructions == 0 {
            (block.label, provenance.origin) = (label, origin);
            return true;
        }
        label.function_id() == block.label.function_id()
    }

    /// As [`Labels::label`], but answers from the last look-up if the function is the same, as it mostly is.
    fn label(&mut self, origin: Origin) -> (Label, u64) {
        let Labelled { from, length, label } = self.labelled;
        let behind = origin.offset.wrapping_sub(from.offset);
        if origin.module == from.module && (1..length).contains(&behind) {
            let place = match label.place {
                Place::Entry | Place::Middle => Place::Middle,
                Place::Unknown => Place::Unknown,
            };
            return (Label { place, ..label }, length - behind);
        }
        let (label, length) = self.labels.label(origin);
        self.labelled = Labelled { from: origin, length, label };
        (label, length)
    }

    /// Appends an instruction to the block.
    fn append(&mut self, block: &mut Block, step: Step) {
        self.lengths.push(step.length);
        block.instructions += 1;
        block.end = block.end.wrapping_add(step.length.into());
        (block.terminator, block.target) = (step.terminator, step.target);
        block.writes_cr3 |= step.writes_cr3;
    }
}

fn hash(address: u64) -> u64 {
    FxBuildHasher.hash_one(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Content;

    /// The function of each two-byte instruction; a function's entry is its first instruction.
    #[derive(Debug)]
    struct Functions(Vec<u32>);

    impl Labels for Functions {
        fn label(&self, origin: Origin) -> (Label, u64) {
            let from = origin.offset as usize / 2;
            let function = self.0[from];
            let length = self.0[from..].iter().take_while(|&&other| other == function).count();
            let is_first = self.0.iter().position(|&other| other == function) == Some(from);
            let place = if is_first { Place::Entry } else { Place::Middle };
            (Label { module: 0, function, place }, 2 * length as u64)
        }
    }

    const START: u64 = 0x1000;
    const INSTRUCTIONS: usize = 48;

    proptest! {
        /// Holds for any order of building blocks, and for functions that lie inside others.
        #[test]
        fn blocks_are_labelled_as_their_first_bytes_are(
            functions in prop::collection::vec((0u32..4, 1usize..8), INSTRUCTIONS),
            code in prop::collection::vec((any::<bool>(), 0..INSTRUCTIONS as u64), INSTRUCTIONS),
            ways in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let functions = functions.iter().flat_map(|&(function, length)| vec![function; length]);
            let labels = Functions(functions.take(INSTRUCTIONS).collect());
            // Conditional branches, and instructions that do not branch.
            let instruction = |(index, &(branches, target)): (u64, &(bool, u64))| match branches {
                true => [0x75, (2 * target).wrapping_sub(2 * index + 2) as u8],
                false => [0x66, 0x90],
            };
            let bytes: Vec<u8> = (0..).zip(&code).flat_map(instruction).collect();
            let mut space = AddressSpace::new();
            let content = Content { bytes: &bytes, origin: Origin { module: 0, offset: 0 } };
            space.map(START..START + bytes.len() as u64, content, 0);
            let mut graph = Graph::new(&space, &labels, Isa::X86_64);
            let mut id = graph.at(START, 0).unwrap();
            for taken in ways {
                let taken = taken && graph.block(id).terminator == Terminator::Conditional;
                match graph.follow(id, taken, 0) {
                    Ok(next) => id = next,
                    Err(_) => break,
                }
                let block = graph.block(id);
                let (label, _) = labels.label(Origin { module: 0, offset: block.start - START });
                prop_assert_eq!(block.label, label);
                prop_assert_eq!(graph.at(block.start, 0), Ok(id));
            }
        }
    }
}
