//! Blocks of one address space, built when first met.

use std::{
    hash::BuildHasher,
    mem,
    sync::atomic::{AtomicU64, Ordering},
};

use hashbrown::HashTable;
use hodo_model::Place;
use iced_x86::{Code, FlowControl, Instruction, Register};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::{
    AddressSpace, Bits, Block, BlockId, CompactBlock, EdgeKind, Origin, Provenance, Snapshot, Terminator,
    block::UNMET, native::Native, snapshot::Reader,
};

/// A block that grows longer is cut, so that one look-up stays cheap.
const LONGEST_BLOCK: u32 = 1 << 10;

/// No outcomes of branches for [`Graph::pass_branches`].
pub const NO_OUTCOMES: u64 = 1 << 63;

/// What is to be known of a block's code beside the code itself; one value a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Label {
    /// Index of the module, in the caller's list.
    pub module: u32,
    /// Index of the function in the module.
    pub function: u32,
    /// Where in the function the block begins.
    pub place: Place,
}

/// Tells which function an address belongs to.
pub trait Labels {
    /// The label of the code at `origin`, and how many bytes from there on belong to the same function (at least 1),
    /// which begins with none of them but the first.
    fn label(&self, origin: Origin) -> (Label, u64);

    /// Whether a module is the file of this name.
    fn is_file(&self, _module: u32, _name: &str) -> bool {
        false
    }
}

/// Code that can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing is mapped there.
    Unmapped(u64),
    /// A module is mapped there, whose bytes are not known.
    MissingBytes(u64, Origin),
    /// The bytes are no instruction.
    Invalid(u64),
}

impl Unreadable {
    /// The address of the instruction that could not be read.
    pub fn address(&self) -> u64 {
        match *self {
            Unreadable::Unmapped(address)
            | Unreadable::MissingBytes(address, _)
            | Unreadable::Invalid(address) => address,
        }
    }
}

/// A label that was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Labelled {
    from: Origin,
    /// How many bytes from there on belong to its function.
    length: u64,
    label: Label,
}

/// The blocks of one address space in one execution mode.
#[derive(Debug)]
pub struct Graph<'a, L> {
    number: u64,
    space: &'a AddressSpace<'a>,
    labels: &'a L,
    bits: Bits,
    reader: Reader<'a>,
    labelled: Labelled,
    blocks: Vec<Block>,
    /// What it takes to pass over each block, and where it starts.
    hops: Vec<CompactBlock>,
    starts: Vec<u64>,
    /// The functions that hops name by their numbers: modules, and functions in them.
    functions: Vec<(u32, u32)>,
    /// A part of each, the one that was asked for that begins first.
    parts: Vec<Labelled>,
    numbers: FxHashMap<(u32, u32), u32>,
    /// Where the code of each block comes from.
    provenances: Vec<Provenance>,
    /// Lengths of the instructions of all blocks.
    lengths: Vec<u8>,
    /// Their bytes, and where those of each block begin.
    bytes: Vec<u8>,
    bytes_of: Vec<usize>,
    /// The block at each address that was asked for last; others are found through `versions`. By what `starts` says.
    index: HashTable<BlockId>,
    /// Where there are several blocks at one address: all of them, by the ticks at which they begin.
    versions: FxHashMap<u64, Vec<BlockId>>,
    pub(crate) native: Native,
}

impl<'a, L: Labels> Graph<'a, L> {
    /// A graph without blocks.
    pub fn new(space: &'a AddressSpace<'a>, labels: &'a L, bits: Bits) -> Graph<'a, L> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Graph {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            space,
            labels,
            bits,
            reader: Reader::default(),
            labelled: Labelled::default(),
            blocks: Vec::new(),
            hops: Vec::new(),
            starts: Vec::new(),
            functions: Vec::new(),
            parts: Vec::new(),
            numbers: FxHashMap::default(),
            provenances: Vec::new(),
            lengths: Vec::new(),
            bytes: Vec::new(),
            bytes_of: Vec::new(),
            index: HashTable::new(),
            versions: FxHashMap::default(),
            native: Native::default(),
        }
    }

