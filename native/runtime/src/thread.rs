//! Threads and processes that the program starts, and their end.

use core::sync::atomic::Ordering::Relaxed;

use crate::{
    calls::Outcome,
    context::{Context, register},
    dispatch,
    layout::{ACTIONS, kind},
    log, raw, select,
    signal::{self, ACTION_BYTES},
    slot,
    state::{NEXT_EXIT, TABLE_SLOT, lock, unlock_copy},
    stubs,
    sys::{self, errno, failed, nr},
    table,
    wire::{escape, note},
};

const VM: u64 = 0x100;
const SIGHAND: u64 = 0x800;
const VFORK: u64 = 0x4000;

/// What the program asks for.
struct Request {
    flags: u64,
    /// The end of the new stack, or 0.
    stack: u64,
}

fn request(number: u64, arguments: [u64; 6]) -> Option<Request> {
    Some(match number {
        nr::FORK => Request { flags: 0, stack: 0 },
        nr::VFORK => Request { flags: VM | VFORK, stack: 0 },
        nr::CLONE => Request { flags: arguments[0], stack: arguments[1] },
        _ => {
            // `struct clone_args`: the begin of the stack, and its size.
            let stack = raw::word(arguments[0] + 40)?;
            Request { flags: raw::word(arguments[0])?, stack: stack + raw::word(arguments[0] + 48)? }
        }
    })
}

/// `clone`, `clone3`, `fork` and `vfork`.
pub fn clone(context: &Context, arguments: [u64; 6], next: u64) -> Outcome {
    let number = context.register(register::RAX);
    let Some(Request { flags, stack }) = request(number, arguments) else {
        return Outcome::Done(errno::EFAULT);
    };
    let Some(mask) = signal::block(context) else { return Outcome::Interrupted };
    let Some(child) = slot::take(kind::LOG) else {
        signal::set_mask(mask);
        let _lock = lock();
        table::note(note::NO_ROOM, number);
        return Outcome::Done(errno::EAGAIN);
    };
    prepare(context, child, next);
    if stack != 0 {
        child.set_register(register::RSP, stack);
    }
    child.mask.set(mask);
    child.actions.set(context.actions.get());
    let shares = flags & VM != 0;
    if shares && flags & VFORK == 0 {
        child.alternative.set([0, crate::frame::DISABLED, 0]);
    }
    if shares && flags & SIGHAND == 0 {
        let own = child.private() + ACTIONS;
        raw::write_bytes(own, raw::bytes(context.actions.get(), ACTION_BYTES as usize));
        child.actions.set(own);
    }
    child.forked.set((!shares).into());
    child.borrows.set((flags & (VM | VFORK) == VM | VFORK).into());
    // A copy of the process begins with the lock as it is now: taken, by this thread.
    let lock = if shares { None } else { Some(lock()) };
    let result = stubs::clone(number, &arguments, child);
    drop(lock);
    if failed(result) {
        slot::give_back(child);
    }
    signal::set_mask(mask);
    Outcome::Done(result)
}

/// The child continues where the parent does, with 0 as the result.
fn prepare(context: &Context, child: &Context, next: u64) {
    for (to, from) in child.registers.iter().zip(&context.registers) {
        to.set(from.get());
    }
    for (to, from) in child.vectors.iter().zip(&context.vectors) {
        to.set(from.get());
    }
    child.flags.set(context.flags.get());
    child.set_register(register::RAX, 0);
    child.set_register(register::RCX, next);
    child.set_register(register::R11, context.flags.get());
    child.pc.set(next);
    child.alternative.set(context.alternative.get());
    child.blocked.set(context.blocked.get());
    child.table_key.set(context.table_key.get());
}

/// The first code of a new thread or process, on its own stack with its signals blocked.
pub extern "C" fn hodo_child(context: &Context) {
    slot::enter(context);
    if context.forked.replace(0) != 0 {
        own_table(context);
        unlock_copy();
    }
    slot::publish(context);
    select::begin(context);
    if context.borrows.get() == 0 {
        let _lock = lock();
        table::name(context.thread.get());
    }
    log::go_on_at(context, context.pc.get());
    log::call_end(context);
    signal::set_mask(context.mask.get());
    dispatch::go(context, context.pc.get());
}

/// A copy of a process continues its parent's table in one of its own.
fn own_table(context: &Context) {
    let Some(table) = slot::take(kind::TABLE) else {
        // The parent's table must not get the blocks of two processes.
        context.dropping.set(1);
        return;
    };
    let parent = context.table_key.get();
    TABLE_SLOT.store(table.address.get(), Relaxed);
    table.table_key.set(table.key.get());
    context.table_key.set(table.key.get());
    slot::publish(table);
    table::fork(parent, NEXT_EXIT.load(Relaxed));
    identify();
}

/// Records which process this is.
pub fn identify() {
    const GETPPID: u64 = 110;
    table::identity(sys::call3(nr::GETPID, 0, 0, 0), sys::call3(GETPPID, 0, 0, 0));
}

/// `exit`: the end of this thread.
pub fn exit(context: &Context, result: u64) -> Outcome {
    if signal::block(context).is_none() {
        return Outcome::Interrupted;
    }
    log::push(context, &[escape::END]);
    log::flush(context);
    slot::spare(context);
    stubs::exit(slot::state_address(context), result)
}
