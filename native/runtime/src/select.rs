//! What is recorded, if not all.
//!
//! Code that is not selected is translated too, but its exits are not logged. A thread that is not selected, or at a time that
//! is not, runs the same translations as others, and throws its log away.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{
    context::Context,
    layout::{ARENA, SELECTED, SELECTED_THREADS, Selected, SelectedThread},
    log::{self, arena},
    raw::{self, Table},
    state::{SELECT_HEAP, lock},
    table,
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

/// Whether a name matches a pattern, in which `*` stands for any bytes.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut in_pattern, mut in_name) = (0, 0);
    // The last `*`, and where what it stands for ends.
    let mut star = None;
    while in_name < name.len() {
        if pattern.get(in_pattern) == Some(&b'*') {
            star = Some((in_pattern, in_name));
            in_pattern += 1;
        } else if pattern.get(in_pattern) == Some(&name[in_name]) {
            (in_pattern, in_name) = (in_pattern + 1, in_name + 1);
        } else if let Some((begin, end)) = star {
            star = Some((begin, end + 1));
            (in_pattern, in_name) = (begin + 1, end + 1);
        } else {
            return false;
        }
    }
    pattern.iter().skip(in_pattern).all(|&byte| byte == b'*')
}

/// Whether this thread is recorded now.
fn wants(context: &Context) -> bool {
    let arena = arena();
    let count = arena.selected_threads.load(Relaxed);
    if arena.waits.load(Acquire) != 0 || count == 0 {
        return arena.waits.load(Acquire) == 0;
    }
    let name = table::own_name().map(u64::to_le_bytes);
    let name = name.as_flattened();
    let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
    (0..u64::from(count)).any(|index| {
        let size = size_of::<SelectedThread>() as u64;
        let entry: SelectedThread = raw::read(ARENA + SELECTED_THREADS + index * size);
        match entry.thread {
            0 => matches(&entry.pattern[..(entry.length as usize).min(entry.pattern.len())], name),
            thread => thread == u64::from(context.thread.get()),
        }
    })
}

/// Whether there are threads or times that are not recorded.
pub fn is_partial() -> bool {
    let arena = arena();
    arena.waits.load(Acquire) != 0 || arena.selected_threads.load(Relaxed) != 0
}

/// This thread begins.
pub fn begin(context: &Context) {
    context.skips.store((is_partial() && !wants(context)).into(), Release);
}

/// Begins or ends the recording of this thread, if that is due. Its last exit will not be taken back.
pub fn look(context: &Context) {
    let skips = context.skips.load(Relaxed) != 0;
    if !skips && !is_partial() {
        return;
    }
    match (skips, wants(context)) {
        (true, true) => {
            log::resume(context);
            // Another thread may have given it.
            let _lock = lock();
            table::name(context.thread.get());
        }
        (false, false) => log::suspend(context),
        _ => {}
    }
}
