//! The program's system calls. Most are made as they are; those that concern the runtime are changed or answered.

use crate::{
    cache,
    context::{Context, pending, register},
    exec,
    layout::{END, IMAGE},
    limits, log, pages, raw, regions, select, signal,
    state::{LINKS, lock},
    stubs::{self, INTERRUPTED},
    sys::{self, errno, failed, nr},
    table, thread,
    wire::{escape, note},
};

/// How a system call went.
pub enum Outcome {
    /// It returned this.
    Done(u64),
    /// A signal came before it, so it is made again later.
    Interrupted,
    /// The program continues elsewhere.
    Elsewhere,
}

const EXECUTE: u64 = 4;
const WRITE: u64 = 2;

/// Makes the system call of a link, whose instruction was just recorded.
pub fn system_call(context: &Context, number: u32) {
    let link = LINKS.get(number);
    let (pc, next) = (link.cold, link.target);
    context.pc.set(pc);
    if context.pending.get() != pending::NONE {
        return log::retract(context, &link);
    }
    log::call(context, context.register(register::RAX));
    match choose(context, next) {
        Outcome::Done(result) => {
            context.set_register(register::RAX, result);
            context.set_register(register::RCX, next);
            context.set_register(register::R11, context.flags.get());
            log::call_end(context);
            select::look(context);
            crate::dispatch::go(context, next);
        }
        // As if the kernel had interrupted it, to be made again.
        Outcome::Interrupted => {
            log::go_on_at(context, pc);
            context.pc.set(pc);
        }
        Outcome::Elsewhere => {}
    }
}

/// Makes the call as it is.
fn plain(context: &Context) -> Outcome {
    let released = pages::released();
    let mut result = stubs::program_call(context);
    if result == errno::EFAULT && (release() || pages::released() != released) {
        // The kernel may have met a page that only the runtime protects, or protected.
        result = stubs::program_call(context);
    }
    match result {
        INTERRUPTED => Outcome::Interrupted,
        result => Outcome::Done(result),
    }
}

/// What a register contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MaskAt {
    /// The address of a signal mask.
    Address,
    /// The address of a pair: the address of a mask, and its length.
    Pair,
}

/// A system call that sets another signal mask while it waits. The kernel must not block what the processor raises.
/// `argument`: the register that leads to the mask.
fn waits(context: &Context, argument: usize, mask_at: MaskAt) -> Outcome {
    let is_pair = mask_at == MaskAt::Pair;
    let given = context.register(argument);
    let address = if is_pair && given != 0 { raw::word(given) } else { Some(given) };
    let mask = match address {
        Some(0) => return plain(context),
        Some(address) => raw::word(address),
        None => None,
    };
    let length = if is_pair { raw::word(given + 8) } else { Some(8) };
    // The kernel reports what is inaccessible.
    let (Some(mask), Some(length)) = (mask, length) else { return plain(context) };
    let own = &raw const context.waiting_mask as u64;
    context.waiting_mask.set([mask & !signal::RAISED, 0]);
    let pair = [own, length];
    context.given.set([argument as u64, given]);
    context.waits.set(1);
    context.set_register(argument, if is_pair { pair.as_ptr() as u64 } else { own });
    let outcome = plain(context);
    context.set_register(argument, given);
    if context.pending.get() == pending::NONE || matches!(outcome, Outcome::Interrupted) {
        context.waits.set(0);
    }
    outcome
}

fn release() -> bool {
    let _lock = lock();
    pages::release()
}

fn arguments(context: &Context) -> [u64; 6] {
    use register::{R8, R9, R10, RDI, RDX, RSI};
    [RDI, RSI, RDX, R10, R8, R9].map(|number| context.register(number))
}

