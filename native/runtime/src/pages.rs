//! Pages of translated code. Those that the program may write are protected, so that a change is seen.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{
    link,
    raw::Table,
    regions,
    state::{BLOCKS, PAGE_AT, PAGE_HEAP, take},
    sys, table,
};

/// A page with translated code. The first entry without a number ends the table, which the recorder reads.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Page {
    /// Its address without the offset in the page.
    pub number: u64,
    /// The first of its nodes; 0 for none.
    pub first: u32,
    /// The protection that the program set, if the page is protected more than that; otherwise 0.
    pub wanted: u32,
}

/// A block on a page.
#[derive(Clone, Copy)]
struct Node {
    block: u32,
    next: u32,
}

static PAGES: Table<Page> = Table::new(PAGE_HEAP);
static NODES: Table<Node> = Table::new(PAGE_HEAP + 0x1000_0000);
static PAGE_COUNT: AtomicU32 = AtomicU32::new(0);
static NODE_COUNT: AtomicU32 = AtomicU32::new(1);
static FREE_NODE: AtomicU32 = AtomicU32::new(0);
/// How often protections of the runtime's own were lifted: a write that failed before may succeed after.
static RELEASED: AtomicU32 = AtomicU32::new(0);
/// The page that was looked up last.
static LAST: AtomicU32 = AtomicU32::new(0);
/// The most pages: half of the room of [`PAGE_AT`].
pub const MOST: u32 = 1 << 17;
// Protections of memory, as `mprotect` takes them.
const READ_EXECUTE: u64 = 5;
const WRITE: u64 = 2;

/// The index of a page, which is added if it is new.
fn page(number: u64) -> Option<u32> {
    // Blocks are mostly on the page of the block before.
    let last = LAST.load(Relaxed);
    if last < PAGE_COUNT.load(Relaxed) && PAGES.get(last).number == number {
        return Some(last);
    }
    let index = add(number)?;
    LAST.store(index, Relaxed);
    Some(index)
}

fn add(number: u64) -> Option<u32> {
    match PAGE_AT.get(number) {
        0 => {
            let index = take(&PAGE_COUNT);
            if index >= MOST {
                return None;
            }
            PAGES.set(index, Page { number, first: 0, wanted: 0 });
            PAGE_AT.set(number, u64::from(index) + 1);
            Some(index)
        }
        found => Some(found as u32 - 1),
    }
}

fn index_of(number: u64) -> Option<u32> {
    (PAGE_AT.get(number) as u32).checked_sub(1)
}

/// Adds a block to its pages.
pub fn register(number: u32) {
    let block = BLOCKS.get(number);
    let mut last = 0;
    for index in 0..u32::from(block.instructions) {
        let pc = link::address_of(&block, index);
        let length = u64::from(crate::state::STEPS.get(block.steps + index).length);
        for page in [pc >> 12, (pc + length - 1) >> 12] {
            if page != last {
                add_to_page(page, number);
                last = page;
            }
        }
    }
}

fn add_to_page(number: u64, block: u32) {
    let Some(index) = page(number) else { return };
    let mut page = PAGES.get(index);
    if page.first != 0 && NODES.get(page.first).block == block {
        return;
    }
    let free = FREE_NODE.load(Relaxed);
    let node = if free != 0 {
        FREE_NODE.store(NODES.get(free).next, Relaxed);
        free
    } else {
        take(&NODE_COUNT)
    };
    NODES.set(node, Node { block, next: page.first });
    // A page that has blocks is protected already if the program may write it.
    if page.first == 0 && page.wanted == 0 && regions::writable(number << 12) {
        page.wanted = (READ_EXECUTE | WRITE) as u32;
        sys::protect(number << 12, 4096, READ_EXECUTE);
    }
    page.first = node;
    PAGES.set(index, page);
}

/// Removes the blocks of a page. Returns whether there were any.
fn clear(index: u32) -> bool {
    let page = PAGES.get(index);
    let mut node = page.first;
    while node != 0 {
        let Node { block, next } = NODES.get(node);
        link::remove(block);
        NODES.set(node, Node { block: 0, next: FREE_NODE.load(Relaxed) });
        FREE_NODE.store(node, Relaxed);
        node = next;
    }
    PAGES.set(index, Page { first: 0, ..page });
    page.first != 0
}

