//! Puts the runtime into a program that is stopped at its first instruction.

use std::{io, process};

use hodo_native_runtime::layout::{ARENA, ARENA_ROOM, ATTACH_ENTRY, IMAGE, IMAGE_ROOM, TO_PRIVATE};

use crate::{
    process::{Event, NO_SIGNAL, Tracee},
    tracers::named,
};

/// The runtime in memory, after eight bytes with the offset of its entry.
static RUNTIME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runtime.bin"));

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Its code is not of 64 bits.
    #[error("it is a 32-bit program")]
    Bits32,
    /// The memory that the runtime needs is in use or forbidden.
    #[error("its address space has no room for the recorder ({0})")]
    NoRoom(io::Error),
    /// The arena could not be opened from the program.
    #[error("the recorder's memory can't be opened from it ({0}); is /proc mounted there?")]
    NoArena(io::Error),
    /// Tracing failed.
    #[error("it can't be traced ({0})")]
    Trace(#[from] io::Error),
    /// It ended in the meantime.
    #[error("it ended before it began")]
    Ended,
    /// Another process traces it.
    #[error("{} traces it already", named(*.0))]
    Traced(u32),
    /// It is recorded already.
    #[error("it is recorded already")]
    Recorded,
    /// It belongs to another user.
    #[error("it belongs to user {0}")]
    OtherUser(u32),
    /// The system forbids tracing.
    #[error("/proc/sys/kernel/yama/ptrace_scope is {0}: write 0 there, or run the recorder as root")]
    Scope(u32),
    /// It is the recorder itself, a thread of the kernel, or has ended.
    #[error("it is no running program")]
    NoProgram,
    /// It is stopped.
    #[error("it is stopped: continue it first")]
    Stopped,
    /// It uses the segment that the runtime needs.
    #[error("it uses the segment gs")]
    Segment,
    /// A thread does not stop.
    #[error("its thread {0} does not stop")]
    Busy(u32),
    /// A thread does not enter the runtime in time.
    #[error("its thread {0} does not enter the recorder's code in time")]
    Late(u32),
    /// The recorder was built for another machine.
    #[error("this recorder is for x86-64 Linux only")]
    Machine,
}

const USER_64: u64 = 0x33;
const OPEN: u64 = 2;
const CLOSE: u64 = 3;
const MMAP: u64 = 9;

/// Puts the runtime into a stopped program, and makes it start there. The arena is open here as `descriptor`.
pub(crate) fn inject(tracee: Tracee, descriptor: i32) -> Result<(), Refusal> {
    let (entry, image) = RUNTIME.split_first_chunk::<8>().ok_or(Refusal::Machine)?;
    let registers = tracee.registers()?;
    if registers.cs != USER_64 {
        return Err(Refusal::Bits32);
    }
    let old = tracee.peek(registers.rip)?;
    // int3; syscall; int3
    tracee.poke(registers.rip, old & !0xffff_ffff | 0xcc05_0fcc)?;
    // The kernel sets rax itself until it has left execve.
    run_to_trap(tracee)?;
    let call = libc::user_regs_struct { rip: registers.rip + 1, orig_rax: u64::MAX, ..registers };
    let mapped = map(tracee, &call, image, descriptor);
    tracee.poke(registers.rip, old)?;
    let mut start = registers;
    start.orig_rax = u64::MAX;
    if mapped.is_ok() {
        start.rdi = registers.rip;
        start.rsi = registers.rsp;
        start.rip = IMAGE + u64::from_le_bytes(*entry);
        start.rsp = IMAGE + IMAGE_ROOM - 64;
    }
    tracee.set_registers(&start)?;
    mapped
}

/// Maps the image and the arena into the program, and writes the image.
pub(crate) fn map(
    tracee: Tracee,
    registers: &libc::user_regs_struct,
    image: &[u8],
    descriptor: i32,
) -> Result<(), Refusal> {
    const READ_WRITE: u64 = 3;
    const ALL: u64 = 7;
    const SHARED: u64 = 1;
    // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    const PRIVATE: u64 = 0x4022;
    const NO_REPLACE: u64 = 0x10_0000;
    const OPEN_FLAGS: u64 = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
    let call = |number, arguments| remote(tracee, registers, number, arguments);
    let image_call = [IMAGE, IMAGE_ROOM, ALL, PRIVATE | NO_REPLACE, u64::MAX, 0];
    placed(call(MMAP, image_call)?, IMAGE).map_err(Refusal::NoRoom)?;
    tracee.write(IMAGE, image)?;
    // The rest of the image is room for its first stack: the path goes there.
    let path = format!("/proc/{}/fd/{descriptor}\0", process::id());
    let path_address = IMAGE + IMAGE_ROOM - 4096;
    tracee.write(path_address, path.as_bytes())?;
    let file = error_of(call(OPEN, [path_address, OPEN_FLAGS, 0, 0, 0, 0])?).map_err(Refusal::NoArena)?;
    let arena_call = [ARENA, ARENA_ROOM, READ_WRITE, SHARED | NO_REPLACE, file, 0];
    let arena = call(MMAP, arena_call)?;
    call(CLOSE, [file, 0, 0, 0, 0, 0])?;
    placed(arena, ARENA).map_err(Refusal::NoRoom)?;
    const _: () = assert!(TO_PRIVATE > ARENA_ROOM);
    Ok(())
}

/// The runtime, for threads of running programs.
pub(crate) struct AttachImage {
    /// The address at which they enter it.
    pub(crate) entry: u64,
    /// Its bytes.
    pub(crate) image: &'static [u8],
}

pub(crate) fn attach_image() -> Result<AttachImage, Refusal> {
    let (entry, image) = RUNTIME.split_first_chunk::<8>().ok_or(Refusal::Machine)?;
    Ok(AttachImage { entry: IMAGE + u64::from_le_bytes(*entry) + ATTACH_ENTRY, image })
}

fn error_of(result: u64) -> io::Result<u64> {
    if result > -4096i64 as u64 {
        return Err(io::Error::from_raw_os_error((result as i64).unsigned_abs() as i32));
    }
    Ok(result)
}

fn placed(result: u64, wanted: u64) -> io::Result<()> {
    match error_of(result)? {
        address if address == wanted => Ok(()),
        _ => Err(io::Error::other("the kernel chose another address")),
    }
}

/// Makes a system call in the stopped program, at whose instruction pointer is `syscall; int3`.
pub(crate) fn remote(
    tracee: Tracee,
    registers: &libc::user_regs_struct,
    number: u64,
    arguments: [u64; 6],
) -> Result<u64, Refusal> {
    let mut call = *registers;
    call.rax = number;
    [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9] = arguments;
    tracee.set_registers(&call)?;
    run_to_trap(tracee)?;
    Ok(tracee.registers()?.rax)
}

/// Continues to the next `int3`.
fn run_to_trap(tracee: Tracee) -> Result<(), Refusal> {
    tracee.go_on(NO_SIGNAL)?;
    let mut waiting = Vec::new();
    loop {
        match tracee.wait() {
            Event::Signal(libc::SIGTRAP) => break,
            // It is sent again after the trap.
            Event::Signal(signal) => {
                waiting.push(signal);
                tracee.go_on(NO_SIGNAL)?;
            }
            Event::Stopped(_) => tracee.go_on(NO_SIGNAL)?,
            Event::Executed | Event::Nothing => {}
            Event::Ended(_) | Event::Gone => return Err(Refusal::Ended),
        }
    }
    for signal in waiting {
        crate::process::send(tracee.0, signal);
    }
    Ok(())
}
