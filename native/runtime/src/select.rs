//! Which code is recorded, if not all of it. Other code is translated too, but its exits are not logged.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{
    layout::{ARENA, SELECTED, Selected},
    log::arena,
    raw::{self, Table},
    state::SELECT_HEAP,
};

/// Selected memory: begins and ends.
static RANGES: Table<[u64; 2]> = Table::new(SELECT_HEAP);
static COUNT: AtomicU32 = AtomicU32::new(0);
/// The most ranges.
const MOST: u32 = 1 << 16;

/// The number of selected parts of files; 0: all code is recorded.
pub fn entries() -> u32 {
    arena().selected.load(Relaxed)
}

/// Whether the code at `pc` is recorded.
pub fn contains(pc: u64) -> bool {
    let inside = |index| {
        let [start, end] = RANGES.get(index);
        (start..end).contains(&pc)
    };
    entries() == 0 || (0..COUNT.load(Relaxed)).any(inside)
}

/// Adds the selected ranges of a part of a file that is mapped.
pub fn mapped(address: u64, length: u64, offset: u64, name: &[u8]) {
    for index in 0..entries() {
        let entry: Selected = raw::read(ARENA + SELECTED + u64::from(index) * size_of::<Selected>() as u64);
        let wanted = &entry.name[..(entry.length as usize).min(entry.name.len())];
        let (start, end) = (entry.start.max(offset), entry.end.min(offset.saturating_add(length)));
        let count = COUNT.load(Relaxed);
        if name.ends_with(wanted) && start < end && count < MOST {
            RANGES.set(count, [address + (start - offset), address + (end - offset)]);
            COUNT.store(count + 1, Relaxed);
        }
    }
}

/// Removes the ranges in memory that is unmapped.
pub fn unmapped(start: u64, end: u64) {
    let mut index = 0;
    while index < COUNT.load(Relaxed) {
        let [from, to] = RANGES.get(index);
        if from < end && start < to {
            let last = COUNT.load(Relaxed) - 1;
            RANGES.set(index, RANGES.get(last));
            COUNT.store(last, Relaxed);
        } else {
            index += 1;
        }
    }
}
