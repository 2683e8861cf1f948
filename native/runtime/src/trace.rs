//! Hot paths: blocks that ran one after another often are translated again as one, with one entry and many exits.
//!
//! The log itself says what is hot. When it is full, its last entries are counted; from the hottest blocks the path follows
//! the exit that was taken most, as long as that was nearly always the same one. A budget bounds the number of traces: each
//! costs a fixed number of entries of the log.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{
    context::Context,
    layout::LOG_BYTES,
    link, log, raw,
    raw::Table,
    state::{
        BLOCKS, EXITS, FIRST, MOST_BLOCKS as MOST_BLOCKS_KNOWN, MOST_EXITS, NEXT_EXIT, STEPS, WORK_HEAP,
        block_flag, first, lock,
    },
    translate::{self, Planned},
    wire::{escape, exit},
};

/// Entries that are counted.
const SAMPLE: u64 = 16_384;
/// Entries of the log that pay for one trace.
const COST: u64 = 40_000;
/// Entries of a process until it is searched less often.
const EARLY: u64 = 2_000_000;
/// The fewest entries of a hot block in the sample.
const HOT: u32 = 48;
/// A path goes on where this percentage of a block's entries went.
const SHARE: u32 = 40;
/// The most blocks of a path.
const MOST_BLOCKS: usize = 48;
/// The most instructions of a loop that is repeated in its path.
const UNROLLED: u32 = 200;
/// The most instructions of a path.
pub const MOST_STEPS: usize = 600;

/// How often a block and an exit were counted, by number; all 0 between two searches.
static BLOCK_COUNT: Table<u32> = Table::ring(WORK_HEAP, MOST_BLOCKS_KNOWN);
static EXIT_COUNT: Table<u32> = Table::ring(WORK_HEAP + 0x1000_0000, MOST_EXITS);
/// The block after an exit.
static NEXT_OF: Table<u32> = Table::ring(WORK_HEAP + 0x2000_0000, MOST_EXITS);
/// Exits that were counted.
static COUNTED: Table<u32> = Table::new(WORK_HEAP + 0x3000_0000);
/// The exit of a block that was counted most.
static BEST: Table<u32> = Table::ring(WORK_HEAP + 0x3800_0000, MOST_BLOCKS_KNOWN);
/// The steps of the path in the making.
static PLAN: Table<Planned> = Table::new(WORK_HEAP + 0x4800_0000);

/// Entries since the process started, of all threads.
static ENTRIES: AtomicU64 = AtomicU64::new(0);
/// Entries that were spent on traces.
static SPENT: AtomicU64 = AtomicU64::new(0);
/// Searches without a find, in a row: each doubles the distance to the next.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Looks for hot paths in a log that was just given away and not yet overwritten.
pub fn look(context: &Context) {
    if log::arena().traces.load(Relaxed) == 0 {
        return;
    }
    let new = (context.log_end() - context.window.get()) / 4;
    let entries = ENTRIES.fetch_add(new, Relaxed) + new;
    let since = context.since_search.get() + new;
    context.since_search.set(since);
    // A program that runs long is searched less often.
    let distance = if entries < EARLY { 1 } else { 3 };
    if since < (distance << IDLE.load(Relaxed).min(5)) * (LOG_BYTES / 4) {
        return;
    }
    context.since_search.set(0);
    let _lock = lock();
    let counted = count(context);
    let mut heads = Heads::find(counted);
    let mut made = 0;
    while SPENT.load(Relaxed) + COST <= entries {
        let Some(head) = heads.take_hottest() else { break };
        BLOCK_COUNT.set(head, 0);
        if make(head) {
            made += 1;
            SPENT.fetch_add(COST, Relaxed);
        }
    }
    clear(counted);
    if made == 0 {
        IDLE.fetch_add(1, Relaxed);
    } else {
        IDLE.store(0, Relaxed);
    }
}

/// Counts the last entries; returns how many exits were counted.
fn count(context: &Context) -> u32 {
    let finished = context.finished.get();
    let mut position = (finished - SAMPLE * 4).max(context.log());
    let (mut counted, mut before) = (0, 0);
    let (first, end) = (FIRST[first::EXIT].load(Relaxed), NEXT_EXIT.load(Relaxed));
    while position < finished {
        let word: u32 = raw::read(position);
        position += 4;
        if word >= end || word < first {
            position += escape::words(word).unwrap_or(0) as u64 * 4;
            before = 0;
            continue;
        }
        let block = EXITS.get(word).block;
        BLOCK_COUNT.set(block, BLOCK_COUNT.get(block) + 1);
        let count = EXIT_COUNT.get(word) + 1;
        EXIT_COUNT.set(word, count);
        if count == 1 {
            COUNTED.set(counted, word);
            counted += 1;
        }
        let best = BEST.get(block);
        if best == 0 || EXIT_COUNT.get(best) <= count {
            BEST.set(block, word);
        }
        if before != 0 {
            NEXT_OF.set(before, block);
        }
        before = word;
    }
    counted
}