    /// A number that no other graph of this process has, and which is not 0.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A block by its id, which must be one of this graph.
    #[inline]
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// What it takes to pass over a block.
    #[inline]
    pub fn hop(&self, id: BlockId) -> CompactBlock {
        self.hops[id.0 as usize]
    }

    /// Passes branches from block to block of one function, as far as blocks were met: where that leads, and how many
    /// instructions that were. Of `outcomes` the highest bit is next, and the lowest that is set follows the last; what
    /// is left of them remains there.
    #[inline]
    pub fn pass_branches(&self, mut id: BlockId, function: u32, outcomes: &mut u64) -> (BlockId, u32) {
        let (mut bits, mut instructions) = (*outcomes, 0);
        while bits != NO_OUTCOMES {
            let hop = &self.hops[id.0 as usize];
            let next = hop.next[(bits >> 63) as usize];
            if hop.pass != EdgeKind::Branch || hop.function != function || next == UNMET {
                break;
            }
            instructions += u32::from(hop.instructions);
            (id, bits) = (next, bits << 1);
        }
        *outcomes = bits;
        (id, instructions)
    }

    /// Where a block starts; as in the block, which takes a line of the cache more.
    #[inline]
    pub fn start(&self, id: BlockId) -> u64 {
        self.starts[id.0 as usize]
    }

    /// The function that has a number: its module, and its index there.
    #[inline]
    pub fn function(&self, number: u32) -> (u32, u32) {
        self.functions[number as usize]
    }

    /// Where a call at the end of a block returns to; likewise.
    #[inline]
    pub fn return_address(&self, id: BlockId) -> u64 {
        self.hop(id).next(false).map_or_else(|| self.block(id).end, |next| self.start(next))
    }

    /// Where the code of a block comes from.
    #[inline]
    pub fn provenance(&self, id: BlockId) -> &Provenance {
        &self.provenances[id.0 as usize]
    }

    /// Lengths of a block's instructions, in bytes.
    #[inline]
    pub fn lengths(&self, block: &Block) -> &[u8] {
        &self.lengths[block.lengths as usize..][..block.instructions as usize]
    }

    /// The bytes of a block's instructions.
    #[inline]
    pub fn bytes(&self, id: BlockId) -> &[u8] {
        let begin = self.bytes_of.get(id.0 as usize).copied().unwrap_or_default();
        let end = self.bytes_of.get(id.0 as usize + 1).copied().unwrap_or(self.bytes.len());
        self.bytes.get(begin..end).unwrap_or_default()
    }

