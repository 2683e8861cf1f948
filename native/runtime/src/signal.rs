//! Signals. The kernel knows one handler, the runtime's; the program's handlers are virtual.
//!
//! A signal that arrives while translated code runs poisons the log's pointer: the next exit's entry faults, and there the
//! program's state is exact. One that arrives in the runtime waits until the runtime is left. Until it is delivered all
//! others are blocked. What the processor itself raises is mapped back to the program's instruction at once.

use crate::{
    cache,
    calls::Outcome,
    context::{Context, pending, register},
    emit::RCX,
    frame::{self, Frame},
    hold,
    layout::POISON,
    link::{self, ENTRY, EntryPhase},
    log, pages, raw,
    state::{BLOCKS, Block, EXITS, SPILLED, block_flag, lock},
    stubs, sys,
    sys::{errno, nr},
    wire::{escape, exit},
};

/// Signals that the processor raises: the runtime always handles them, and never blocks them.
pub const RAISED: u64 = 1 << (SEGV - 1) | 1 << (BUS - 1) | 1 << (FPE - 1) | 1 << (ILL - 1) | 1 << (TRAP - 1);
const ILL: u32 = 4;
const TRAP: u32 = 5;
const BUS: u32 = 7;
const FPE: u32 = 8;
const SEGV: u32 = 11;
/// The greatest number of a signal.
const LAST: u64 = 64;
/// From the entry of an exit to its end there are fewer bytes.
const LONGEST_EXIT: u64 = 200;

/// `struct sigaction` as the kernel has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Action {
    /// The handler, [`DEFAULT`] or [`IGNORE`].
    pub handler: u64,
    /// Bits of [`flag`].
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals that are blocked meanwhile.
    pub mask: u64,
}

/// Handler of an [`Action`]: what the kernel does by default.
pub const DEFAULT: u64 = 0;
/// Handler of an [`Action`]: nothing.
pub const IGNORE: u64 = 1;
/// How a call of `rt_sigprocmask` changes the mask.
mod how {
    pub(super) const BLOCK: u64 = 0;
    pub(super) const UNBLOCK: u64 = 1;
    pub(super) const SETMASK: u64 = 2;
}

/// Size of a set of signals, in bytes.
const SET_BYTES: u64 = 8;

/// Offsets in `siginfo`.
const SI_CODE: u64 = 8;
const SI_ADDRESS: u64 = 16;

/// Flags of an [`Action`].
pub mod flag {
    #![allow(missing_docs)]
    pub const NOCLDSTOP: u64 = 1;
    pub const NOCLDWAIT: u64 = 2;
    pub const SIGINFO: u64 = 4;
    pub const ONSTACK: u64 = 0x0800_0000;
    pub const RESTART: u64 = 0x1000_0000;
    pub const NODEFER: u64 = 0x4000_0000;
    pub const RESETHAND: u64 = 0x8000_0000;
    pub const RESTORER: u64 = 0x0400_0000;
}

/// The number of bytes of the table of handlers, which is indexed by signals; there is no signal 0.
pub const ACTION_BYTES: u64 = (LAST + 1) * size_of::<Action>() as u64;

/// The program's handler of a signal.
pub fn action_of(context: &Context, number: u32) -> Action {
    raw::read(context.actions.get() + u64::from(number) * size_of::<Action>() as u64)
}

/// Sets the program's handler of a signal.
pub fn set_action(context: &Context, number: u32, action: Action) {
    raw::write(context.actions.get() + u64::from(number) * size_of::<Action>() as u64, action);
}

/// Registers the handler that stands for the program's with the kernel.
pub fn install(number: u32, action: &Action) -> u64 {
    let own = Action {
        handler: hodo_signal as *const () as usize as u64,
        flags: flag::SIGINFO
            | flag::ONSTACK
            | flag::RESTORER
            | action.flags & (flag::RESTART | flag::NOCLDSTOP | flag::NOCLDWAIT),
        restorer: stubs::address(stubs::hodo_restore),
        mask: !RAISED,
    };
    let raised = RAISED >> (number - 1) & 1 != 0;
    let known = if action.handler > IGNORE || raised { &own } else { action };
    sys::call(nr::RT_SIGACTION, [u64::from(number), known as *const Action as u64, 0, SET_BYTES, 0, 0])
}