fn choose(context: &Context, next: u64) -> Outcome {
    let arguments = arguments(context);
    let [a, b, c, ..] = arguments;
    const ARCH_SET_GS: u64 = 0x1001;
    const ARCH_GET_GS: u64 = 0x1004;
    const SHADOW_STACKS: core::ops::RangeInclusive<u64> = 0x5001..=0x5005;
    const PR_SET_NAME: u64 = 15;
    const PR_SET_SECCOMP: u64 = 22;
    const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
    match context.register(register::RAX) {
        nr::MMAP => Outcome::Done(map(arguments)),
        nr::MUNMAP => Outcome::Done(unmap(a, b)),
        nr::MPROTECT | nr::PKEY_MPROTECT => {
            Outcome::Done(protect(context.register(register::RAX), arguments))
        }
        nr::MREMAP => Outcome::Done(remap(arguments)),
        nr::MADVISE => advise(context, a, b),
        nr::RT_SIGACTION => Outcome::Done(signal::action(context, a, b, c)),
        nr::RT_SIGPROCMASK => signal::mask(context, arguments),
        nr::RT_SIGRETURN => crate::frame::return_from_handler(context),
        nr::SIGALTSTACK => Outcome::Done(signal::alternative(context, a, b)),
        nr::CLONE | nr::CLONE3 | nr::FORK | nr::VFORK => thread::clone(context, arguments, next),
        nr::EXECVE | nr::EXECVEAT => exec::execute(context, arguments),
        nr::EXIT => thread::exit(context, a),
        nr::EXIT_GROUP => {
            log::push(context, &[escape::END]);
            plain(context)
        }
        number @ (nr::GETRLIMIT | nr::SETRLIMIT | nr::PRLIMIT64) => {
            let answer = {
                let _lock = lock();
                limits::call(context, number, arguments)
            };
            answer.map_or_else(|| plain(context), Outcome::Done)
        }
        nr::RSEQ => Outcome::Done(crate::attach::sequences(context, arguments)),
        nr::RT_SIGSUSPEND => waits(context, register::RDI, MaskAt::Address),
        nr::PPOLL => waits(context, register::R10, MaskAt::Address),
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => waits(context, register::R8, MaskAt::Address),
        nr::PSELECT6 | nr::IO_PGETEVENTS => waits(context, register::R9, MaskAt::Pair),
        nr::ARCH_PRCTL if a == ARCH_SET_GS => refused(note::SEGMENT, b, errno::EPERM),
        nr::ARCH_PRCTL if a == ARCH_GET_GS => {
            Outcome::Done(if raw::set_word(b, 0) { 0 } else { errno::EFAULT })
        }
        nr::ARCH_PRCTL if SHADOW_STACKS.contains(&a) => Outcome::Done(errno::EINVAL),
        nr::PRCTL if a == PR_SET_SECCOMP => refused(note::FILTER, b, errno::EINVAL),
        nr::PRCTL if a == PR_SET_SYSCALL_USER_DISPATCH && b != 0 => refused(note::FILTER, b, errno::EINVAL),
        nr::PRCTL if a == PR_SET_NAME => {
            let outcome = plain(context);
            let _lock = lock();
            table::name(context.thread.get());
            outcome
        }
        nr::SECCOMP if a < 2 => refused(note::FILTER, a, errno::EINVAL),
        _ => plain(context),
    }
}

fn refused(what: u32, value: u64, error: u64) -> Outcome {
    let _lock = lock();
    table::note(what, value);
    Outcome::Done(error)
}

/// Whether memory is the runtime's.
fn is_own(start: u64, end: u64) -> bool {
    start < END && end > IMAGE || cache::overlaps(start, end)
}

fn pages_of(start: u64, length: u64) -> (u64, u64) {
    (start & !4095, start.saturating_add(length).saturating_add(4095) & !4095)
}

fn map(arguments: [u64; 6]) -> u64 {
    let [address, length, protection, flags, file, offset] = arguments;
    const FIXED: u64 = 0x10;
    const FIXED_NOREPLACE: u64 = 0x10_0000;
    const ANONYMOUS: u64 = 0x20;
    let _lock = lock();
    let (start, end) = pages_of(address, length);
    if flags & (FIXED | FIXED_NOREPLACE) != 0 && length != 0 && is_own(start, end) {
        table::note(note::OWN_MEMORY, address);
        return errno::ENOMEM;
    }
    let result = sys::call(nr::MMAP, arguments);
    if failed(result) {
        return result;
    }
    let (start, end) = pages_of(result, length);
    pages::forget(start, end);
    regions::remove(start, end);
    if protection & EXECUTE != 0 {
        let generated = flags & ANONYMOUS != 0;
        let writable = if protection & WRITE != 0 { regions::flag::WRITABLE } else { 0 };
        let origin = if generated || writable != 0 { regions::flag::GENERATED } else { 0 };
        regions::add(start, end, writable | origin);
        let mut name = [0; 512];
        let length = if generated { 0 } else { name_of(file, &mut name) };
        if !generated && flags & 3 == 1 && writable != 0 {
            table::note(note::SHARED_CODE, start);
        }
        table::map(start, end - start, offset, protection, &name[..length]);
    }
    result
}

