//! Jumps between translated blocks: made when both exist, unmade when code is replaced.

use core::sync::atomic::Ordering::Relaxed;

use crate::{
    cache::{self, CACHES},
    emit::Emitter,
    raw,
    state::{
        BLOCK_AT, BLOCKS, BY_CACHE, BY_CACHE_ROOM, Block, CALL_AT, EXITS, FIRST, LANDING_AT, LINKS, Link,
        STEPS, block_flag, first,
    },
    wire::exit,
};

/// Makes a link lead to a block.
pub fn connect(number: u32, to: u32) {
    let link = LINKS.get(number);
    let is_old = number < FIRST[first::LINK].load(Relaxed);
    if is_old || link.site == 0 || link.linked != 0 {
        return;
    }
    let block = BLOCKS.get(to);
    LINKS.set(number, Link { next: block.incoming, linked: 1, ..link });
    BLOCKS.set(to, Block { incoming: number, ..block });
    aim(&link, block.cache);
}

/// Makes the jump of a link lead to translated code.
fn aim(link: &Link, to: u64) {
    let distance = to.wrapping_sub(link.site + 5);
    if distance as i32 as i64 as u64 == distance {
        raw::patch4(link.site + 1, distance as u32);
    } else {
        cache::aim_stub(link.cold, to);
    }
}

/// Makes all links that lead to a block lead to another one, or to the runtime.
pub fn redirect(from: u32, to: Option<u32>) {
    let block = BLOCKS.get(from);
    let mut number = block.incoming;
    BLOCKS.set(from, Block { incoming: 0, ..block });
    while number != 0 {
        let link = LINKS.get(number);
        LINKS.set(number, Link { linked: 0, ..link });
        match to {
            Some(to) => connect(number, to),
            None => {
                cache::aim_stub(link.cold, 0);
                raw::patch4(link.site + 1, link.cold.wrapping_sub(link.site + 5) as u32);
            }
        }
        number = link.next;
    }
}

/// The real call of a call of the program; 0 if it has none.
pub fn call_at(pc: u64) -> u64 {
    CALL_AT.get(pc)
}

/// Stores the real call at `begin`, and the landing of its return.
pub fn set_call(pc: u64, begin: u64, next: u64, landing: u64) {
    CALL_AT.set(pc, begin);
    LANDING_AT.set(next, landing);
}

/// Where a landing, which is aligned to 8 bytes, jumps to its block. The displacement behind it can be replaced in one store.
const LANDING_JUMP: u64 = 39;

/// Where an indirect branch to `pc` lands, whose block exists; 0 if there is no room.
pub fn landing(pc: u64, number: u32) -> u64 {
    let landing = LANDING_AT.get(pc);
    if landing != 0 {
        return landing;
    }
    let block = BLOCKS.get(number);
    if block.prologue != 0 {
        return block.prologue;
    }
    let Some(home) = cache::containing(block.cache) else { return 0 };
    let mut cache = CACHES.get(home);
    if cache.cold - cache.free < cache::LARGEST {
        return 0;
    }
    let mut emitter = Emitter { address: cache.free, limit: cache.cold, full: false };
    emitter.align(0, 8);
    let begin = emitter.address;
    emitter.landing(pc, cache.base + cache::MISS);
    emitter.jump(block.cache);
    cache.free = emitter.address;
    CACHES.set(home, cache);
    BLOCKS.set(number, Block { prologue: begin, ..block });
    begin
}

/// Makes indirect branches that land at one block land at another one that begins at the same address.
pub fn move_landing(from: u32, to: u32) {
    let (old, new) = (BLOCKS.get(from), BLOCKS.get(to));
    if old.prologue == 0 {
        return;
    }
    let distance = new.cache.wrapping_sub(old.prologue + LANDING_JUMP + 5);
    if distance as i32 as i64 as u64 == distance {
        raw::patch4(old.prologue + LANDING_JUMP + 1, distance as u32);
    }
    BLOCKS.set(to, Block { prologue: old.prologue, ..new });
    BLOCKS.set(from, Block { prologue: 0, ..old });
}

/// Makes a landing refuse every target.
fn close(landing: u64) {
    let Some(home) = cache::containing(landing) else { return };
    let miss = CACHES.get(home).base + cache::MISS;
    let old: u64 = raw::read(landing);
    let jump = 0xe9 | u64::from(miss.wrapping_sub(landing + 5) as u32) << 8;
    raw::patch8(landing, jump | old & 0xffff_ff00_0000_0000);
}

