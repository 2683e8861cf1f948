//! The first code of the runtime in a program.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{
    context::{Context, register},
    dispatch,
    frame::DISABLED,
    layout::{HEAP, HEAP_ROOM, kind},
    log, regions,
    signal::{self, ACTION_BYTES, Action, DEFAULT, IGNORE, RAISED},
    slot,
    state::{self, TABLE_SLOT},
    stubs,
    sys::{self, nr},
    table, thread, translate,
};

/// Flags of the processor when a program begins: interrupts are enabled, and bit 1, which is always set.
const FLAGS: u64 = 0x202;

/// The program's handlers.
static ACTIONS: [AtomicU64; (ACTION_BYTES / 8) as usize] =
    [const { AtomicU64::new(0) }; (ACTION_BYTES / 8) as usize];

/// Called by `hodo_start` on a stack of its own. Returns 0 if the program is recorded from here on.
pub extern "C" fn hodo_begin(pc: u64, stack: u64) -> u64 {
    let mask = signal::current_mask();
    signal::set_mask(mask & !RAISED);
    let Some(context) = process(mask) else {
        log::arena().without_room.fetch_add(1, Relaxed);
        return 1;
    };
    for value in &context.registers {
        value.set(0);
    }
    for value in &context.vectors {
        value.set([0; 2]);
    }
    context.set_register(register::RSP, stack);
    context.flags.set(FLAGS);
    context.alternative.set([0, DISABLED, 0]);
    log::go_on_at(context, pc);
    dispatch::go(context, pc);
    0
}

/// Prepares the process, and its first thread, whose mask is `mask`. `None` if there is no memory or slot.
pub fn process(mask: u64) -> Option<&'static Context> {
    let (process, context) = slots()?;
    TABLE_SLOT.store(process.address.get(), Relaxed);
    process.table_key.set(process.key.get());
    context.table_key.set(process.key.get());
    let arena = log::arena();
    translate::BRANCHES.store(arena.branches.load(Relaxed), Relaxed);
    for (word, stub) in arena.call.iter().zip([stubs::hodo_call_check as stubs::Stub, stubs::hodo_call_end]) {
        word.store(stubs::address(stub), Relaxed);
    }
    context.blocked.set(mask & RAISED);
    slot::enter(context);
    slot::publish(process);
    slot::publish(context);
    crate::select::begin(context);
    handlers(context);
    let lock = state::lock();
    thread::identify();
    table::name(context.thread.get());
    if crate::select::entries() != 0 {
        table::note(crate::wire::note::UNSELECTED, crate::select::entries().into());
    }
    mappings();
    drop(lock);
    Some(context)
}

/// The program's handlers, which all its threads share.
pub fn actions() -> u64 {
    ACTIONS.as_ptr() as u64
}

/// Slots for the process's table and its first thread, after the tables' memory is mapped.
fn slots() -> Option<(&'static Context, &'static Context)> {
    const READ_WRITE: u64 = 3;
    if !sys::map(HEAP, HEAP_ROOM, READ_WRITE) {
        return None;
    }
    let process = slot::take(kind::TABLE)?;
    let context = slot::take(kind::LOG);
    if context.is_none() {
        slot::give_back(process);
    }
    Some((process, context?))
}

/// The runtime handles what the processor raises.
fn handlers(context: &Context) {
    context.actions.set(actions());
    for number in 1..=64u32 {
        let mut action = Action { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };
        sys::call(nr::RT_SIGACTION, [u64::from(number), 0, &raw mut action as u64, 8, 0, 0]);
        signal::set_action(context, number, action);
        if RAISED >> (number - 1) & 1 != 0 || action.handler > IGNORE {
            signal::install(number, &action);
        }
    }
}

/// Records what is mapped executable, from the kernel's list.
fn mappings() {
    const OPEN: u64 = 2;
    const READ: u64 = 0;
    const CLOSE: u64 = 3;
    let file = sys::call3(OPEN, c"/proc/self/maps".as_ptr() as u64, 0x8_0000, 0);
    if sys::failed(file) {
        return;
    }
    let mut text = [0u8; 8192];
    let mut length = 0;
    loop {
        let room = (text.len() - length) as u64;
        let count = sys::call3(READ, file, text[length..].as_mut_ptr() as u64, room);
        if sys::failed(count) || count == 0 {
            break;
        }
        length += count as usize;
        let mut begin = 0;
        while let Some(end) = text[begin..length].iter().position(|&byte| byte == b'\n') {
            mapping(&text[begin..begin + end]);
            begin += end + 1;
        }
        text.copy_within(begin..length, 0);
        length -= begin;
    }
    sys::call3(CLOSE, file, 0, 0);
}

/// One line of `/proc/self/maps`.
fn mapping(line: &[u8]) {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut next = || fields.next().unwrap_or(&[]);
    let (range, protection, offset, _device, _inode, name) = (next(), next(), next(), next(), next(), next());
    let mut ends = range.split(|&byte| byte == b'-').map(hexadecimal);
    let (start, end) = (ends.next().unwrap_or(0), ends.next().unwrap_or(0));
    let bit = |index: usize, letter: u8| protection.get(index) == Some(&letter);
    if !bit(2, b'x') || (crate::layout::IMAGE..crate::layout::END).contains(&start) || start >= 1 << 47 {
        return;
    }
    let is_file = name.first() == Some(&b'/');
    let writable = bit(1, b'w');
    let flags = if writable { regions::flag::WRITABLE } else { 0 }
        | if !is_file || writable { regions::flag::GENERATED } else { 0 };
    regions::add(start, end, flags);
    // PROT_READ, PROT_EXEC, PROT_WRITE.
    let protection = 5 | u64::from(writable) << 1;
    // A name may contain spaces.
    let begin = line.len() - name.len();
    let name = if name.is_empty() { name } else { &line[begin.min(line.len())..] };
    table::map(start, end - start, hexadecimal(offset), protection, name);
}

fn hexadecimal(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => 0,
        };
        value << 4 | u64::from(digit)
    })
}
