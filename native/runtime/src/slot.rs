//! Slots of the arena: the memory that a thread, or the table of a process, shares with the recorder.

use core::{
    mem::offset_of,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Relaxed, Release},
    },
};

use crate::{
    context::{Context, inside, pending},
    hold::HOLD,
    layout::{
        GUARD_BYTES, HOST_STACK, HOST_STACK_BEGIN, LOG_BYTES, PRIVATE_END, SIGNAL_STACK, SIGNAL_STACK_BYTES,
        SLOT_STRIDE, SLOTS, TARGET_BITS, TARGETS, TARGETS_OF, TO_PRIVATE, slot_address, slot_state,
    },
    limits,
    log::arena,
    raw, select, stubs, sys,
};

/// How often [`take`] looks for a free slot, and the milliseconds between: two seconds in all.
const TRIES: u32 = 200;
const PAUSE_MS: u64 = 10;
/// Protection of memory, as `mmap` takes it.
const READ_WRITE: u64 = 3;

/// Takes a slot. `None` if all are in use, or there is no memory.
pub fn take(kind: u32) -> Option<&'static Context> {
    // Slots of threads that ended become free when the recorder has read them.
    for _ in 0..TRIES {
        let found = (0..SLOTS).find_map(|index| Some((index, try_take(slot_address(index))?)));
        if let Some((index, slot)) = found {
            arena().slots_used.fetch_max(index as u32 + 1, AcqRel);
            if prepare(slot, kind) {
                return Some(slot);
            }
            state_of(slot_of(slot)).store(slot_state::FREE, Release);
            return None;
        }
        if !crate::log::open() {
            return None;
        }
        sys::wait(&raw const arena().emptied as u64, arena().emptied.load(Relaxed), PAUSE_MS);
    }
    None
}

fn state_of(address: u64) -> &'static core::sync::atomic::AtomicU32 {
    raw::atomic(state_address_at(address))
}

fn try_take(address: u64) -> Option<&'static Context> {
    let state = state_of(address);
    if state.load(Relaxed) != slot_state::FREE {
        return None;
    }
    state.compare_exchange(slot_state::FREE, slot_state::TAKEN, AcqRel, Relaxed).ok()?;
    Some(raw::shared(address))
}

/// Slots whose private memory this process may have in use: a bit for each.
static USED: [AtomicU64; SLOTS as usize / 64] = [const { AtomicU64::new(0) }; SLOTS as usize / 64];
/// When slots were last searched for memory that is not needed.
static SEARCHED: AtomicU64 = AtomicU64::new(0);
/// Slots from this one on are in use only while there are many threads.
const MANY: u64 = 64;
/// Memory that was not in use for so long is given back: about a second of the time-stamp counter.
const LONG: u64 = 1 << 31;

fn used_bit(address: u64) -> (&'static AtomicU64, u64) {
    let index = (address - slot_address(0)) / SLOT_STRIDE;
    (&USED[(index / 64) as usize % USED.len()], 1 << (index % 64))
}

/// Gives back the memory of a thread that ends, and from time to time that of threads that ended before. Memory that the next
/// threads probably use again is kept.
pub fn spare(ending: &Context) {
    if ending.address.get() >= slot_address(MANY) {
        // All but its stack.
        let private = ending.private();
        sys::forget(private, HOST_STACK_BEGIN);
        sys::forget(private + SIGNAL_STACK, PRIVATE_END - SIGNAL_STACK);
    }
    let now = sys::tsc();
    let searched = SEARCHED.load(Relaxed);
    if now.wrapping_sub(searched) < LONG || SEARCHED.compare_exchange(searched, now, AcqRel, Relaxed).is_err()
    {
        return;
    }
    for index in 0..u64::from(arena().slots_used.load(Relaxed)) {
        let address = slot_address(index);
        let (word, bit) = used_bit(address);
        if word.load(Relaxed) & bit == 0 {
            continue;
        }
        // Nobody else takes it meanwhile.
        let Some(slot) = try_take(address) else { continue };
        if now.saturating_sub(slot.first_tsc.get()) > LONG {
            sys::forget(address + TO_PRIVATE, PRIVATE_END);
            word.fetch_and(!bit, Relaxed);
        }
        state_of(address).store(slot_state::FREE, Release);
    }
}

