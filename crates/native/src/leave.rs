//! Gives the threads of recorded processes their own code back.

use std::{
    collections::BTreeMap,
    io,
    sync::atomic::Ordering::{Acquire, Relaxed},
    thread,
    time::{Duration, Instant},
};

use hodo_native_runtime::{
    cache::{self, Cache},
    context::{Context, inside, pending},
    layout::{END, IMAGE, IMAGE_ROOM, kind, slot_state},
    pages::{MOST as MOST_PAGES, Page},
    state::{CACHE_HEAP, PAGE_HEAP},
};
use libc::user_regs_struct;

use crate::{
    arena::Arena,
    inject::Refusal,
    process::{self, Tracee},
    stop::{Caller, Halted, Stopped, is_recorded, resumed},
};

/// How long the threads of a process may take to come out of translated code.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of signals.
const SIGNALS: u64 = 64;
/// Where arguments of system calls are: the last page of the room behind the image.
const ARGUMENT: u64 = IMAGE + IMAGE_ROOM - 4096;
/// Bytes of a handler in the runtime's table, which is as the kernel has it.
const ACTION: u64 = 32;

/// Whose memory a recorded process lives in. The order is that in which processes get their own code back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Memory {
    /// Its own.
    Own,
    /// Its parent's, until it executes a program (`vfork`).
    Parents,
}

/// The processes that have slots.
pub(crate) fn processes(arena: &Arena) -> BTreeMap<u32, Memory> {
    let mut found = BTreeMap::new();
    for (_, slot) in slots(arena) {
        let memory = if slot.borrows.get() != 0 { Memory::Parents } else { Memory::Own };
        let known = found.entry(slot.process.get()).or_insert(memory);
        *known = memory.max(*known);
    }
    found
}

fn slots(arena: &Arena) -> impl Iterator<Item = (u64, &Context)> {
    let live = |&index: &u64| arena.slot_state(index).load(Acquire) == slot_state::LIVE;
    arena.slots().filter(live).map(|index| (index, arena.slot(index)))
}

fn threads(arena: &Arena, process: u32) -> impl Iterator<Item = &Context> {
    let own = move |slot: &&Context| slot.process.get() == process && slot.kind.get() == kind::LOG;
    slots(arena).map(|(_, slot)| slot).filter(own)
}

/// Makes a process run its own code from the instructions that its threads have reached. All threads must have the request
/// to leave. Returns the process, which is still stopped; `None` if it is not recorded any more.
pub(crate) fn leave(arena: &Arena, process: u32) -> Result<Option<Halted>, Refusal> {
    let begin = Instant::now();
    loop {
        if !is_recorded(process) {
            return Ok(None);
        }
        let mut inside_code = false;
        for slot in threads(arena, process) {
            if slot.inside.load(Acquire) == inside::CODE {
                process::fetch(process, slot.thread.get());
                inside_code = true;
            }
        }
        if !inside_code {
            let halted = Halted::new(process)?;
            let states: Option<Vec<_>> =
                halted.threads.iter().map(|(&task, stopped)| state(arena, process, task, stopped)).collect();
            match states {
                Some(states) => {
                    restore(&halted, &states)?;
                    return Ok(Some(halted));
                }
                None => halted.release(),
            }
        }
        if begin.elapsed() > PATIENCE {
            return Err(Refusal::Busy(process));
        }
        thread::sleep(Duration::from_micros(500));
    }
}

/// Whether a process ended, or runs a program that is not recorded.
pub(crate) fn is_gone(process: u32) -> bool {
    !is_recorded(process)
}

/// A thread's state in the program.
struct State<'a> {
    task: i32,
    slot: &'a Context,
    registers: user_regs_struct,
    mask: u64,
}

/// The state of a stopped thread; `None` if the thread is at a point of the runtime where its context is incomplete.
fn state<'a>(arena: &'a Arena, process: u32, task: i32, stopped: &Stopped) -> Option<State<'a>> {
    let slot = threads(arena, process).find(|slot| slot.thread.get() == task as u32)?;
    let current = &stopped.registers;
    let [check, end] = arena.header().call.each_ref().map(|address| address.load(Relaxed));
    let mut registers = program_registers(slot, current);
    match slot.inside.load(Acquire) {
        inside::PARKED => {
            registers.rip = slot.pc.get();
            Some(State { task, slot, registers, mask: slot.mask.get() | slot.blocked.get() })
        }
        inside::RUNTIME if (check..=end).contains(&current.rip) && slot.pending.get() == pending::NONE => {
            const SYSCALL_BYTES: u64 = 2;
            if slot.waits.get() != 0 {
                let [number, value] = slot.given.get();
                set(&mut registers, number, value);
            }
            registers.rip = slot.pc.get();
            if current.rip == end {
                registers.rip += SYSCALL_BYTES;
                (registers.rcx, registers.r11) = (registers.rip, slot.flags.get());
                (registers.rax, registers.orig_rax) = (current.rax, current.orig_rax);
                registers = resumed(&registers);
            }
            Some(State { task, slot, registers, mask: stopped.mask | slot.blocked.get() })
        }
        _ => None,
    }
}