/// Forgets all blocks. Pages that are protected stay so, and are released when they are written.
pub fn clear_all() {
    let count = PAGE_COUNT.load(Relaxed).min(MOST);
    let mut kept = 0;
    PAGE_AT.clear();
    for index in 0..count {
        let page = PAGES.get(index);
        if page.wanted != 0 {
            PAGES.set(kept, Page { first: 0, ..page });
            kept += 1;
            PAGE_AT.set(page.number, u64::from(kept));
        }
    }
    for index in kept..count {
        PAGES.set(index, Page { number: 0, first: 0, wanted: 0 });
    }
    PAGE_COUNT.store(kept, Relaxed);
    NODE_COUNT.store(1, Relaxed);
    FREE_NODE.store(0, Relaxed);
}

/// Whether few more pages can be added.
pub fn is_full() -> bool {
    PAGE_COUNT.load(Relaxed) > MOST / 8 * 7
}

/// Removes the blocks in memory that is unmapped or mapped anew.
pub fn forget(start: u64, end: u64) {
    for_each(start, end, |index| {
        clear(index);
        PAGES.set(index, Page { wanted: 0, ..PAGES.get(index) });
    });
}

fn for_each(start: u64, end: u64, mut action: impl FnMut(u32)) {
    let (first, last) = (start >> 12, end.wrapping_add(4095) >> 12);
    let count = PAGE_COUNT.load(Relaxed).min(MOST);
    if last.saturating_sub(first) > u64::from(count) {
        for index in 0..count {
            if (first..last).contains(&PAGES.get(index).number) {
                action(index);
            }
        }
    } else {
        for index in (first..last).filter_map(index_of) {
            action(index);
        }
    }
}

/// Whether memory contains pages with blocks.
pub fn any(start: u64, end: u64) -> bool {
    let mut any = false;
    for_each(start, end, |index| any |= PAGES.get(index).first != 0);
    any
}

/// Applies a protection that the program set, and that the kernel applied without writing: pages with blocks stay
/// protected against writing.
pub fn set_protection(start: u64, end: u64, wanted: u64) {
    let mut begin = start;
    for number in start >> 12..end >> 12 {
        let Some(index) = index_of(number).filter(|&index| PAGES.get(index).first != 0) else { continue };
        if begin < number << 12 {
            sys::protect(begin, (number << 12) - begin, wanted);
        }
        PAGES.set(index, Page { wanted: wanted as u32, ..PAGES.get(index) });
        begin = (number + 1) << 12;
    }
    if begin < end {
        sys::protect(begin, end - begin, wanted);
    }
    RELEASED.fetch_add(1, Relaxed);
}

/// The program's protection of memory forbids writing.
pub fn set_readonly(start: u64, end: u64) {
    for_each(start, end, |index| PAGES.set(index, Page { wanted: 0, ..PAGES.get(index) }));
}

/// Lets the program write a page.
fn release_page(index: u32) {
    let page = PAGES.get(index);
    clear(index);
    PAGES.set(index, Page { wanted: 0, ..PAGES.get(index) });
    sys::protect(page.number << 12, 4096, u64::from(page.wanted));
    RELEASED.fetch_add(1, Relaxed);
    table::replaced(page.number << 12, 4096);
}

/// Whether the program may write a page, but for its blocks.
fn is_guarded(index: u32) -> bool {
    u64::from(PAGES.get(index).wanted) & WRITE != 0
}

/// Lets the program, and the kernel for it, write all pages that are protected for their blocks. Returns whether there
/// were any.
pub fn release() -> bool {
    let guarded = (0..PAGE_COUNT.load(Relaxed).min(MOST)).filter(|&index| is_guarded(index));
    guarded.map(release_page).count() > 0
}

/// A number that changes when protections are lifted: a write that failed before may succeed after.
pub fn released() -> u32 {
    RELEASED.load(Relaxed)
}

/// Removes the blocks of memory that the program is about to change, and lets it write there.
pub fn give_back(start: u64, end: u64) {
    for_each(start, end, |index| {
        if is_guarded(index) {
            release_page(index);
        } else {
            clear(index);
        }
    });
}

/// A write failed at `address`. If the page is protected for its blocks, removes them and lets the program write. Returns
/// whether it may write now: another thread may have written there first.
pub fn written(address: u64) -> bool {
    if let Some(index) = index_of(address >> 12).filter(|&index| is_guarded(index)) {
        release_page(index);
        return true;
    }
    sys::is_writable(address & !4095).unwrap_or_else(|| regions::writable(address))
}