/// `rt_sigaction`.
pub fn action(context: &Context, number: u64, new: u64, old: u64) -> u64 {
    if number == 0 || number > LAST {
        return errno::EINVAL;
    }
    let number = number as u32;
    let before = action_of(context, number);
    if new != 0 {
        let mut action = before;
        if raw::copy(&raw mut action as u64, new, size_of::<Action>() as u64) != 0 {
            return errno::EFAULT;
        }
        // While a signal waits, its handler is the one that was there when it came.
        set_action(context, number, action);
        let result = install(number, &action);
        if result != 0 {
            set_action(context, number, before);
            return result;
        }
    }
    if old != 0 && raw::copy(old, &raw const before as u64, size_of::<Action>() as u64) != 0 {
        return errno::EFAULT;
    }
    0
}

/// Sets the mask of this thread.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let [new, before] = [&raw const mask as u64, &raw mut old as u64];
    sys::call(nr::RT_SIGPROCMASK, [how::SETMASK, new, before, SET_BYTES, 0, 0]);
    old
}

/// The mask of this thread.
pub fn current_mask() -> u64 {
    let mut mask = 0u64;
    let no_change = 0;
    sys::call(nr::RT_SIGPROCMASK, [how::BLOCK, no_change, &raw mut mask as u64, SET_BYTES, 0, 0]);
    mask
}

/// Blocks all signals that can wait; returns the mask before. `None` if one waits already.
pub fn block(context: &Context) -> Option<u64> {
    let before = set_mask(!RAISED);
    (context.pending.get() == pending::NONE).then_some(before)
}

/// `rt_sigprocmask`.
pub fn mask(context: &Context, [how, new, old, size, ..]: [u64; 6]) -> Outcome {
    let Some(kernel) = block(context) else { return Outcome::Interrupted };
    let before = kernel | context.blocked.get();
    let (after, result) = match changed_mask(before, how, new) {
        _ if size != SET_BYTES => (before, errno::EINVAL),
        Ok(after) => (after, 0),
        Err(error) => (before, error),
    };
    context.blocked.set(after & RAISED);
    set_mask(after & !RAISED);
    if result == 0 && old != 0 && !raw::set_word(old, before) {
        return Outcome::Done(errno::EFAULT);
    }
    Outcome::Done(result)
}

fn changed_mask(before: u64, how: u64, new: u64) -> Result<u64, u64> {
    const KILL_AND_STOP: u64 = 1 << 8 | 1 << 18;
    if new == 0 {
        return Ok(before);
    }
    let wanted = raw::word(new).ok_or(errno::EFAULT)? & !KILL_AND_STOP;
    match how {
        how::BLOCK => Ok(before | wanted),
        how::UNBLOCK => Ok(before & !wanted),
        how::SETMASK => Ok(wanted),
        _ => Err(errno::EINVAL),
    }
}

/// `sigaltstack`.
pub fn alternative(context: &Context, new: u64, old: u64) -> u64 {
    const IN_USE: u64 = 1;
    const DISABLE: u64 = 2;
    const SMALLEST: u64 = 2048;
    let [address, flags, size] = context.alternative.get();
    let inside = context.register(register::RSP).wrapping_sub(address) <= size && size != 0;
    let mut next = [0u64; 3];
    if new != 0 && raw::copy(next.as_mut_ptr() as u64, new, 24) != 0 {
        return errno::EFAULT;
    }
    let in_use = if inside { IN_USE } else { 0 };
    let before = [address, flags & !IN_USE | in_use, size];
    if new != 0 {
        if inside {
            return errno::EPERM;
        }
        next[1] &= 0xffff_ffff;
        if next[1] & DISABLE != 0 {
            next = [0, DISABLE, 0];
        } else if next[2] < SMALLEST {
            return errno::ENOMEM;
        }
        context.alternative.set(next);
    }
    if old != 0 && raw::copy(old, before.as_ptr() as u64, 24) != 0 {
        return errno::EFAULT;
    }
    0
}

/// The runtime's handler.
extern "C" fn hodo_signal(number: u32, info: u64, frame: u64) {
    let context = raw::context();
    let frame = Frame::new(frame);
    let code: i32 = raw::read(info + SI_CODE);
    if (number, code) == (hold::SIGNAL, hold::CODE) {
        return hold::fetched(context, frame);
    }
    let raised = RAISED >> (number - 1) & 1 != 0 && code > 0;
    if raised {
        handle_raised(context, number, info, frame);
    } else {
        arrive(context, number, info, frame);
    }
}

