//! The process's tables: blocks, their exits, links between them, and where they are found. The lock guards all of them.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use crate::{layout::HEAP, raw::Table, sys};

/// A translated superblock: one entry, many exits.
#[derive(Clone, Copy)]
pub struct Block {
    /// Where it begins in the program.
    pub pc: u64,
    /// Where its translation begins.
    pub cache: u64,
    /// The landing that checks the target of an indirect branch; 0 without one.
    pub prologue: u64,
    /// The length of its translation.
    pub cache_length: u32,
    /// The number of its first exit.
    pub first_exit: u32,
    /// Its steps in [`STEPS`].
    pub steps: u32,
    /// The first of the links that lead to it; 0 for none.
    pub incoming: u32,
    /// The number of its exits.
    pub exits: u16,
    /// The number of its instructions.
    pub instructions: u16,
    /// Bits of [`block_flag`].
    pub flags: u32,
}

/// Bits of [`Block::flags`].
pub mod block_flag {
    /// It is found by its address.
    pub const FOUND: u32 = 1;
    /// Its code was replaced.
    pub const DEAD: u32 = 2;
    /// Made of a hot path.
    pub const TRACE: u32 = 4;
    /// Its exits are not logged.
    pub const SILENT: u32 = 8;
}

/// A way out of a block.
#[derive(Clone, Copy)]
pub struct Exit {
    /// Where it leads, if that is known.
    pub target: u64,
    /// The block.
    pub block: u32,
    /// Where its entry of the log is written, from the begin of the block's translation.
    pub log_at: u32,
    /// The number of instructions that run before it.
    pub instructions: u16,
    /// One of [`crate::wire::exit`].
    pub kind: u8,
    /// The register that holds the log's pointer; [`SPILLED`] for `rcx`, whose value is in the context.
    pub register: u8,
}

/// Value of [`Exit::register`].
pub const SPILLED: u8 = 0xff;

/// A jump from translated code to a block that may not exist.
#[derive(Clone, Copy)]
pub struct Link {
    /// The `jmp`.
    pub site: u64,
    /// What the jump leads to while it is not linked. If the runtime does an instruction instead: that instruction.
    pub cold: u64,
    /// Where it leads in the program.
    pub target: u64,
    /// The next link that leads to the same block.
    pub next: u32,
    /// Whether it is in the list of a block; [`SILENT_CALL`] for an instruction that the runtime does, in code that is not
    /// logged.
    pub linked: u32,
}

/// Value of [`Link::linked`].
pub const SILENT_CALL: u32 = 2;

/// One instruction of a block: see [`STEPS`].
#[derive(Clone, Copy)]
pub struct Step {
    /// Where the next instruction is.
    pub next: u64,
    /// The length of the instruction.
    pub length: u8,
    /// The kind of branch that led on, one of [`crate::wire::exit`]; `NONE` if it is no branch or was not taken.
    pub kind: u8,
    /// The length of its translation.
    pub cached: u16,
}

/// Blocks by number; number 0 is not used.
pub static BLOCKS: Table<Block> = Table::ring(HEAP, MOST_BLOCKS);
/// Exits by number.
pub static EXITS: Table<Exit> = Table::ring(HEAP + 0x4000_0000, MOST_EXITS);
/// Links by number; number 0 is not used.
pub static LINKS: Table<Link> = Table::ring(HEAP + 0x8000_0000, MOST_LINKS);
/// Instructions of blocks.
pub static STEPS: Table<Step> = Table::ring(HEAP + 0x1_0000_0000, MOST_STEPS);
/// For each cache, its blocks in order of address.
pub static BY_CACHE: Table<u32> = Table::new(HEAP + 0x2_0000_0000);
/// Entries in [`BY_CACHE`] of one cache.
pub const BY_CACHE_ROOM: u32 = 1 << 20;
const MAPS: u64 = HEAP + 0x3_0000_0000;
/// Blocks by the address of their first instruction.
pub static BLOCK_AT: Map = Map::new(MAPS, 22);
/// Call sites: the address of the call, and its translation.
pub static CALL_AT: Map = Map::new(MAPS + 0x1000_0000, 21);
/// Landings of returns: the return address, and the code behind the translated call.
pub static LANDING_AT: Map = Map::new(MAPS + 0x2000_0000, 21);
/// Pages with translated code: page number, and index in `pages`.
pub static PAGE_AT: Map = Map::new(MAPS + 0x3000_0000, 18);
/// What `pages` stores.
pub const PAGE_HEAP: u64 = MAPS + 0x4000_0000;
/// What `regions` stores.
pub const REGION_HEAP: u64 = MAPS + 0x6000_0000;
/// What `select` stores.
pub const SELECT_HEAP: u64 = MAPS + 0x6800_0000;
/// What `cache` stores.
pub const CACHE_HEAP: u64 = MAPS + 0x7000_0000;
/// What `table` uses to compose records.
pub const RECORD_HEAP: u64 = MAPS + 0x7800_0000;
/// What `trace` and `pack` use.
pub const WORK_HEAP: u64 = MAPS + 0x8000_0000;