/// Writes the path of an open file to `name`; returns its length.
fn name_of(file: u64, name: &mut [u8; 512]) -> usize {
    let mut path = *b"/proc/self/fd/0000000000\0";
    let mut value = file as u32;
    for digit in path[14..24].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    // The kernel accepts no leading zeros there.
    let zeros = path[14..23].iter().take_while(|&&digit| digit == b'0').count();
    path.copy_within(14 + zeros.., 14);
    let length = sys::call3(nr::READLINK, path.as_ptr() as u64, name.as_mut_ptr() as u64, 512);
    if failed(length) { 0 } else { length as usize }
}

fn unmap(address: u64, length: u64) -> u64 {
    let _lock = lock();
    let (start, end) = pages_of(address, length);
    if length != 0 && is_own(start, end) {
        table::note(note::OWN_MEMORY, address);
        return errno::EINVAL;
    }
    let result = sys::call3(nr::MUNMAP, address, length, 0);
    if result == 0 {
        forget_unmapped(start, end);
    }
    result
}

fn forget_unmapped(start: u64, end: u64) {
    pages::forget(start, end);
    if regions::any(start, end) {
        regions::remove(start, end);
        table::unmap(start, end - start);
    }
}

fn protect(number: u64, arguments: [u64; 6]) -> u64 {
    let [address, length, protection, ..] = arguments;
    let _lock = lock();
    let (start, end) = pages_of(address, length);
    if length != 0 && is_own(start, end) {
        table::note(note::OWN_MEMORY, address);
        return errno::EINVAL;
    }
    let guarded = protection & WRITE != 0 && pages::any(start, end);
    let mut actual = arguments;
    if guarded {
        actual[2] &= !WRITE;
    }
    let result = sys::call(number, actual);
    if result != 0 {
        return result;
    }
    if guarded {
        pages::set_protection(start, end, protection);
    } else {
        pages::set_readonly(start, end);
    }
    let (executable, writable) = (protection & EXECUTE != 0, protection & WRITE != 0);
    if executable && !regions::any(start, end) {
        table::map(start, end - start, 0, protection, &[]);
    }
    let generated = true;
    regions::protect(start, end, executable, writable, generated);
    result
}

fn remap(arguments: [u64; 6]) -> u64 {
    let [old, old_length, new_length, flags, new, _] = arguments;
    const FIXED: u64 = 2;
    let _lock = lock();
    let (old_start, old_end) = pages_of(old, old_length);
    let (new_start, new_end) = pages_of(new, new_length);
    if is_own(old_start, old_end) || flags & FIXED != 0 && is_own(new_start, new_end) {
        table::note(note::OWN_MEMORY, old);
        return errno::EINVAL;
    }
    let executable = regions::any(old_start, old_end);
    let writable = regions::writable(old_start);
    // The kernel moves memory of one protection, and keeps it.
    pages::give_back(old_start, old_end);
    let result = sys::call(nr::MREMAP, arguments);
    if failed(result) {
        return result;
    }
    forget_unmapped(old_start, old_end);
    let (start, end) = pages_of(result, new_length);
    forget_unmapped(start, end);
    if executable {
        let write = if writable { regions::flag::WRITABLE } else { 0 };
        regions::add(start, end, write | regions::flag::GENERATED);
        table::map(start, end - start, 0, EXECUTE, &[]);
    }
    result
}

/// Makes the call, and forgets the blocks of its pages, which advice may empty.
fn advise(context: &Context, address: u64, length: u64) -> Outcome {
    let (start, end) = pages_of(address, length);
    let outcome = plain(context);
    let _lock = lock();
    pages::give_back(start, end);
    outcome
}
