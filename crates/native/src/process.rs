//! System calls about other processes. All `unsafe` of the recorder's side that is not about the arena is here.

#![allow(unsafe_code)]

use std::{fs, io, mem, os::unix::process::CommandExt, process::Command, ptr};

use hodo_native_log::Clocks;
use hodo_native_runtime::hold;
use libc::{c_int, pid_t, user_regs_struct};

/// A stopped thread that this thread traces.
#[derive(Clone, Copy)]
pub(crate) struct Tracee(pub(crate) pid_t);

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The process ended; its wait status.
    Ended(c_int),
    /// A program was executed.
    Executed,
    /// Stopped by a signal.
    Signal(c_int),
    /// Stopped because the tracer asked for it (SIGTRAP), or by this signal with its whole process.
    Stopped(c_int),
    /// Nothing happened.
    Nothing,
    /// There is no such child or tracee.
    Gone,
}

/// For [`Tracee::go_on`].
pub(crate) const NO_SIGNAL: c_int = 0;

const GET_MASK: Request = 0x420a;
const SET_MASK: Request = 0x420b;

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the process of a command wait to be traced when it executes its program.
pub(crate) fn trace_from_start(command: &mut Command) {
    let request = || {
        // SAFETY: PTRACE_TRACEME takes no arguments.
        check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) })
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(request) };
}

/// Makes a program get the same addresses each time.
pub fn fix_addresses(command: &mut Command) {
    let request = || {
        // SAFETY: the call takes one integer.
        check(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) }.into())
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(request) };
}

/// A request of `ptrace`, whose type is signed in musl and unsigned in other C libraries.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

impl Tracee {
    fn request(self, request: Request, address: u64, data: u64) -> io::Result<()> {
        // SAFETY: the requests that pass addresses of this process pass those of live values.
        check(unsafe { libc::ptrace(request, self.0, address, data) })
    }