/// The number of the next block.
pub static NEXT_BLOCK: AtomicU32 = AtomicU32::new(1);
/// The number of the next exit. Small numbers are left out: an entry of 0 is no entry.
pub static NEXT_EXIT: AtomicU32 = AtomicU32::new(1);
/// The number of the next link.
pub static NEXT_LINK: AtomicU32 = AtomicU32::new(1);
/// The number of the next step.
pub static NEXT_STEP: AtomicU32 = AtomicU32::new(0);
/// The slot to which the process writes its table.
pub static TABLE_SLOT: AtomicU64 = AtomicU64::new(0);

/// Bytes of translated code and of the tables about it since the last [`crate::flush`].
pub static USED: AtomicU64 = AtomicU64::new(0);
/// The first block, exit, link and step since then: smaller numbers stand for nothing any more.
///
/// In the order of [`first`].
pub static FIRST: [AtomicU32; 4] =
    [AtomicU32::new(1), AtomicU32::new(1), AtomicU32::new(1), AtomicU32::new(0)];

/// Indices in [`FIRST`].
pub mod first {
    #![allow(missing_docs)]
    pub const BLOCK: usize = 0;
    pub const EXIT: usize = 1;
    pub const LINK: usize = 2;
    pub const STEP: usize = 3;
}

/// The most exits that the table has room for.
pub const MOST_EXITS: u32 = 1 << 25;
/// The most blocks.
pub const MOST_BLOCKS: u32 = 1 << 22;
/// The most links.
pub const MOST_LINKS: u32 = 1 << 25;
/// The most steps.
pub const MOST_STEPS: u32 = 1 << 27;

/// Takes the next number of a counter.
pub fn take(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Relaxed)
}

static LOCKED: AtomicBool = AtomicBool::new(false);

/// Guards the tables and the caches, until it is dropped. Translated code never runs while a thread has it.
pub struct Lock(());

/// Waits for the lock.
pub fn lock() -> Lock {
    while LOCKED.swap(true, Acquire) {
        sys::call3(sys::nr::SCHED_YIELD, 0, 0, 0);
    }
    Lock(())
}

impl Drop for Lock {
    fn drop(&mut self) {
        LOCKED.store(false, Release);
    }
}

/// A hash table from nonzero words to words, with open addressing. A key stays; its value may become 0.
pub struct Map {
    entries: Table<[u64; 2]>,
    bits: u32,
    keys: AtomicU32,
}

impl Map {
    const fn new(base: u64, bits: u32) -> Map {
        Map { entries: Table::new(base), bits, keys: AtomicU32::new(0) }
    }

    fn find(&self, key: u64) -> (u32, bool) {
        let mask = (1u32 << self.bits) - 1;
        // Neighbours share pages of the table: memory is used by the page.
        let mut index = ((key >> 3).wrapping_add((key >> 20).wrapping_mul(0x9e_3779)) as u32) & mask;
        loop {
            let [found, _] = self.entries.get(index);
            if found == key || found == 0 {
                return (index, found == key);
            }
            index = (index + 1) & mask;
        }
    }

    /// The value of a key; 0 if it has none.
    pub fn get(&self, key: u64) -> u64 {
        match self.find(key) {
            (index, true) => self.entries.get(index)[1],
            _ => 0,
        }
    }

    /// Sets the value of a key that is not 0.
    pub fn set(&self, key: u64, value: u64) {
        let (index, found) = self.find(key);
        self.keys.fetch_add(u32::from(!found), Relaxed);
        self.entries.set(index, [key, value]);
    }

    /// Whether a quarter of the room, or less, is left.
    pub fn is_full(&self) -> bool {
        self.keys.load(Relaxed) > 3 << (self.bits - 2)
    }

    /// Removes all keys.
    pub fn clear(&self) {
        self.keys.store(0, Relaxed);
        sys::forget(self.entries.begin(), 16 << self.bits);
    }
}

/// Opens the lock in a copy of the process, whose parent's thread had it.
pub fn unlock_copy() {
    crate::hold::HOLD.fetch_and(!1, Release);
    LOCKED.store(false, Release);
}