/// The program's registers, from the context.
fn program_registers(slot: &Context, current: &user_regs_struct) -> user_regs_struct {
    let mut registers = *current;
    for number in 0..16 {
        set(&mut registers, number, slot.register(number as usize));
    }
    registers.eflags = slot.flags.get();
    // It is in no system call that the kernel could restart.
    registers.orig_rax = u64::MAX;
    registers.gs_base = 0;
    registers
}

/// Sets the general register with this number, as instructions encode it.
fn set(registers: &mut user_regs_struct, number: u64, value: u64) {
    let r = registers;
    let fields = [
        &mut r.rax, &mut r.rcx, &mut r.rdx, &mut r.rbx, &mut r.rsp, &mut r.rbp, &mut r.rsi, &mut r.rdi,
        &mut r.r8, &mut r.r9, &mut r.r10, &mut r.r11, &mut r.r12, &mut r.r13, &mut r.r14, &mut r.r15,
    ];
    if let Some(field) = fields.into_iter().nth(number as usize) {
        *field = value;
    }
}

/// Restores the process's handlers and the states of its threads, and removes the runtime's memory.
fn restore(halted: &Halted, states: &[State<'_>]) -> Result<(), Refusal> {
    let (tracee, stopped) = halted.first().ok_or(Refusal::NoProgram)?;
    let caller = Caller::new(halted.process, tracee, &stopped)?;
    let actions = states.first().map_or(0, |state| state.slot.actions.get());
    for number in 1..=SIGNALS {
        caller.call(libc::SYS_rt_sigaction, [number, actions + number * ACTION, 0, 8, 0, 0])?;
    }
    for state in states {
        let tracee = Tracee(state.task);
        let [address, flags, size] = state.slot.alternative.get();
        tracee.write(ARGUMENT, [address, flags, size].map(u64::to_le_bytes).as_flattened())?;
        caller.call_in(tracee, libc::SYS_sigaltstack, [ARGUMENT, 0, 0, 0, 0, 0])?;
        let [address, length, signature] = state.slot.sequences.get();
        if address != 0 {
            caller.call_in(tracee, libc::SYS_rseq, [address, length, 0, signature, 0, 0])?;
        }
    }
    for area in protected(tracee)? {
        let length = area.end - area.begin;
        caller.call(libc::SYS_mprotect, [area.begin, length, area.wanted, 0, 0, 0])?;
    }
    for base in caches(tracee)? {
        caller.call(libc::SYS_munmap, [base, cache::LENGTH, 0, 0, 0, 0])?;
    }
    caller.call(libc::SYS_munmap, [IMAGE, END - IMAGE, 0, 0, 0, 0])?;
    // It writes the program's code back, which threads may run next.
    drop(caller);
    for state in states {
        let tracee = Tracee(state.task);
        let vectors = state.slot.vectors.each_ref().map(|vector| vector.get());
        tracee.set_vectors(&vectors)?;
        tracee.set_registers(&state.registers)?;
        tracee.set_mask(state.mask)?;
    }
    Ok(())
}

/// Memory that the runtime protects more than the program wants.
struct Protected {
    begin: u64,
    end: u64,
    /// The protection that the program wants, as `mprotect` takes it.
    wanted: u64,
}

fn protected(tracee: Tracee) -> io::Result<Vec<Protected>> {
    const PAGES: usize = 256;
    const ENTRY: usize = size_of::<Page>();
    let mut found: Vec<Protected> = Vec::new();
    for part in 0..MOST_PAGES as usize / PAGES {
        let bytes = tracee.read(PAGE_HEAP + (part * PAGES * ENTRY) as u64, PAGES * ENTRY)?;
        // `Page` has its number at byte 0 and the wanted protection at byte 12.
        for entry in bytes.as_chunks::<ENTRY>().0 {
            let number = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| entry[byte]));
            let wanted = u64::from(u32::from_le_bytes([12, 13, 14, 15].map(|byte| entry[byte])));
            if number == 0 {
                return Ok(found);
            }
            match found.last_mut() {
                _ if wanted == 0 => {}
                Some(last) if last.end == number << 12 && last.wanted == wanted => last.end += 4096,
                _ => found.push(Protected { begin: number << 12, end: (number + 1) << 12, wanted }),
            }
        }
    }
    Ok(found)
}

/// Where the caches of translated code are.
fn caches(tracee: Tracee) -> io::Result<Vec<u64>> {
    const ENTRY: usize = size_of::<Cache>();
    let bytes = tracee.read(CACHE_HEAP, cache::MOST as usize * ENTRY)?;
    // `Cache` begins with its base; unused entries are zero.
    let base = |entry: &[u8; ENTRY]| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| entry[byte]));
    Ok(bytes.as_chunks().0.iter().map(base).take_while(|&base| base != 0).collect())
}