    /// Traces a running thread, so that it stops when it executes another program.
    pub(crate) fn seize(self) -> io::Result<()> {
        self.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACEEXEC as u64)
    }

    /// Traces a running thread; nothing stops it yet.
    pub(crate) fn trace(self) -> io::Result<()> {
        self.request(libc::PTRACE_SEIZE, 0, 0)
    }

    /// Asks a traced thread to stop.
    pub(crate) fn interrupt(self) -> io::Result<()> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0)
    }

    /// The signals that a stopped thread blocks.
    pub(crate) fn mask(self) -> io::Result<u64> {
        let mut mask = 0u64;
        self.request(GET_MASK, 8, &raw mut mask as u64)?;
        Ok(mask)
    }

    pub(crate) fn set_mask(self, mask: u64) -> io::Result<()> {
        self.request(SET_MASK, 8, &raw const mask as u64)
    }

    /// Sets `xmm0` to `xmm15`.
    pub(crate) fn set_vectors(self, vectors: &[[u64; 2]; 16]) -> io::Result<()> {
        // SAFETY: all zero bytes are valid registers.
        let mut registers: libc::user_fpregs_struct = unsafe { mem::zeroed() };
        self.request(libc::PTRACE_GETFPREGS, 0, &raw mut registers as u64)?;
        for (words, vector) in registers.xmm_space.chunks_exact_mut(4).zip(vectors) {
            let halves = vector.map(|half| [half as u32, (half >> 32) as u32]);
            words.copy_from_slice(halves.as_flattened());
        }
        self.request(libc::PTRACE_SETFPREGS, 0, &raw const registers as u64)
    }

    /// The restartable sequences that a stopped thread has registered: address, length, signature; zeros without them.
    pub(crate) fn sequences(self) -> [u64; 3] {
        const GET_SEQUENCES: Request = 0x420f;
        // `struct ptrace_rseq_configuration`
        let mut words = [0u64; 3];
        let result = self.request(GET_SEQUENCES, 24, words.as_mut_ptr() as u64);
        let [address, sizes, _] = words;
        if result.is_err() { [0; 3] } else { [address, sizes & 0xffff_ffff, sizes >> 32] }
    }

    /// Reads bytes.
    pub(crate) fn read(self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; length];
        fs::File::open(format!("/proc/{}/mem", self.0))?.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub(crate) fn registers(self) -> io::Result<user_regs_struct> {
        // SAFETY: all zero bytes are valid registers.
        let mut registers: user_regs_struct = unsafe { mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, &raw mut registers as u64)?;
        Ok(registers)
    }

    pub(crate) fn set_registers(self, registers: &user_regs_struct) -> io::Result<()> {
        self.request(libc::PTRACE_SETREGS, 0, ptr::from_ref(registers) as u64)
    }

    /// Continues, with a signal or [`NO_SIGNAL`].
    pub(crate) fn go_on(self, signal: c_int) -> io::Result<()> {
        self.request(libc::PTRACE_CONT, 0, signal as u64)
    }

    /// Runs one instruction.
    #[cfg(test)]
    pub(crate) fn step(self, signal: c_int) -> io::Result<()> {
        self.request(libc::PTRACE_SINGLESTEP, 0, signal as u64)
    }

    /// Whether a thread that was stopped by SIGTRAP had run one instruction, not a breakpoint.
    #[cfg(test)]
    pub(crate) fn is_step(self) -> bool {
        const SI_KERNEL: c_int = 0x80;
        // SAFETY: all zero bytes are a valid structure.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        self.request(libc::PTRACE_GETSIGINFO, 0, &raw mut info as u64).is_ok() && info.si_code != SI_KERNEL
    }

    pub(crate) fn detach(self) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, 0)
    }

    /// The eight bytes at an address.
    pub(crate) fn peek(self, address: u64) -> io::Result<u64> {
        let mut word = 0u64;
        // SAFETY: as for `request`; glibc's wrapper of this request returns the word, the kernel stores it.
        let result =
            unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKTEXT, self.0, address, &raw mut word) };
        check(result).map(|()| word)
    }

    pub(crate) fn poke(self, address: u64, word: u64) -> io::Result<()> {
        self.request(libc::PTRACE_POKETEXT, address, word)
    }

    /// Writes bytes, also where the program may only read.
    pub(crate) fn write(self, address: u64, bytes: &[u8]) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let memory = std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.0))?;
        memory.write_all_at(bytes, address)
    }

    /// Waits for the next stop or the end.
    pub(crate) fn wait(self) -> Event {
        self.wait_with(libc::__WALL)
    }

    /// What happened, without waiting.
    pub(crate) fn look(self) -> Event {
        self.wait_with(libc::__WALL | libc::WNOHANG)
    }

    fn wait_with(self, options: c_int) -> Event {
        let mut status = 0;
        // SAFETY: the status is written to a live integer.
        match unsafe { libc::waitpid(self.0, &raw mut status, options) } {
            0 => Event::Nothing,
            -1 => Event::Gone,
            _ if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) => Event::Ended(status),
            _ if status >> 16 == libc::PTRACE_EVENT_EXEC => Event::Executed,
            _ if status >> 16 == libc::PTRACE_EVENT_STOP => Event::Stopped(libc::WSTOPSIG(status)),
            _ => Event::Signal(libc::WSTOPSIG(status)),
        }
    }
}

/// A descriptor that becomes readable when a process ends.
pub(crate) fn end_of(process: u32) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: the call takes two integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    // SAFETY: the kernel just returned the descriptor, which nobody else has.
    (descriptor >= 0).then(|| unsafe { std::os::fd::OwnedFd::from_raw_fd(descriptor as c_int) })
}

/// Whether a descriptor is readable now.
pub(crate) fn readable(descriptor: &std::os::fd::OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Waits until a shared word is not `value`, at most for some milliseconds.
pub(crate) fn wait_for(word: &std::sync::atomic::AtomicU32, value: u32, milliseconds: i64) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    // SAFETY: the word is in shared memory that stays mapped, and the timeout lives.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
}

/// Wakes all threads that wait for a shared word.
pub(crate) fn wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: as for `wait_for`.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// The time-stamp counter and the kernel's monotonic clock, at nearly the same time.
pub(crate) fn clocks() -> Clocks {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a live structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    Clocks { tsc: hodo_native_runtime::sys::tsc(), nanos }
}

/// Whether there is a thread or process.
pub(crate) fn exists(number: pid_t) -> bool {
    // SAFETY: the call takes two integers; signal 0 is none.
    unsafe { libc::syscall(libc::SYS_tkill, number, 0) == 0 }
}

/// Sends a thread the signal that fetches it out of translated code.
pub(crate) fn fetch(process: u32, thread: u32) {
    let mut info = [0u32; 32];
    (info[0], info[2]) = (hold::SIGNAL, hold::CODE as u32);
    // SAFETY: the kernel reads 128 bytes of `siginfo`.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, hold::SIGNAL, info.as_ptr()) };
}

/// Sends a signal to a process.
pub(crate) fn send(process: pid_t, signal: c_int) {
    // SAFETY: the call takes two integers.
    unsafe { libc::kill(process, signal) };
}