    /// The code that the blocks are of, as it is at a tick.
    #[inline]
    pub fn snapshot(&self, at: u64) -> Snapshot<'a> {
        Snapshot { space: self.space, bits: self.bits, at }
    }

    /// Where the byte at `address` comes from at tick `at`.
    pub fn origin(&self, address: u64, at: u64) -> Option<Origin> {
        self.space.at(address, at).map(|(content, _)| content.origin)
    }

    /// What tells the functions and files of the code.
    pub fn labels(&self) -> &'a L {
        self.labels
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block was met yet.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block that begins at `address` at tick `at`.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn at(&mut self, address: u64, at: u64) -> Result<BlockId, Unreadable> {
        let found = self.index.find(hash(address), |&id| self.start(id) == address);
        match found {
            Some(&id) if self.holds(id, at) => Ok(id),
            _ => self.build(address, at),
        }
    }

    /// The block at the direct target of `id` if its branch is taken, else the one after its end.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn follow(&mut self, id: BlockId, taken: bool, at: u64) -> Result<BlockId, Unreadable> {
        match self.hop(id).next(taken) {
            Some(next) if self.holds(next, at) => Ok(next),
            _ => self.meet(id, taken, at),
        }
    }

    #[inline(never)]
    fn meet(&mut self, id: BlockId, taken: bool, at: u64) -> Result<BlockId, Unreadable> {
        let block = self.block(id);
        let (terminator, to) = (block.terminator, if taken { block.target } else { block.end });
        // Most branches lead to where the function goes on.
        self.labelled = self.parts[self.hops[id.0 as usize].function as usize];
        let met = self.at(to, at)?;
        let next = &mut self.hops[id.0 as usize].next;
        match terminator {
            Terminator::None | Terminator::Jump => *next = [met; 2],
            _ => next[usize::from(taken)] = met,
        }
        Ok(met)
    }

    /// The block at the address that the indirect branch at the end of `id` goes to.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn lead(&mut self, id: BlockId, to: u64, at: u64) -> Result<BlockId, Unreadable> {
        // The last one is remembered in the place of a direct target.
        match self.hop(id).next(true) {
            Some(last) if self.is_at(last, to, at) => Ok(last),
            _ => {
                let met = self.at(to, at)?;
                self.hops[id.0 as usize].next[1] = met;
                Ok(met)
            }
        }
    }

    /// Whether an id is that of a block of this graph which begins at `address` at tick `at`.
    #[inline]
    pub fn is_at(&self, id: BlockId, address: u64, at: u64) -> bool {
        self.starts.get(id.0 as usize) == Some(&address) && self.holds(id, at)
    }

    /// Whether the code of a block is there at tick `at`.
    #[inline]
    pub fn holds(&self, id: BlockId, at: u64) -> bool {
        !self.is_versioned() || self.provenance(id).valid.contains(&at)
    }

    /// Whether the code of some block is there at some ticks only.
    #[inline]
    pub fn is_versioned(&self) -> bool {
        self.space.is_versioned()
    }

    #[inline(never)]
    fn build(&mut self, address: u64, at: u64) -> Result<BlockId, Unreadable> {
        if let Some(id) = self.version(address, at) {
            self.remember(address, id);
            return Ok(id);
        }
        let (block, provenance) = self.decode_block(address, at)?;
        let id = BlockId(u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks"));
        let start = provenance.valid.start;
        let function = (block.label.module, block.label.function);
        let number = *self.numbers.entry(function).or_insert(self.functions.len() as u32);
        if number as usize == self.functions.len() {
            self.functions.push(function);
            self.parts.push(self.labelled);
        }
        let (asked, part) = (&self.labelled, &mut self.parts[number as usize]);
        if (asked.label.module, asked.label.function) == function && asked.from.offset < part.from.offset {
            *part = *asked;
        }
        self.bytes_of.push(self.bytes.len());
        self.snapshot(at).append_bytes(block.start..block.end, &mut self.bytes);
        self.hops.push(CompactBlock::over(&block, provenance.is_lasting(), number));
        self.starts.push(block.start);
        self.blocks.push(block);
        self.provenances.push(provenance);
        if let Some(before) = self.remember(address, id) {
            let versions = self.versions.entry(address).or_insert_with(|| vec![before]);
            let place = versions.partition_point(|&id| self.provenances[id.0 as usize].valid.start <= start);
            versions.insert(place, id);
        }
        Ok(id)
    }

    /// A block is the one that was asked for last at its address: which that was before.
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

    /// A block that was met at `address` and is the one at a tick. What is valid of blocks at one
    /// address does not overlap.
    fn version(&self, address: u64, at: u64) -> Option<BlockId> {
        let versions = self.versions.get(&address)?;
        let after = versions.partition_point(|&id| self.provenance(id).valid.start <= at);
        versions[..after].last().copied().filter(|&id| self.provenance(id).valid.contains(&at))
    }

    fn decode_block(&mut self, start: u64, at: u64) -> Result<(Block, Provenance), Unreadable> {
        let mut block = Block {
            start,
            end: start,
            instructions: 0,
            terminator: Terminator::None,
            target: start,
            writes_cr3: false,
            label: Label::default(),
            lengths: self.lengths.len() as u32,
        };
        let mut from = Provenance { origin: Origin { module: 0, offset: start }, valid: 0..u64::MAX };
        // Up to where the label holds, and the place of the code where it was asked for.
        let mut boundary = start;
        let mut labelled = (start, Origin { module: u32::MAX, offset: 0 });
        while block.instructions < LONGEST_BLOCK && block.terminator == Terminator::None {
            match self.reader.read(self.snapshot(at), block.end) {
                Ok((origin, valid)) => {
                    let (at, place) = labelled;
                    let goes_on =
                        origin == Origin { offset: place.offset.wrapping_add(block.end - at), ..place };
                    if !goes_on || block.end >= boundary {
                        labelled = (block.end, origin);
                        if !self.enter_function(&mut block, &mut from, origin, &mut boundary) {
                            break;
                        }
                    }
                    from.valid = from.valid.start.max(valid.start)..from.valid.end.min(valid.end);
                    self.append(&mut block);
                }
                Err(unreadable) if block.instructions == 0 => return Err(unreadable),
                Err(_) => break,
            }
        }
        block.target = match block.terminator {
            Terminator::Conditional | Terminator::Jump | Terminator::Call => {
                self.reader.instruction.near_branch_target()
            }
            _ => block.end,
        };
        Ok((block, from))
    }

    /// At a function's boundary: labels a block that begins there; `false` where another function
    /// begins and the block has to end.
    fn enter_function(
        &mut self,
        block: &mut Block,
        from: &mut Provenance,
        origin: Origin,
        boundary: &mut u64,
    ) -> bool {
        let (label, length) = self.label(origin);
        *boundary = block.end.saturating_add(length.max(1));
        if block.instructions == 0 {
            (block.label, from.origin) = (label, origin);
            return true;
        }
        (label.module, label.function) == (block.label.module, block.label.function)
    }

    /// As [`Labels::label`], most often of the function that it was asked for last.
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

    /// Adds the instruction that was read last.
    fn append(&mut self, block: &mut Block) {
        let instruction = &self.reader.instruction;
        self.lengths.push(instruction.len() as u8);
        block.instructions += 1;
        block.end = instruction.next_ip();
        block.terminator = terminator(instruction);
        block.writes_cr3 |= writes_cr3(instruction);
    }
}

