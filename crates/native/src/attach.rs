//! Records the threads of a running process from where they stand.

use std::{
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
    time::{Duration, Instant},
};

use hodo_native_runtime::layout::{IMAGE, IMAGE_ROOM, done};

use crate::{
    arena::Arena,
    inject::{AttachImage, Refusal, attach_image, map},
    process::{self, Event, Tracee},
    stop::{Caller, Halted, Stopped, is_recorded, resumed, runs_program, stop},
    tracers::tracer_of,
};

const USER_64: u64 = 0x33;
const ALL_SIGNALS: u64 = u64::MAX;
/// How long a thread may take to enter the runtime.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of stacks on which threads enter the runtime, in the room behind its image. They enter one after another, but a
/// thread may still be on its stack when the next ones enter.
const STACKS: u64 = 32;
const STACK_BYTES: u64 = 0x8000;
/// The end of these stacks. Behind it is the first stack of a program that is started.
const STACKS_END: u64 = IMAGE + IMAGE_ROOM - 0x1_0000;
/// Flags of the processor: interrupts are enabled, and bit 1, which is always set.
const FLAGS: u64 = 0x202;

/// Puts the runtime into a running process, and makes all of its threads continue there.
pub(crate) fn attach(process: u32, arena: &Arena) -> Result<(), Refusal> {
    if !runs_program(process) {
        return Err(Refusal::NoProgram);
    }
    if is_recorded(process) {
        return Err(Refusal::Recorded);
    }
    if let Some(tracer) = tracer_of(process) {
        return Err(Refusal::Traced(tracer));
    }
    let mut halted = Halted::new(process)?;
    for stopped in halted.threads.values() {
        if stopped.registers.cs != USER_64 {
            return Err(Refusal::Bits32);
        }
        if stopped.registers.gs_base != 0 {
            return Err(Refusal::Segment);
        }
    }
    let AttachImage { entry, image } = attach_image()?;
    let (tracee, stopped) = halted.first().ok_or(Refusal::NoProgram)?;
    let caller = Caller::new(process, tracee, &stopped)?;
    let mapped = map(tracee, caller.registers(), image, arena.descriptor());
    drop(caller);
    tracee.set_registers(&stopped.registers)?;
    tracee.set_mask(stopped.mask)?;
    mapped?;
    let mut is_first = true;
    while let Some((&task, &stopped)) = halted.threads.first_key_value() {
        let stack = STACKS_END - halted.threads.len() as u64 % STACKS * STACK_BYTES;
        let start = Start { pc: entry, stack, is_first };
        let entered = enter(Tracee(task), &stopped, arena, &start);
        if is_first {
            entered?;
        } else if let Err(refusal) = entered {
            // It ended in the meantime, or the process did.
            if process::exists(task) {
                return Err(refusal);
            }
        }
        halted.threads.remove(&task);
        is_first = false;
    }
    Ok(())
}

/// How a thread enters the runtime.
struct Start {
    /// The runtime's entry for threads of running programs.
    pc: u64,
    /// The stack pointer.
    stack: u64,
    /// Whether it is the first of its process.
    is_first: bool,
}

/// Makes a stopped thread continue in the runtime, and waits until it is recorded.
fn enter(tracee: Tracee, stopped: &Stopped, arena: &Arena, start: &Start) -> Result<(), Refusal> {
    let registers = resumed(&stopped.registers);
    let thread = arena.attached();
    let r = &registers;
    let general = [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ];
    for (slot, value) in thread.registers.iter().zip(general) {
        slot.store(value, Relaxed);
    }
    thread.flags.store(registers.eflags, Relaxed);
    thread.pc.store(registers.rip, Relaxed);
    thread.mask.store(stopped.mask, Relaxed);
    for (slot, value) in thread.sequences.iter().zip(tracee.sequences()) {
        slot.store(value, Relaxed);
    }
    thread.first.store(start.is_first.into(), Relaxed);
    thread.done.store(done::NO, Release);
    let entered = libc::user_regs_struct { rip: start.pc, rsp: start.stack, eflags: FLAGS, ..registers };
    tracee.set_mask(ALL_SIGNALS)?;
    tracee.set_registers(&entered)?;
    tracee.detach()?;
    let begin = Instant::now();
    let refusal = loop {
        match thread.done.load(Acquire) {
            done::RECORDED => return Ok(()),
            done::REFUSED => {
                break Refusal::NoRoom(std::io::Error::other("no memory or slot for a thread"));
            }
            _ if !process::exists(tracee.0) => break Refusal::NoProgram,
            _ if begin.elapsed() > PATIENCE => break Refusal::Late(tracee.0 as u32),
            _ => process::wait_for(&thread.done, done::NO, 1),
        }
    };
    give_back(tracee, &registers, stopped.mask);
    Err(refusal)
}

/// A thread that cannot be recorded continues where it stood.
fn give_back(tracee: Tracee, registers: &libc::user_regs_struct, mask: u64) {
    if tracee.trace().is_ok() && matches!(stop(tracee), Ok(Event::Stopped(_))) {
        _ = tracee.set_registers(registers);
        _ = tracee.set_mask(mask);
        _ = tracee.detach();
    }
}