fn clear(counted: u32) {
    for index in 0..counted {
        let number = COUNTED.get(index);
        let block = EXITS.get(number).block;
        BLOCK_COUNT.set(block, 0);
        BEST.set(block, 0);
        EXIT_COUNT.set(number, 0);
        NEXT_OF.set(number, 0);
    }
}

/// The most blocks of a sample that can be hot.
const MOST_HEADS: usize = (SAMPLE / HOT as u64) as usize;

/// Hot blocks that are no traces yet.
struct Heads {
    blocks: [u32; MOST_HEADS],
    count: usize,
}

impl Heads {
    /// Those among the blocks of the counted exits.
    fn find(counted: u32) -> Heads {
        let mut heads = Heads { blocks: [0; MOST_HEADS], count: 0 };
        for index in 0..counted {
            let number = COUNTED.get(index);
            let block = EXITS.get(number).block;
            // A block has several exits, of which one was counted most.
            if BLOCK_COUNT.get(block) < HOT || BEST.get(block) != number || heads.count == MOST_HEADS {
                continue;
            }
            let flags = BLOCKS.get(block).flags;
            if flags & (block_flag::TRACE | block_flag::DEAD) == 0 && flags & block_flag::FOUND != 0 {
                heads.blocks[heads.count] = block;
                heads.count += 1;
            }
        }
        heads
    }

    /// Removes the hottest.
    fn take_hottest(&mut self) -> Option<u32> {
        let known = &self.blocks[..self.count];
        let (index, &hottest) = known.iter().enumerate().max_by_key(|&(_, &block)| BLOCK_COUNT.get(block))?;
        self.count -= 1;
        self.blocks[index] = self.blocks[self.count];
        Some(hottest)
    }
}

/// Translates the path from a block on. Returns whether that was done.
fn make(head: u32) -> bool {
    let (steps, blocks) = plan(head);
    if blocks < 2 || steps < 2 {
        return false;
    }
    let old = BLOCKS.get(head);
    if crate::regions::generated(old.pc) {
        return false;
    }
    translate::trace(head, steps)
}

/// Collects the steps of the path from `head` on; returns their number and that of the blocks.
fn plan(head: u32) -> (u32, usize) {
    let mut chain = [0; MOST_BLOCKS];
    let mut length = 0;
    let mut steps = 0u32;
    let mut block = head;
    let mut round = 0;
    while length < MOST_BLOCKS {
        if length != 0 && block == head {
            // A loop: several rounds need one entry.
            round = if round == 0 { steps } else { round };
            if steps + round > UNROLLED {
                break;
            }
        } else if round == 0 && chain[..length].contains(&block) {
            break;
        }
        let number = BEST.get(block);
        let next = NEXT_OF.get(number);
        let entries = BLOCK_COUNT.get(block).max(1);
        // The counts of heads are spent, but a path may lead through them.
        let shared = EXIT_COUNT.get(number) * 100 >= entries * SHARE;
        let taken = EXITS.get(number);
        let room = steps as usize + usize::from(taken.instructions) < MOST_STEPS;
        if number == 0 || next == 0 || !shared || !room || !can_follow(taken.kind) {
            break;
        }
        chain[length] = block;
        length += 1;
        add(block, number, BLOCKS.get(next).pc, &mut steps);
        block = next;
    }
    (steps, length)
}

fn can_follow(kind: u8) -> bool {
    !matches!(kind, exit::SYSCALL | exit::FAR | exit::FAR_RETURN)
}

/// Appends the instructions of a block up to an exit, which leads to `to`.
fn add(number: u32, out: u32, to: u64, steps: &mut u32) {
    let block = BLOCKS.get(number);
    let count = u32::from(EXITS.get(out).instructions);
    for index in 0..count {
        let next = if index + 1 == count { to } else { STEPS.get(block.steps + index).next };
        PLAN.set(*steps, Planned { pc: link::address_of(&block, index), next });
        *steps += 1;
    }
}

/// A step of the path in the making.
pub fn planned(index: u32) -> Planned {
    PLAN.get(index)
}
