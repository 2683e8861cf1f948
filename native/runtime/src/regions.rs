//! Which of the program's memory is executable, as the program sees it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{raw::Table, state::REGION_HEAP};

/// Executable memory without gaps.
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    flags: u64,
}

/// Bits of a region.
pub mod flag {
    /// The program may write it.
    pub const WRITABLE: u64 = 1;
    /// Its bytes are in no file.
    pub const GENERATED: u64 = 2;
}

/// The most regions.
const MOST: u32 = 1 << 18;
/// In order of address.
static REGIONS: Table<Region> = Table::new(REGION_HEAP);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The index of the first region that ends after `address`.
fn after(address: u64) -> u32 {
    let (mut low, mut high) = (0, COUNT.load(Relaxed));
    while low < high {
        let middle = (low + high) / 2;
        if REGIONS.get(middle).end <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn insert(position: u32, region: Region) {
    let count = COUNT.load(Relaxed);
    if region.start >= region.end || count == MOST {
        return;
    }
    for index in (position..count).rev() {
        REGIONS.set(index + 1, REGIONS.get(index));
    }
    REGIONS.set(position, region);
    COUNT.store(count + 1, Relaxed);
}

fn delete(position: u32) {
    let count = COUNT.load(Relaxed);
    for index in position..count - 1 {
        REGIONS.set(index, REGIONS.get(index + 1));
    }
    COUNT.store(count - 1, Relaxed);
}

/// Memory that is not executable any more.
pub fn remove(start: u64, end: u64) {
    let mut first = after(start);
    while first < COUNT.load(Relaxed) && REGIONS.get(first).start < end {
        let old = REGIONS.get(first);
        delete(first);
        if old.start < start {
            insert(first, Region { end: start, ..old });
            first += 1;
        }
        if old.end > end {
            insert(first, Region { start: end, ..old });
            first += 1;
        }
    }
}

/// Memory that is executable from now on.
pub fn add(start: u64, end: u64, flags: u64) {
    remove(start, end);
    insert(after(start), Region { start, end, flags });
}

/// Sets whether executable memory is writable; it keeps its origin. `generated`: whether memory that becomes executable is in
/// no file.
pub fn protect(start: u64, end: u64, executable: bool, writable: bool, generated: bool) {
    let mut flags = if generated { flag::GENERATED } else { 0 };
    let first = after(start);
    if first < COUNT.load(Relaxed) && REGIONS.get(first).start < end {
        flags = REGIONS.get(first).flags;
    }
    remove(start, end);
    if executable {
        let write = if writable { flag::WRITABLE | flag::GENERATED } else { 0 };
        add(start, end, flags & !flag::WRITABLE | write);
    }
}

/// The number of executable bytes from `pc` on.
pub fn executable_from(pc: u64) -> u64 {
    let mut first = after(pc);
    let mut end = pc;
    while first < COUNT.load(Relaxed) {
        let region = REGIONS.get(first);
        if region.start > end {
            break;
        }
        end = region.end;
        first += 1;
        if end - pc > 4096 {
            break;
        }
    }
    end - pc
}

/// Whether some of the memory is executable.
pub fn any(start: u64, end: u64) -> bool {
    let first = after(start);
    first < COUNT.load(Relaxed) && REGIONS.get(first).start < end
}

fn flags(pc: u64) -> u64 {
    let first = after(pc);
    if first >= COUNT.load(Relaxed) {
        return 0;
    }
    let region = REGIONS.get(first);
    if region.start <= pc { region.flags } else { 0 }
}

/// Whether the program may write the code at `pc`.
pub fn writable(pc: u64) -> bool {
    flags(pc) & flag::WRITABLE != 0
}

/// Whether the code at `pc` is in no file.
pub fn generated(pc: u64) -> bool {
    flags(pc) & flag::GENERATED != 0
}