fn handle_raised(context: &Context, number: u32, info: u64, frame: Frame) {
    let rip = frame.rip();
    let address: u64 = raw::read(info + SI_ADDRESS);
    if (stubs::address(stubs::hodo_copy_fault)..stubs::address(stubs::hodo_copy_end)).contains(&rip) {
        // Nothing is copied to the program while this thread has the lock.
        let may_write = frame.is_write() && {
            let _lock = lock();
            pages::written(address)
        };
        if !may_write {
            frame.set_rip(stubs::address(stubs::hodo_copy_end));
        }
        return;
    }
    if rip == stubs::address(stubs::hodo_deliver) {
        frame.set_rip(context.pc.get());
        // If an indirect branch found no translation, only this entry says where it led.
        log::go_on_at(context, context.pc.get());
        return deliver_waiting(context, frame);
    }
    let end = context.log_end();
    if number == SEGV && address == end && rip != end && context.pending.get() != pending::POISONED {
        return next_buffer(context, frame, end);
    }
    if number == SEGV && address == end + POISON {
        return at_exit(context, frame);
    }
    // A fault at the program's `pc` is its own, as is one at `end`, where its jumps into the runtime are led.
    let own = (crate::layout::IMAGE..crate::layout::END).contains(&rip);
    if own && rip != context.pc.get() && rip != end {
        crate::dispatch::broken("hodo: the recorder's runtime failed", rip, address);
    }
    fault(context, number, info, frame, address);
}

/// The log is full: it goes to the recorder, and the entry is written at its begin.
fn next_buffer(context: &Context, frame: Frame, end: u64) {
    context.pointer.set(end);
    log::next_window(context);
    crate::trace::look(context);
    crate::select::look(context);
    for number in 0..16 {
        if frame.register(number) == end && number != register::RSP {
            frame.set_register(number, context.pointer.get());
        }
    }
}

/// A signal that another thread or process sent, or a timer.
fn arrive(context: &Context, number: u32, info: u64, frame: Frame) {
    let action = action_of(context, number);
    let raised = RAISED >> (number - 1) & 1 != 0;
    if raised && action.handler == IGNORE {
        return;
    }
    let own = 1 << (number - 1);
    if raised && (context.pending.get() != pending::NONE || context.blocked.get() & own != 0) {
        // The kernel cannot keep it back; a second one of its kind is lost, as with the kernel.
        if context.queued.get() & own == 0 {
            context.queued.set(context.queued.get() | own);
            context.queued_info[queue_index(number)].set(raw::read(info));
        }
        return;
    }
    context.signal.set(number);
    context.info.set(raw::read(info));
    context.mask.set(frame.mask() | context.blocked.get());
    frame.set_mask(!RAISED);
    context.pending.set(pending::NOTED);
    let rip = frame.rip();
    let tail = stubs::address(stubs::hodo_tail);
    if (stubs::address(stubs::hodo_call_check)..stubs::address(stubs::hodo_call_end)).contains(&rip) {
        frame.set_rip(stubs::address(stubs::hodo_call_interrupted));
    } else if (tail..stubs::address(stubs::hodo_stubs_end)).contains(&rip) {
        frame.set_rip(tail);
        frame.set_register(register::RSP, context.host_stack.get());
    } else if cache::containing(rip).is_some() {
        poison(context, frame);
    }
}

fn queue_index(number: u32) -> usize {
    (RAISED & ((1 << (number - 1)) - 1)).count_ones() as usize
}

/// Delivers a signal of the processor's kinds that was sent while it had to wait.
pub fn next_queued(context: &Context) {
    if context.queued.get() & !context.blocked.get() == 0 {
        return;
    }
    let Some(mask) = block(context) else { return };
    let ready = context.queued.get() & !context.blocked.get();
    let number = ready.trailing_zeros() + 1;
    context.queued.set(context.queued.get() & !(1 << (number - 1)));
    if action_of(context, number).handler == IGNORE {
        set_mask(mask);
        return;
    }
    context.signal.set(number);
    context.info.set(context.queued_info[queue_index(number)].get());
    context.mask.set(mask | context.blocked.get());
    context.pending.set(pending::NOTED);
}

/// Lets a thread leave translated code at its next exit, without a signal of the program.
pub fn wait_for_exit(context: &Context, frame: Frame) {
    context.signal.set(0);
    context.mask.set(frame.mask() | context.blocked.get());
    frame.set_mask(!RAISED);
    poison(context, frame);
}

