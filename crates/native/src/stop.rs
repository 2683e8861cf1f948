//! Stops all threads of a running process, and makes system calls in it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use libc::user_regs_struct;

use crate::{
    inject::{Refusal, remote},
    process::{Event, Tracee},
    tracers::tracer_of,
};

/// How long a thread may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);
const ALL_SIGNALS: u64 = u64::MAX;

/// A stopped thread, as it was found.
#[derive(Clone, Copy)]
pub(crate) struct Stopped {
    pub(crate) registers: user_regs_struct,
    pub(crate) mask: u64,
}

/// A process all of whose threads are stopped. They continue as they were, or as they were set, when it is released or
/// dropped.
pub(crate) struct Halted {
    pub(crate) process: u32,
    pub(crate) threads: BTreeMap<i32, Stopped>,
}

impl Halted {
    /// Traces and stops all threads.
    pub(crate) fn new(process: u32) -> Result<Halted, Refusal> {
        let mut halted = Halted { process, threads: BTreeMap::new() };
        loop {
            let new: Vec<i32> = tasks(process).filter(|task| !halted.threads.contains_key(task)).collect();
            let mut found = 0;
            for task in new {
                found += usize::from(halted.add(task)?);
            }
            if found == 0 {
                break;
            }
        }
        if halted.threads.is_empty() { Err(Refusal::NoProgram) } else { Ok(halted) }
    }

    /// Traces and stops a thread; `false` if it ended.
    fn add(&mut self, task: i32) -> Result<bool, Refusal> {
        let tracee = Tracee(task);
        if let Err(error) = tracee.trace() {
            let ended = error.raw_os_error() == Some(libc::ESRCH) || is_zombie(self.process, task);
            return if ended { Ok(false) } else { Err(explain(task as u32, error)) };
        }
        match stop(tracee)? {
            Event::Stopped(libc::SIGTRAP) => {}
            Event::Stopped(_) => {
                _ = tracee.detach();
                return Err(Refusal::Stopped);
            }
            Event::Nothing => return Err(Refusal::Busy(task as u32)),
            _ => return Ok(false),
        }
        let stopped = Stopped { registers: tracee.registers()?, mask: tracee.mask()? };
        self.threads.insert(task, stopped);
        Ok(true)
    }

    /// The thread that makes system calls for the recorder: the first.
    pub(crate) fn first(&self) -> Option<(Tracee, Stopped)> {
        self.threads.first_key_value().map(|(&task, &stopped)| (Tracee(task), stopped))
    }

    /// Lets all threads go on as they are.
    pub(crate) fn release(mut self) {
        self.let_go();
    }