fn hash(address: u64) -> u64 {
    FxBuildHasher.hash_one(address)
}

/// What an instruction is to Intel PT.
fn terminator(instruction: &Instruction) -> Terminator {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => Terminator::None,
        FlowControl::ConditionalBranch => Terminator::Conditional,
        FlowControl::UnconditionalBranch if instruction.is_jmp_far() => Terminator::Far,
        FlowControl::UnconditionalBranch => Terminator::Jump,
        FlowControl::IndirectBranch if instruction.is_jmp_far_indirect() => Terminator::Far,
        FlowControl::IndirectBranch => Terminator::IndirectJump,
        FlowControl::Call if instruction.is_call_near() => Terminator::Call,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Terminator::IndirectCall,
        FlowControl::Return if is_near_return(instruction.code()) => Terminator::Return,
        // SYSCALL and SYSENTER are calls, SYSRET, SYSEXIT and IRET returns to the disassembler.
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return | FlowControl::Interrupt => {
            Terminator::Far
        }
        FlowControl::Exception => Terminator::Far,
    }
}

/// Whether an instruction is MOV to CR3.
pub fn writes_cr3(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Mov_cr_r32 | Code::Mov_cr_r64)
        && instruction.op0_register() == Register::CR3
}

fn is_near_return(code: Code) -> bool {
    matches!(
        code,
        Code::Retnw | Code::Retnd | Code::Retnq | Code::Retnw_imm16 | Code::Retnd_imm16 | Code::Retnq_imm16
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Content;

    /// The function of each instruction, of two bytes; one begins where its first instruction is.
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
        /// In whatever order blocks are met, and whichever functions lie inside of others.
        #[test]
        fn blocks_are_labelled_as_their_first_bytes_are(
            functions in prop::collection::vec((0u32..4, 1usize..8), INSTRUCTIONS),
            code in prop::collection::vec((any::<bool>(), 0..INSTRUCTIONS as u64), INSTRUCTIONS),
            ways in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let functions = functions.iter().flat_map(|&(function, length)| vec![function; length]);
            let labels = Functions(functions.take(INSTRUCTIONS).collect());
            // Branches, and instructions that are none.
            let instruction = |(at, &(branches, target)): (u64, &(bool, u64))| match branches {
                true => [0x75, (2 * target).wrapping_sub(2 * at + 2) as u8],
                false => [0x66, 0x90],
            };
            let bytes: Vec<u8> = (0..).zip(&code).flat_map(instruction).collect();
            let mut space = AddressSpace::new();
            let content = Content { bytes: &bytes, origin: Origin { module: 0, offset: 0 } };
            space.map(START..START + bytes.len() as u64, content, 0);
            let mut graph = Graph::new(&space, &labels, Bits::B64);
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