/// Makes the next entry of the log fault.
fn poison(context: &Context, frame: Frame) {
    let rip = frame.rip();
    let bad = context.log_end() + POISON;
    context.pending.set(pending::POISONED);
    let _lock = lock();
    context.poison_silent(bad);
    let block = link::locate(rip).map(|position| BLOCKS.get(position.block));
    let logging = block.and_then(|block| link::logging(&block, rip));
    let is_silent = block.is_some_and(|block| block.flags & block_flag::SILENT != 0);
    let Some((number, phase)) = logging.filter(|(_, phase)| *phase != EntryPhase::Begins) else {
        context.real_pointer.set(context.pointer.replace(bad));
        return;
    };
    let register = match EXITS.get(number).register {
        SPILLED => RCX,
        register => register,
    } as usize;
    if is_silent {
        context.real_pointer.set(context.pointer.replace(bad));
        frame.set_register(register, bad);
        return;
    }
    let value = frame.register(register);
    // If the number is stored, the next instruction adds the entry's length to the register.
    let is_stored = phase == EntryPhase::Stored;
    let (real, poisoned) = if is_stored { (value + ENTRY, bad - ENTRY) } else { (value, bad) };
    context.real_pointer.set(real);
    frame.set_register(register, poisoned);
}

/// The entry of an exit met the poison: the program's state is exact here.
fn at_exit(context: &Context, frame: Frame) {
    context.cure();
    let rip = frame.rip();
    let lock = lock();
    let found = link::locate(rip).and_then(|position| link::logging(&BLOCKS.get(position.block), rip));
    let Some((number, _)) = found else {
        crate::dispatch::broken("hodo: a signal met no exit", rip, 0);
    };
    let exit = EXITS.get(number);
    let block = BLOCKS.get(exit.block);
    if exit.register == SPILLED {
        frame.set_register(register::RCX, context.saved_rcx.get());
    }
    let mut pc = exit.target;
    if link::stands_before(exit.kind) {
        let before = u32::from(exit.instructions) - 1;
        pc = link::address_of(&block, before);
        record(context, &block, &[escape::PARTIAL, block.first_exit, before]);
    } else {
        record(context, &block, &[number]);
    }
    drop(lock);
    frame.set_rip(pc);
    deliver_waiting(context, frame);
}

/// Writes to the log what ran of a block, if it is selected.
fn record(context: &Context, block: &Block, words: &[u32]) {
    if block.flags & block_flag::SILENT == 0 {
        log::push(context, words);
    }
}

fn deliver_waiting(context: &Context, frame: Frame) {
    context.pending.set(pending::NONE);
    frame.set_mask(context.mask.get());
    if context.signal.get() == 0 {
        return resume(context, frame);
    }
    let info = context.info.get();
    deliver(context, context.signal.get(), info.as_ptr() as u64, frame);
}

/// Starts the program's handler; the frame contains the program's state.
fn deliver(context: &Context, number: u32, info: u64, frame: Frame) {
    let action = action_of(context, number);
    match action.handler {
        DEFAULT => die(context, number, info, frame),
        // It was set to be ignored in the meantime.
        IGNORE => resume(context, frame),
        handler => {
            // Where an indirect branch before the signal led.
            log::go_on_at(context, frame.rip());
            log::signal(context, number, handler);
            if action.flags & flag::RESETHAND != 0 {
                let default = Action { handler: DEFAULT, ..action };
                set_action(context, number, default);
                install(number, &default);
            }
            if !frame::build(context, number, info, &action, frame) {
                return die(context, SEGV, info, frame);
            }
            let own = if action.flags & flag::NODEFER != 0 { 0 } else { 1 << (number - 1) };
            let base = match context.waits.replace(0) {
                0 => frame.mask(),
                _ => context.waiting_mask.get()[0],
            };
            let mask = base | action.mask | own;
            context.blocked.set(mask & RAISED);
            frame.set_mask(mask & !RAISED);
            context.pc.set(handler);
            frame.set_rip(stubs::address(stubs::hodo_enter_pc));
        }
    }
}

/// The program continues where it stands.
fn resume(context: &Context, frame: Frame) {
    log::go_on_at(context, frame.rip());
    frame.set_mask(frame.mask() & !RAISED);
    context.pc.set(frame.rip());
    frame.set_rip(stubs::address(stubs::hodo_enter_pc));
}

