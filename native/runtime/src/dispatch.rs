//! What happens when translated code leaves for the runtime.

use core::sync::atomic::Ordering::Relaxed;

use crate::{
    calls,
    context::{Context, pending, reason},
    far, flush,
    hold::HOLD,
    layout::{END, IMAGE, TARGETS},
    link, log, raw, signal,
    state::{self, BLOCKS, LINKS, Lock, lock},
    stubs, sys, table, targets,
    translate::{CALL_BIT, FAR_BIT, block_at},
    wire::note,
};

/// Entered from the stubs with the program's state in the context. Sets where to continue.
pub extern "C" fn hodo_dispatch(context: &Context) {
    if context.pending.get() == pending::POISONED {
        context.cure();
        context.pending.set(pending::NOTED);
    }
    if flush::is_due() {
        flush::flush(context);
    }
    match context.reason.get() {
        reason::MISS => missed(context, context.target.get()),
        reason::AT_PC => go(context, context.pc.get()),
        link if link as u32 & CALL_BIT != 0 => calls::system_call(context, link as u32 & !CALL_BIT),
        link if link as u32 & FAR_BIT != 0 => far::go(context, link as u32 & !FAR_BIT),
        link => follow_link(context, link as u32),
    }
    signal::next_queued(context);
}

/// A signal waits, and the program's state is complete: it is delivered by the next instruction.
pub extern "C" fn hodo_poison() {
    let context = raw::context();
    context.pending.set(pending::DELIVERING);
    context.resume.set(stubs::address(stubs::hodo_deliver));
}

/// Continues at an address of the program.
pub fn go(context: &Context, pc: u64) {
    let lock = lock();
    let block = block_at(pc);
    resume(context, pc, block, lock);
}

/// Continues in a block, which was found while the lock was held.
pub fn resume(context: &Context, pc: u64, block: Option<u32>, lock: Lock) {
    context.pc.set(pc);
    context.hold_at_resume.set(HOLD.load(Relaxed));
    if let Some(block) = block {
        return context.resume.set(BLOCKS.get(block).cache);
    }
    drop(lock);
    let own = (IMAGE..END).contains(&pc) || crate::cache::containing(pc).is_some();
    // There is code, but no room for its translation, until all others are removed.
    if !own && crate::regions::executable_from(pc) != 0 && flush::flush(context) {
        let _lock = state::lock();
        context.hold_at_resume.set(HOLD.load(Relaxed));
        if let Some(block) = block_at(pc) {
            return context.resume.set(BLOCKS.get(block).cache);
        }
    }
    unreachable_code(context, pc, own);
}

/// No code can be translated at `pc`. The processor raises the program's fault when it jumps there itself.
fn unreachable_code(context: &Context, pc: u64, own: bool) {
    let lock = lock();
    if own {
        table::note(note::JUMPED_INTO, pc);
    } else if crate::regions::executable_from(pc) != 0 {
        table::note(note::NO_ROOM, pc);
        log::lost(context, note::NO_ROOM);
    }
    drop(lock);
    // The program must not run code of the runtime: it continues in the guard page of the log, which is not executable.
    context.resume.set(if own { context.log_end() } else { pc });
}

fn follow_link(context: &Context, number: u32) {
    let link = LINKS.get(number);
    let lock = lock();
    let block = block_at(link.target);
    if let Some(block) = block {
        link::connect(number, block);
    }
    resume(context, link.target, block, lock);
}

/// The table of targets has no landing, or another one, for the target.
fn missed(context: &Context, target: u64) {
    let lock = lock();
    let block = block_at(target);
    if let Some(block) = block {
        let landing = link::landing(target, block);
        if landing != 0 {
            raw::write(context.private() + TARGETS + targets::index(target) * 8, landing);
        }
    }
    resume(context, target, block, lock);
}

/// Ends the process with a message: the runtime itself is broken. `position`, an instruction or a line, and `address` are printed.
pub fn broken(what: &str, position: u64, address: u64) -> ! {
    const STANDARD_ERROR: u64 = 2;
    let say =
        |bytes: &[u8]| sys::call3(sys::nr::WRITE, STANDARD_ERROR, bytes.as_ptr() as u64, bytes.len() as u64);
    say(what.as_bytes());
    for value in [position, address] {
        let mut digits = *b" 0000000000000000";
        for (index, digit) in digits[1..].iter_mut().rev().enumerate() {
            *digit = b"0123456789abcdef"[(value >> (4 * index) & 15) as usize];
        }
        say(&digits);
    }
    say(b"\n");
    loop {
        sys::call3(sys::nr::EXIT_GROUP, 127, 0, 0);
    }
}
