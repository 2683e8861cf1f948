//! Brings the threads of a process out of translated code: to remove all of it, or to give the program its own code back.

use core::sync::atomic::{AtomicU32, Ordering::*};

use crate::{
    cache,
    context::{Context, inside, pending, register},
    dispatch,
    frame::Frame,
    layout::{kind, slot_address, slot_state},
    log::{self, arena},
    raw, signal, slot, stubs, sys,
    sys::{errno, nr},
};

/// Odd while a thread waits for all others, which stay in the runtime; it grows by two each time. A thread goes to translated
/// code only if this has not changed since the thread looked that code up.
pub static HOLD: AtomicU32 = AtomicU32::new(0);

/// The signal that fetches a thread out of translated code. Its kind is never blocked.
pub const SIGNAL: u32 = 7;
/// Its `si_code`, which no program uses.
pub const CODE: i32 = -0x484f;
const MILLISECONDS: u64 = 1;

/// The slots of the threads that run the same translated code as `context`'s, other than itself.
pub fn others(context: &Context) -> impl Iterator<Item = &'static Context> {
    let (own, table) = (context.address.get(), context.table_key.get());
    (0..u64::from(arena().slots_used.load(Acquire))).filter_map(move |index| {
        let address = slot_address(index);
        let other: &Context = raw::shared(address);
        let live = raw::atomic(slot::state_address_at(address)).load(Acquire) == slot_state::LIVE;
        (live && address != own && other.kind.get() == kind::LOG && other.table_key.get() == table)
            .then_some(other)
    })
}

/// Runs `action` while no other thread of the process is in translated code, and with the lock held. `false` if another
/// thread does that already.
pub fn alone(context: &Context, action: impl FnOnce()) -> bool {
    let before = HOLD.load(SeqCst);
    if before & 1 != 0 || HOLD.compare_exchange(before, before + 1, SeqCst, Relaxed).is_err() {
        return false;
    }
    loop {
        let mut running = 0;
        for other in others(context) {
            running += u32::from(other.inside.load(SeqCst) == inside::CODE && fetch(other));
        }
        if running == 0 {
            break;
        }
        sys::wait(&raw const HOLD as u64, before + 1, MILLISECONDS);
    }
    let lock = crate::state::lock();
    action();
    drop(lock);
    HOLD.store(before + 2, SeqCst);
    sys::wake(&raw const HOLD as u64);
    true
}

/// Sends a thread the signal that fetches it. `false` if there is no such thread any more.
fn fetch(other: &Context) -> bool {
    let mut info = [0u32; 32];
    (info[0], info[2]) = (SIGNAL, CODE as u32);
    let (process, thread) = (u64::from(other.process.get()), u64::from(other.thread.get()));
    let arguments = [process, thread, SIGNAL.into(), info.as_ptr() as u64, 0, 0];
    !sys::failed(sys::call(nr::RT_TGSIGQUEUEINFO, arguments))
}

/// The signal of `fetch` arrived.
pub fn fetched(context: &Context, frame: Frame) {
    if context.pending.get() != pending::NONE {
        return;
    }
    let rip = frame.rip();
    if cache::containing(rip).is_some() {
        signal::wait_for_exit(context, frame);
    } else if rip == stubs::address(stubs::hodo_call_end) && frame.register(register::RAX) == errno::EINTR {
        // It had just begun a system call, which is made again.
        frame.set_rip(stubs::address(stubs::hodo_call_interrupted));
    }
}

/// The thread must not go back to translated code yet.
pub extern "C" fn hodo_park() {
    let context = raw::context();
    // A signal that waits is delivered first.
    let Some(mask) = signal::block(context) else { return };
    loop {
        let hold = HOLD.load(Acquire);
        if hold & 1 == 0 {
            break;
        }
        sys::wait(&raw const HOLD as u64, hold, 20 * MILLISECONDS);
    }
    context.mask.set(mask);
    while arena().leaving.load(Acquire) != 0 && context.borrows.get() == 0 {
        if !log::open() {
            arena().leaving.store(0, Release);
        }
        context.inside.store(inside::PARKED, SeqCst);
        sys::wait(&raw const arena().leaving as u64, 1, 200 * MILLISECONDS);
    }
    context.inside.store(inside::RUNTIME, SeqCst);
    signal::set_mask(mask);
    dispatch::go(context, context.pc.get());
}
