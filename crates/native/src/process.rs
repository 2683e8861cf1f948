//! System calls about other processes. All `unsafe` of the recorder's side that is not about the arena is here.

#![allow(unsafe_code)]

use std::{io, mem, os::unix::process::CommandExt, process::Command, ptr};

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
    /// Nothing happened.
    Nothing,
    /// There is no such child or tracee.
    Gone,
}

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
#[cfg(test)]
pub(crate) fn without_chance(command: &mut Command) {
    let request = || {
        // SAFETY: the call takes one integer.
        check(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) }.into())
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(request) };
}

impl Tracee {
    fn request(self, request: libc::c_uint, address: u64, data: u64) -> io::Result<()> {
        // SAFETY: the requests that pass addresses of this process pass those of live values.
        check(unsafe { libc::ptrace(request, self.0, address, data) })
    }

    /// Traces a running thread, so that it stops when it executes another program.
    pub(crate) fn seize(self) -> io::Result<()> {
        self.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACEEXEC as u64)
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

    /// Continues, with a signal or 0.
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
pub(crate) fn clocks() -> (u64, u64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a live structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (hodo_native_runtime::sys::tsc(), time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Sends a signal to a process.
pub(crate) fn send(process: pid_t, signal: c_int) {
    // SAFETY: the call takes two integers.
    unsafe { libc::kill(process, signal) };
}