/// The signal ends the process: the kernel does it.
fn die(context: &Context, number: u32, info: u64, frame: Frame) {
    log::death(context, number);
    let default = Action { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };
    let bytes = &raw const default as u64;
    sys::call(nr::RT_SIGACTION, [u64::from(number), bytes, 0, SET_BYTES, 0, 0]);
    let (process, thread) = (u64::from(context.process.get()), u64::from(context.thread.get()));
    let queued = sys::call(nr::RT_TGSIGQUEUEINFO, [process, thread, u64::from(number), info, 0, 0]);
    if queued != 0 {
        sys::call3(nr::TGKILL, process, thread, u64::from(number));
    }
    frame.set_mask(!(1 << (number - 1)));
}

/// The processor raised a signal in the program's code.
fn fault(context: &Context, number: u32, info: u64, frame: Frame, address: u64) {
    let waiting = context.pending.get() != pending::NONE;
    if waiting && context.real_pointer.get() != 0 {
        context.cure();
    }
    let lock = lock();
    let rip = frame.rip();
    let changed = number == SEGV && frame.is_write() && pages::written(address);
    let position = link::locate(rip);
    if changed && position.is_none() {
        // A write in the runtime's own copying.
        return;
    }
    let is_known = position.is_some();
    let pc = match position {
        Some(position) => restore(context, &position, frame),
        // A jump into the runtime's memory, which led to the guard page instead.
        None if rip == context.log_end() => {
            raw::write(info + SI_ADDRESS, context.pc.get());
            context.pc.get()
        }
        None => rip,
    };
    if !is_known {
        log::go_on_at(context, pc);
    }
    drop(lock);
    frame.set_rip(pc);
    if changed {
        return rewrite(context, waiting, pc, frame);
    }
    if number != SEGV && number != BUS {
        raw::write(info + SI_ADDRESS, pc);
    }
    if waiting {
        // The waiting signal comes first; the instruction raises its signal again afterwards.
        return deliver_waiting(context, frame);
    }
    let blocked = frame.mask() | context.blocked.get();
    let handler = action_of(context, number).handler;
    if blocked >> (number - 1) & 1 != 0 || handler == IGNORE {
        return die(context, number, info, frame);
    }
    frame.set_mask(blocked);
    deliver(context, number, info, frame);
}

/// Writes to the log what ran of a block, and sets borrowed registers back. Returns where the program stands.
fn restore(context: &Context, position: &link::Position, frame: Frame) -> u64 {
    let block = BLOCKS.get(position.block);
    let rip = frame.rip();
    let pc = link::address_of(&block, position.index);
    let first = block.first_exit;
    let inside = rip - position.begin;
    for number in first..first + u32::from(block.exits) {
        let out = EXITS.get(number);
        let entry = block.cache + u64::from(out.log_at);
        let after = rip > entry && rip < entry + LONGEST_EXIT;
        if u32::from(out.instructions) == position.index + 1 && link::stands_before(out.kind) && after {
            if block.flags & block_flag::SILENT == 0 {
                log::take_back(context);
            }
            // A direct call has reloaded the register after the entry; the others hold a target in it.
            if out.kind != exit::CALL {
                frame.set_register(register::RCX, context.saved_rcx.get());
            }
            return pc;
        }
    }
    // An instruction that begins with `mov gs:[SCRATCH], reg` has borrowed the register.
    let code = raw::bytes(position.begin, 9);
    if inside >= 9 && code[0] == 0x65 && code[5..9] == crate::context::offset::SCRATCH.to_le_bytes() {
        frame.set_register((code[3] >> 3 & 7) as usize, context.scratch.get());
    }
    record(context, &block, &[escape::PARTIAL, first, position.index]);
    pc
}

/// The program wrote to a page with translated code, which was removed: translates the writing instruction alone and runs it
/// again. The code that it wrote is translated anew when it runs.
fn rewrite(context: &Context, waiting: bool, pc: u64, frame: Frame) {
    if waiting {
        return deliver_waiting(context, frame);
    }
    log::go_on_at(context, pc);
    let lock = lock();
    let block = crate::translate::translate_alone(pc);
    drop(lock);
    context.pc.set(pc);
    match block {
        Some(block) => frame.set_rip(BLOCKS.get(block).cache),
        None => frame.set_rip(stubs::address(stubs::hodo_enter_pc)),
    }
}