/// Removes a block whose code was replaced. A thread that runs in it leaves it at its next exit.
pub fn remove(number: u32) {
    let block = BLOCKS.get(number);
    if block.flags & block_flag::DEAD != 0 {
        return;
    }
    if block.flags & block_flag::FOUND != 0 && BLOCK_AT.get(block.pc) == u64::from(number) {
        BLOCK_AT.set(block.pc, 0);
    }
    redirect(number, None);
    if block.prologue != 0 {
        close(block.prologue);
    }
    for out in block.first_exit..block.first_exit + u32::from(block.exits) {
        let out = EXITS.get(out);
        if matches!(out.kind, exit::CALL | exit::CALL_INDIRECT) {
            forget_call(&block, u32::from(out.instructions) - 1);
        }
    }
    let block = BLOCKS.get(number);
    BLOCKS.set(number, Block { flags: block.flags | block_flag::DEAD, prologue: 0, ..block });
}

/// Removes the real call of an instruction of a block, if the block contains it.
fn forget_call(block: &Block, index: u32) {
    let pc = address_of(block, index);
    if CALL_AT.get(pc).wrapping_sub(block.cache) < u64::from(block.cache_length) {
        CALL_AT.set(pc, 0);
        let next = pc + u64::from(STEPS.get(block.steps + index).length);
        close(LANDING_AT.get(next));
        LANDING_AT.set(next, 0);
    }
}

/// The address of an instruction of a block.
pub fn address_of(block: &Block, index: u32) -> u64 {
    if index == 0 { block.pc } else { STEPS.get(block.steps + index - 1).next }
}

/// A place in translated code.
pub struct Position {
    /// The block.
    pub block: u32,
    /// The instruction to which it belongs.
    pub index: u32,
    /// Where the translation of that instruction begins.
    pub begin: u64,
}

/// Which instruction of which block an address in a cache belongs to; an address in a side exit belongs to the last
/// instruction.
pub fn locate(address: u64) -> Option<Position> {
    let home = cache::containing(address)?;
    let (mut low, mut high) = (0, CACHES.get(home).blocks);
    while low < high {
        let middle = (low + high) / 2;
        if BLOCKS.get(BY_CACHE.get(home * BY_CACHE_ROOM + middle)).cache <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let number = BY_CACHE.get(home * BY_CACHE_ROOM + low.checked_sub(1)?);
    let block = BLOCKS.get(number);
    if address - block.cache >= u64::from(block.cache_length) {
        return None;
    }
    let mut begin = block.cache;
    for index in 0..u32::from(block.instructions) {
        let end = begin + u64::from(STEPS.get(block.steps + index).cached);
        if address < end {
            return Some(Position { block: number, index, begin });
        }
        begin = end;
    }
    // Behind the path are its side exits, in order.
    let offset = (address - block.cache) as u32;
    let outs = (block.first_exit..block.first_exit + u32::from(block.exits)).map(|out| EXITS.get(out));
    let out = outs.filter(|out| out.log_at <= offset).max_by_key(|out| out.log_at)?;
    Some(Position { block: number, index: u32::from(out.instructions) - 1, begin: address })
}

/// The length of an entry of the log in bytes.
pub const ENTRY: u64 = 4;

/// How far code has written an exit's entry to the log ([`crate::emit::Emitter::log`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EntryPhase {
    /// The log's pointer is not loaded yet.
    Begins,
    /// The pointer is in the exit's register.
    Loaded,
    /// The number is in the log.
    Stored,
    /// The register is behind the entry.
    Advanced,
}

/// The exit of a block whose entry of the log is being written at `address`, and how far it is written.
pub fn logging(block: &Block, address: u64) -> Option<(u32, EntryPhase)> {
    /// Lengths of the instructions that load the pointer and advance it.
    const LOAD: u32 = 9;
    const ADVANCE: u32 = 4;
    let offset = (address - block.cache) as u32;
    for number in block.first_exit..block.first_exit + u32::from(block.exits) {
        let out = EXITS.get(number);
        let register = if out.register == crate::state::SPILLED { crate::emit::RCX } else { out.register };
        // The length of the instruction that stores the number.
        let store = 6 + u32::from(register & 7 == 5) + u32::from(register >= 8);
        match offset.wrapping_sub(out.log_at) {
            0 => return Some((number, EntryPhase::Begins)),
            LOAD => return Some((number, EntryPhase::Loaded)),
            _ if block.flags & block_flag::SILENT != 0 => {}
            done if done == LOAD + store => return Some((number, EntryPhase::Stored)),
            done if done == LOAD + store + ADVANCE => return Some((number, EntryPhase::Advanced)),
            _ => {}
        }
    }
    None
}

/// Whether the program stands before the last instruction at an exit of this kind when the exit is written.
pub fn stands_before(kind: u8) -> bool {
    use exit::{CALL, CALL_INDIRECT, FAR_RETURN, JUMP_INDIRECT, RETURN, SYSCALL};
    matches!(kind, CALL | CALL_INDIRECT | JUMP_INDIRECT | RETURN | SYSCALL | FAR_RETURN)
}