    fn let_go(&mut self) {
        for (&task, stopped) in &self.threads {
            let tracee = Tracee(task);
            // A system call that only our stop interrupted is made again.
            if let Ok(registers) = tracee.registers()
                && registers.rip == stopped.registers.rip
                && is_spurious(&registers)
            {
                _ = tracee.set_registers(&resumed(&registers));
            }
            _ = tracee.detach();
        }
        self.threads.clear();
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Stops a traced thread, and hands on the signals that reach it first. Returns the stop, its end, or `Event::Nothing` if it
/// does not stop.
pub(crate) fn stop(tracee: Tracee) -> io::Result<Event> {
    tracee.interrupt()?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        match tracee.look() {
            // The stop for a signal takes the place of the one that was asked for.
            Event::Signal(signal) => {
                tracee.go_on(signal)?;
                tracee.interrupt()?;
            }
            Event::Nothing => thread::sleep(Duration::from_micros(20)),
            event => return Ok(event),
        }
    }
    Ok(Event::Nothing)
}

pub(crate) fn tasks(process: u32) -> impl Iterator<Item = i32> {
    let folder = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    folder.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn is_zombie(process: u32, task: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/task/{task}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Whether a system call returned EINTR because the thread was stopped, though the kernel makes others again.
fn is_spurious(registers: &user_regs_struct) -> bool {
    const INTERRUPTED: u64 = -libc::EINTR as i64 as u64;
    // The C library's bindings have no name for it.
    const IO_PGETEVENTS: libc::c_long = 333;
    const CALLS: [libc::c_long; 9] = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_io_getevents,
        IO_PGETEVENTS,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_msgrcv,
    ];
    registers.rax == INTERRUPTED && CALLS.iter().any(|&call| call as u64 == registers.orig_rax)
}

/// The registers of a thread that was stopped, as the kernel would set them before the thread continues: an interrupted
/// system call is made again.
pub(crate) fn resumed(registers: &user_regs_struct) -> user_regs_struct {
    // Errors inside the kernel, which programs never see (`include/linux/errno.h`).
    const ERESTARTSYS: i64 = 512;
    const ERESTARTNOHAND: i64 = 514;
    const ERESTART_RESTARTBLOCK: i64 = 516;
    const RESTART: u64 = libc::SYS_restart_syscall as u64;
    const SYSCALL_BYTES: u64 = 2;
    let mut next = *registers;
    next.orig_rax = u64::MAX;
    if (registers.orig_rax as i64) < 0 {
        return next;
    }
    match (registers.rax as i64).wrapping_neg() {
        ERESTARTSYS..=ERESTARTNOHAND => next.rax = registers.orig_rax,
        ERESTART_RESTARTBLOCK => next.rax = RESTART,
        _ if is_spurious(registers) => next.rax = registers.orig_rax,
        _ => return next,
    }
    next.rip -= SYSCALL_BYTES;
    next
}

/// Makes system calls in a stopped thread, all of whose signals are blocked meanwhile.
pub(crate) struct Caller {
    tracee: Tracee,
    site: u64,
    code: u64,
    registers: user_regs_struct,
}

impl Caller {
    /// Writes a system call's instruction into the program's code, until the caller is dropped.
    pub(crate) fn new(process: u32, tracee: Tracee, stopped: &Stopped) -> Result<Caller, Refusal> {
        let site = code_of(process).ok_or(Refusal::NoProgram)?;
        tracee.set_mask(ALL_SIGNALS)?;
        let code = tracee.peek(site)?;
        // syscall; int3
        tracee.poke(site, code & !0xff_ffff | 0xcc_050f)?;
        let registers = user_regs_struct { rip: site, orig_rax: u64::MAX, ..stopped.registers };
        Ok(Caller { tracee, site, code, registers })
    }

    /// The registers with which calls are made.
    pub(crate) fn registers(&self) -> &user_regs_struct {
        &self.registers
    }

    pub(crate) fn call(&self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64, Refusal> {
        remote(self.tracee, &self.registers, number as u64, arguments)
    }

    /// Makes a call in another stopped thread of the process.
    pub(crate) fn call_in(
        &self,
        tracee: Tracee,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<u64, Refusal> {
        tracee.set_mask(ALL_SIGNALS)?;
        let registers = user_regs_struct { rip: self.site, orig_rax: u64::MAX, ..tracee.registers()? };
        remote(tracee, &registers, number as u64, arguments)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        _ = self.tracee.poke(self.site, self.code);
    }
}

/// An address of the program's own code.
fn code_of(process: u32) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let line = maps.lines().find(|line| line.contains(" r-xp ") && line.contains('/'))?;
    u64::from_str_radix(line.split('-').next()?, 16).ok()
}

/// Whether a process has mappings of the runtime.
pub(crate) fn is_recorded(process: u32) -> bool {
    let image = format!("{:x}-", hodo_native_runtime::layout::IMAGE);
    fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains(&image))
}

/// A line of `/proc/PID/status`.
pub(crate) fn status_of(process: u32, name: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Why the kernel did not allow to trace a thread.
pub(crate) fn explain(thread: u32, error: io::Error) -> Refusal {
    if error.raw_os_error() != Some(libc::EPERM) {
        return Refusal::Trace(error);
    }
    if let Some(tracer) = tracer_of(thread) {
        return Refusal::Traced(tracer);
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let user = status_of(thread, "Uid");
    let own = status_of(std::process::id(), "Uid");
    match scope.and_then(|scope| scope.trim().parse().ok()) {
        _ if user != own && own != Some(0) => Refusal::OtherUser(user.unwrap_or(0)),
        Some(scope @ 1..) => Refusal::Scope(scope),
        _ => Refusal::Trace(error),
    }
}

/// Whether a process exists and runs a program.
pub(crate) fn runs_program(process: u32) -> bool {
    let program = Path::new(&format!("/proc/{process}/exe")).read_link();
    // Other users' programs are hidden.
    let hidden = program.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    process != std::process::id() && (program.is_ok() || hidden)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A process that is killed when the test ends.
    struct Running(std::process::Child);

    impl Drop for Running {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    // The kernel forgets that a thread was asked to stop when a signal of a timer stops it at the same time.
    #[test]
    fn signals_of_timers_do_not_take_the_place_of_stops() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("timer");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/timer.c");
        assert!(Command::new("gcc").arg(source).arg("-o").arg(&program).status().expect("gcc").success());
        let running = Running(Command::new(&program).spawn().expect("the program"));
        thread::sleep(Duration::from_millis(50));
        for _ in 0..2000 {
            Halted::new(running.0.id()).expect("it stops").release();
        }
    }
}
