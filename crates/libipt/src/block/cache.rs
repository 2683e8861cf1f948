//! The cache of a section's blocks: for an offset, how far it is to the next instruction at which something must be decided.

use std::sync::{Mutex, PoisonError};

use crate::event::Mode;

/// What must be decided at the end of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing: another entry goes on from there.
    Again,
    /// The outcome of a conditional branch.
    Conditional,
    /// The target of an indirect jump or a far transfer.
    Indirect,
    /// The target of an indirect call.
    IndirectCall,
    /// The target of a return.
    Return,
    /// The instruction must be decoded.
    Decode,
}

const DECISIONS: [Decision; 6] = [
    Decision::Again,
    Decision::Conditional,
    Decision::Indirect,
    Decision::IndirectCall,
    Decision::Return,
    Decision::Decode,
];

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// From the entry's offset to the decision, in bytes.
    pub(crate) displacement: i16,
    /// Instructions up to the decision, and the one there.
    pub(crate) instructions: u8,
    pub(crate) mode: Mode,
    pub(crate) decision: Decision,
    /// Size of the instruction at the decision; 0 if it does not fit in three bits, so that it must be decoded.
    pub(crate) size: u8,
}

impl Entry {
    /// Creates the entry of an instruction that decides.
    pub(crate) fn decision(mode: Mode, decision: Decision, size: u8) -> Entry {
        let size = if size < 8 { size } else { 0 };
        Entry { displacement: 0, instructions: 1, mode, decision, size }
    }

    /// Creates the entry of an instruction after which another entry goes on, or that must be decoded if that one is too far.
    pub(crate) fn trampoline(mode: Mode, distance: i64) -> Entry {
        match i16::try_from(distance) {
            Ok(displacement) => Entry { displacement, ..Entry::decision(mode, Decision::Again, 0) },
            Err(_) => Entry::decision(mode, Decision::Decode, 0),
        }
    }

    fn pack(self) -> u32 {
        u32::from(self.displacement as u16)
            | u32::from(self.instructions) << 16
            | (self.mode as u32) << 24
            | (self.decision as u32) << 26
            | u32::from(self.size) << 29
    }

    /// A mode of 0 marks what is not cached.
    fn unpack(word: u32) -> Option<Entry> {
        let mode = match word >> 24 & 3 {
            1 => Mode::Bits16,
            2 => Mode::Bits32,
            3 => Mode::Bits64,
            _ => return None,
        };
        Some(Entry {
            displacement: word as i16,
            instructions: (word >> 16) as u8,
            mode,
            decision: *DECISIONS.get((word >> 26 & 7) as usize)?,
            size: (word >> 29) as u8,
        })
    }
}

/// The entries of a section, four bytes for each of its own. The allocator gives zeroed pages as they are used.
#[derive(Debug)]
pub(crate) struct BlockCache(Mutex<Vec<u32>>);

impl BlockCache {
    /// Creates the cache of a section of this many bytes. What lies beyond the address space is not cached.
    pub(crate) fn new(size: u64) -> BlockCache {
        BlockCache(Mutex::new(vec![0; usize::try_from(size).unwrap_or(0)]))
    }

    pub(crate) fn get(&self, offset: u64) -> Option<Entry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Entry::unpack(*entries.get(usize::try_from(offset).ok()?)?)
    }

    pub(crate) fn set(&self, offset: u64, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = usize::try_from(offset).ok().and_then(|offset| entries.get_mut(offset)) {
            *word = entry.pack();
        }
    }
}
