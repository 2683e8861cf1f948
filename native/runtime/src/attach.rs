//! Threads of a program that ran before it was recorded.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{
    context::Context,
    dispatch,
    frame::DISABLED,
    layout::{ARENA, ATTACHED, Attached, done, kind},
    log, raw, select, signal,
    signal::RAISED,
    slot, start,
    state::{TABLE_SLOT, lock},
    sys::{self, errno, nr},
    table,
};

/// Called by `hodo_attach` on a stack of its own, with all signals blocked; `vectors`: where `xmm0` to `xmm15` are. Returns
/// 0 if the thread is recorded from here on.
pub extern "C" fn hodo_attached(_description: u64, vectors: u64) -> u64 {
    // All threads are described at this address, one after the other.
    let thread: &Attached = raw::shared(ARENA + ATTACHED);
    // Before its stack for signals is replaced.
    let mut alternative = [0u64, DISABLED, 0];
    sys::call3(nr::SIGALTSTACK, 0, alternative.as_mut_ptr() as u64, 0);
    let mask = thread.mask.load(Acquire);
    // The first thread that enters may be a new one, which has no sequences yet and is about to ask for them.
    KNOWS_SEQUENCES.store(1, Relaxed);
    let context = if thread.first.load(Relaxed) != 0 { start::process(mask) } else { further(mask) };
    let Some(context) = context else {
        finish(thread, done::REFUSED);
        return 1;
    };
    for (to, from) in context.registers.iter().zip(&thread.registers) {
        to.set(from.load(Relaxed));
    }
    for (index, to) in context.vectors.iter().enumerate() {
        to.set(raw::read(vectors + index as u64 * 16));
    }
    context.flags.set(thread.flags.load(Relaxed));
    // The kernel says whether the thread is on that stack; that follows from its stack pointer.
    context.alternative.set([alternative[0], alternative[1] & DISABLED, alternative[2]]);
    let pc = thread.pc.load(Relaxed);
    let [address, length, signature] = thread.sequences.each_ref().map(|word| word.load(Relaxed));
    const UNREGISTER: u64 = 1;
    let sequences = [address, length, UNREGISTER, signature, 0, 0];
    if address != 0 && sys::call(nr::RSEQ, sequences) == 0 {
        context.sequences.set([address, length, signature]);
    }
    log::go_on_at(context, pc);
    context.pc.set(pc);
    finish(thread, done::RECORDED);
    signal::set_mask(mask & !RAISED);
    dispatch::go(context, pc);
    0
}

/// Not 0 in a process that ran before it was recorded: it may know that the kernel has restartable sequences.
static KNOWS_SEQUENCES: AtomicU32 = AtomicU32::new(0);

/// `rseq`. Restartable sequences are not restarted in translated code. For a program whose first call this is, the call fails, and
/// it does without them. In a process that ran before it was recorded, the call succeeds here, and the recorder makes it when
/// the program gets its own code back.
pub fn sequences(context: &Context, [address, length, flags, signature, ..]: [u64; 6]) -> u64 {
    if KNOWS_SEQUENCES.load(Relaxed) == 0 {
        return errno::ENOSYS;
    }
    context.sequences.set(if flags == 0 { [address, length, signature] } else { [0; 3] });
    0
}

/// The state of another thread of the process.
fn further(mask: u64) -> Option<&'static Context> {
    let context = slot::take(kind::LOG)?;
    let table: &Context = raw::shared(TABLE_SLOT.load(Relaxed));
    context.table_key.set(table.key.get());
    context.actions.set(start::actions());
    context.blocked.set(mask & RAISED);
    slot::enter(context);
    slot::publish(context);
    select::begin(context);
    let _lock = lock();
    table::name(context.thread.get());
    Some(context)
}

fn finish(thread: &Attached, how: u32) {
    thread.done.store(how, Release);
    sys::wake(&raw const thread.done as u64);
}
