//! Where translated code lies: near the program's code, so that its operands relative to RIP stay in reach.
//!
//! Code grows from the begin of a cache, what only unlinked exits need from its end. The first words of a cache are the
//! addresses of the runtime's entries and of short jumps to them.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{
    emit::Emitter,
    limits,
    raw::{self, Table},
    state::CACHE_HEAP,
    stubs, sys,
};

/// A cache.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Cache {
    /// Its begin.
    pub base: u64,
    /// The next free byte for code.
    pub free: u64,
    /// The begin of what grows from its end.
    pub cold: u64,
    /// Blocks in it.
    pub blocks: u32,
}

/// The length of a cache.
pub const LENGTH: u64 = 64 << 20;
/// The most caches.
pub const MOST: u32 = 64;
/// Protection of a cache, as `mmap` takes it.
const READ_WRITE_EXECUTE: u64 = 7;
/// Code this far from a cache can use it.
const REACH: u64 = 0x6000_0000;
/// A superblock needs less room.
pub const LARGEST: u64 = 0x1_0000;
/// Where a landing jumps if the target is another one: after two words, the addresses of the runtime's entries.
pub const MISS: u64 = 16;
/// Where translated code begins.
const BEGIN: u64 = 32;

/// The caches.
pub static CACHES: Table<Cache> = Table::new(CACHE_HEAP);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The number of the cache that holds the translation at this address.
pub fn containing(address: u64) -> Option<u32> {
    (0..COUNT.load(Relaxed)).find(|&n| address.wrapping_sub(CACHES.get(n).base) < LENGTH)
}

/// Empties all caches.
pub fn clear() {
    for n in 0..COUNT.load(Relaxed) {
        let base = CACHES.get(n).base;
        // The first page keeps the words before the code.
        sys::forget(base + 4096, LENGTH - 4096);
        CACHES.set(n, Cache { base, free: base + BEGIN, cold: base + LENGTH, blocks: 0 });
    }
}

/// Whether memory contains a part of a cache.
pub fn overlaps(start: u64, end: u64) -> bool {
    (0..COUNT.load(Relaxed)).any(|n| {
        let base = CACHES.get(n).base;
        start < base + LENGTH && end > base
    })
}

/// A cache near `pc` with room for a block; `None` if there is no memory.
pub fn near(pc: u64) -> Option<u32> {
    let count = COUNT.load(Relaxed);
    let fits = |n: &u32| {
        let cache = CACHES.get(*n);
        cache.base.abs_diff(pc) < REACH && cache.cold - cache.free > 2 * LARGEST
    };
    (0..count).find(fits).or_else(|| create(pc, count))
}

/// Creates a cache. Programs grow their heap upwards from their data, and their mappings downwards from their libraries:
/// a cache lies below a program and above its libraries if there is room, otherwise as far away as possible.
fn create(pc: u64, count: u32) -> Option<u32> {
    if count == MOST {
        return None;
    }
    const MIB: u64 = 1 << 20;
    /// Places that are tried are this far apart.
    const STEP: u64 = LENGTH + 8 * MIB;
    /// Above this lie libraries, and not the program.
    const LIBRARIES: u64 = 0x7000_0000_0000;
    const END_OF_USER_SPACE: u64 = 0x7fff_ffff_f000;
    let near = pc & !(MIB - 1);
    let low = (1..20).rev().map(|step| near.wrapping_sub(step * STEP));
    let high = (2..20).rev().map(|step| near.wrapping_add(step * STEP));
    let above = (1..8).map(|step| near.wrapping_add(step * 32 * MIB));
    let is_library = pc > LIBRARIES;
    let address = above
        .filter(|_| is_library)
        .chain(low)
        .chain(high)
        .filter(|&base| base > MIB && base + LENGTH < END_OF_USER_SPACE && base.abs_diff(pc) < REACH)
        .find(|&base| limits::map(base, LENGTH, READ_WRITE_EXECUTE) == base)?;
    for (offset, stub) in [(0, stubs::hodo_enter_link as stubs::Stub), (8, stubs::hodo_enter_miss)] {
        raw::write(address + offset, stubs::address(stub));
    }
    let mut miss = Emitter { address: address + MISS, limit: address + BEGIN, full: false };
    // jmp [rip - 14]: the word at `address + 8`
    miss.bytes(&[0xff, 0x25, 0xf2, 0xff, 0xff, 0xff]);
    CACHES.set(count, Cache { base: address, free: address + BEGIN, cold: address + LENGTH, blocks: 0 });
    COUNT.store(count + 1, Relaxed);
    Some(count)
}

/// The length of a cold stub.
pub const STUB: u64 = 40;
/// Where the slot of a cold stub is, and the code behind its `jmp [slot]`.
const SLOT: u64 = 32;
const AFTER_JUMP: u64 = 6;

/// Emits the cold end of a link at the end of a cache: `jmp [slot]`, where the slot leads to the code behind that jump, which
/// enters the runtime with the link's number. Returns its address.
pub fn cold_stub(number: u32, cache: &mut Cache) -> u64 {
    cache.cold -= STUB;
    let stub = cache.cold & !7;
    cache.cold = stub;
    let mut emitter = Emitter { address: stub, limit: stub + STUB, full: false };
    emitter.bytes(&[0xff, 0x25]); // jmp [slot]
    emitter.word((SLOT - AFTER_JUMP) as u32);
    emitter.save(crate::emit::RCX, crate::context::offset::SAVED_RCX);
    emitter.bytes(&[0xb9]); // mov ecx, number
    emitter.word(number);
    emitter.bytes(&[0xff, 0x25]); // jmp [base], the address of `hodo_enter_link`
    let next = emitter.address + 4;
    emitter.word(cache.base.wrapping_sub(next) as u32);
    raw::write(stub + SLOT, stub + AFTER_JUMP);
    stub
}

/// Stores a word at the end of a cache; returns its address.
pub fn cold_word(word: u64, cache: &mut Cache) -> u64 {
    cache.cold = (cache.cold - 8) & !7;
    raw::write(cache.cold, word);
    cache.cold
}

/// Makes a cold stub lead to `to`, or back to the runtime if that is 0.
pub fn aim_stub(stub: u64, to: u64) {
    raw::patch8(stub + SLOT, if to == 0 { stub + AFTER_JUMP } else { to });
}
