//! Removes all translated code when it takes more memory than allowed.

use core::sync::atomic::Ordering::Relaxed;

use crate::{
    cache,
    context::Context,
    hold,
    log::arena,
    pages,
    raw::Table,
    slot,
    state::{
        BLOCK_AT, BLOCKS, CALL_AT, EXITS, FIRST, LANDING_AT, LINKS, MOST_BLOCKS, MOST_EXITS, MOST_LINKS,
        MOST_STEPS, NEXT_BLOCK, NEXT_EXIT, NEXT_LINK, NEXT_STEP, STEPS, USED, first,
    },
    sys,
};

/// Room for what threads translate until all of them have stopped, in entries of each table.
const RESERVE: u32 = 1 << 18;

/// Whether a table has no room for `reserve` entries and one more superblock.
pub fn exceeds(reserve: u32) -> bool {
    let next = [&NEXT_BLOCK, &NEXT_EXIT, &NEXT_LINK, &NEXT_STEP];
    let most = [MOST_BLOCKS, MOST_EXITS, MOST_LINKS, MOST_STEPS];
    // A superblock needs less.
    const SUPERBLOCK: u32 = 4096;
    let used = next.iter().zip(&FIRST).map(|(next, first)| next.load(Relaxed) - first.load(Relaxed));
    used.zip(most).any(|(used, most)| used + reserve + SUPERBLOCK > most)
        || NEXT_EXIT.load(Relaxed) > crate::wire::escape::FIRST - SUPERBLOCK
        || NEXT_LINK.load(Relaxed) > crate::translate::FAR_BIT - SUPERBLOCK
}

/// Whether it is time to remove all code.
pub fn is_due() -> bool {
    USED.load(Relaxed) > arena().memory.load(Relaxed)
        || exceeds(RESERVE)
        || [&BLOCK_AT, &CALL_AT, &LANDING_AT].iter().any(|map| map.is_full())
        || pages::is_full()
}

/// Removes all code, while the other threads wait. `false` if another thread does it.
pub fn flush(context: &Context) -> bool {
    hold::alone(context, || {
        BLOCK_AT.clear();
        CALL_AT.clear();
        LANDING_AT.clear();
        pages::clear_all();
        cache::clear();
        release(&BLOCKS, FIRST[first::BLOCK].load(Relaxed), NEXT_BLOCK.load(Relaxed), MOST_BLOCKS);
        release(&EXITS, FIRST[first::EXIT].load(Relaxed), NEXT_EXIT.load(Relaxed), MOST_EXITS);
        release(&STEPS, FIRST[first::STEP].load(Relaxed), NEXT_STEP.load(Relaxed), MOST_STEPS);
        // Threads that are in the runtime already may still read their link: links stay until the next flush.
        let current = FIRST[first::LINK].load(Relaxed);
        release(&LINKS, LINKS_RELEASED.swap(current, Relaxed), current, MOST_LINKS);
        for (first, next) in FIRST.iter().zip([&NEXT_BLOCK, &NEXT_EXIT, &NEXT_LINK, &NEXT_STEP]) {
            first.store(next.load(Relaxed), Relaxed);
        }
        USED.store(0, Relaxed);
        slot::forget_targets(context);
        hold::others(context).for_each(slot::forget_targets);
    })
}

/// Links before this one are given back already.
static LINKS_RELEASED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(1);

/// Gives back the memory of the entries from `first` to before `next`, in whole pages: entries before `first` on its page
/// are not in use either. The table is a ring of `room` entries.
fn release<T: Copy>(table: &Table<T>, first: u32, next: u32, room: u32) {
    let size = size_of::<T>() as u64;
    let (from, to) = (u64::from(first & (room - 1)), u64::from(next & (room - 1)));
    let give = |from: u64, to: u64| {
        let begin = (table.begin() + from * size) & !4095;
        let end = (table.begin() + to * size) & !4095;
        if begin < end {
            sys::forget(begin, end - begin);
        }
    };
    if from <= to {
        give(from, to);
    } else {
        give(from, room.into());
        give(0, to);
    }
}