/// Returns whether there was memory.
fn prepare(slot: &Context, kind: u32) -> bool {
    let address = slot_of(slot);
    sys::protect(address + crate::layout::LOG + crate::layout::LOG_BYTES, GUARD_BYTES, 0);
    // It is mapped already if an earlier thread of this process had the slot.
    let mapped = limits::map(address + TO_PRIVATE, PRIVATE_END, READ_WRITE);
    if sys::failed(mapped) && mapped != sys::errno::EEXIST {
        return false;
    }
    let (word, bit) = used_bit(address);
    word.fetch_or(bit, Relaxed);
    slot.address.set(address);
    let every = u64::from(arena().every.load(Relaxed)) * size_of::<u32>() as u64;
    // The table of a process is no log.
    let window = if kind == crate::layout::kind::LOG && every != 0 {
        every.clamp(64, LOG_BYTES / 2)
    } else {
        LOG_BYTES
    };
    slot.window.set(slot.log_end() - window);
    slot.pointer.set(slot.window.get());
    slot.staged.set(slot.log());
    slot.kind.set(kind);
    slot.pending.set(pending::NONE);
    slot.key.set(arena().last_key.fetch_add(1, Relaxed) + 1);
    slot.sequence.set(0);
    slot.first_tsc.set(sys::tsc());
    slot.real_pointer.set(0);
    slot.reset_silent();
    slot.blocked.set(0);
    slot.dropping.set(0);
    slot.inside.store(inside::RUNTIME, Relaxed);
    slot.borrows.set(0);
    slot.skips.store((kind == crate::layout::kind::LOG && select::is_partial()).into(), Relaxed);
    slot.queued.set(0);
    slot.waits.set(0);
    slot.sequences.set([0; 3]);
    slot.forked.set(0);
    slot.since_search.set(0);
    slot.host_stack.set(slot.private() + HOST_STACK);
    true
}

fn slot_of(slot: &Context) -> u64 {
    slot as *const Context as u64
}

/// Lets the recorder see a slot of this thread.
pub fn publish(slot: &Context) {
    slot.process.set(sys::call3(sys::nr::GETPID, 0, 0, 0) as u32);
    slot.thread.set(sys::call3(sys::nr::GETTID, 0, 0, 0) as u32);
    state_of(slot.address.get()).store(slot_state::LIVE, Release);
}

/// Gives back a slot that was not used.
pub fn give_back(slot: &Context) {
    state_of(slot.address.get()).store(slot_state::FREE, Release);
}

/// Makes the slot the state of this thread: its segment, its stack for signals, its table of targets.
pub fn enter(slot: &Context) {
    const ARCH_SET_GS: u64 = 0x1001;
    sys::call3(sys::nr::ARCH_PRCTL, ARCH_SET_GS, slot.address.get(), 0);
    let stack = [slot.private() + SIGNAL_STACK, 0, SIGNAL_STACK_BYTES];
    sys::call3(sys::nr::SIGALTSTACK, stack.as_ptr() as u64, 0, 0);
    // An earlier thread of this process may have left a table of the same code.
    let hold = HOLD.load(Relaxed);
    if hold & 1 != 0 || raw::read::<u64>(slot.private() + TARGETS_OF) != u64::from(hold) + 1 {
        forget_targets(slot);
    }
}

/// Empties the table of targets.
pub fn forget_targets(slot: &Context) {
    let hold = u64::from(HOLD.load(Relaxed));
    raw::write(slot.private() + TARGETS_OF, hold + 1 + (hold & 1));
    let miss = stubs::address(stubs::hodo_enter_miss);
    for index in 0..1 << TARGET_BITS {
        raw::write(slot.private() + TARGETS + index * 8, miss);
    }
}

/// Where the state of a slot is.
pub fn state_address(slot: &Context) -> u64 {
    state_address_at(slot.address.get())
}

/// Where the state of the slot at an address is.
pub fn state_address_at(address: u64) -> u64 {
    address + offset_of!(Context, state) as u64
}
