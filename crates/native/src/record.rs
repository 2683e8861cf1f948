//! Starts a program with the runtime in it, follows its descendants, and writes their logs.

use std::{
    collections::BTreeSet,
    fs, io,
    io::Write,
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use hodo_native_runtime::layout::{
    MOST_SELECTED, MOST_SELECTED_THREADS, PATTERN, SELECTED_NAME, Selected, SelectedThread, VERSION, follow,
    slot_state,
};

use crate::{
    arena::Arena,
    attach::attach as attach_to,
    drain::{Drain, End},
    inject::{Refusal, inject},
    leave,
    process::{self, Event, Tracee},
    stop::explain,
    tracers::Tracers,
    watch::Condition,
};

/// Code that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// The end of its file's path, at most 104 bytes.
    pub file: String,
    /// Its bytes in the file.
    pub offsets: std::ops::Range<u64>,
}

/// Threads that are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectThread {
    /// The thread with this number in the system.
    Number(u32),
    /// Threads while they have this name, at most 48 bytes, in which `*` stands for any characters.
    Name(String),
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of branches in a first translation, at least 1.
    pub branches: u32,
    /// Whether hot paths are translated again as one.
    pub traces: bool,
    /// The most bytes of translated code, and of tables about it, in each process. When they are in use, all translations are
    /// removed, and begin anew.
    pub memory: u64,
    /// What is recorded, at most 60 parts of files; if empty, all. Other code is translated too, without a log.
    pub select: Vec<Select>,
    /// The threads that are recorded, at most 32 numbers and names; if empty, all. Others run translated, without a log.
    pub threads: Vec<SelectThread>,
    /// Recording begins after this time. Until then programs run translated, without a log.
    pub after: Option<Duration>,
    /// Facts that the recording contains: a JSON object of texts, or nothing.
    pub facts: Vec<u8>,
    /// Logs are kept in memory up to this many bytes, the last ones, and written at the end.
    pub ring: Option<u64>,
    /// With `ring`: what is kept is written when a function takes too long, each time, instead of at the end.
    pub conditions: Vec<Condition>,
    /// Exits of superblocks between two time-stamp counters in a log, from 16 to 32,768; 0: only at system calls and at
    /// the end of each chunk.
    pub time_every: u32,
    /// How long to record, from `after` on; then the programs run their own code again.
    pub duration: Option<Duration>,
    /// How another thread controls the recording.
    pub control: Arc<Control>,
}

/// Controls a recording from another thread.
#[derive(Debug, Default)]
pub struct Control {
    /// Becomes true when the recording shall end.
    pub stop: AtomicBool,
    /// With [`Options::ring`]: becomes true when what is kept shall be written at once; set back when that is done.
    pub snapshot: AtomicBool,
    /// Becomes true when the recording begins.
    pub begun: AtomicBool,
    /// The command's process; 0 before it is recorded.
    pub command: AtomicU32,
    /// Becomes true when the command has ended; processes that it started may go on.
    pub ended: AtomicBool,
    /// Sentences for the user about what happens meanwhile, until they are taken.
    pub notices: Mutex<Vec<String>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            branches: 2,
            traces: true,
            memory: 512 << 20,
            select: Vec::new(),
            threads: Vec::new(),
            after: None,
            facts: Vec::new(),
            ring: None,
            conditions: Vec::new(),
            time_every: 0,
            duration: None,
            control: Arc::default(),
        }
    }
}

/// What a recording contains.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended.
    pub status: ExitStatus,
    /// Whether all was written.
    pub is_complete: bool,
    /// The number of threads whose recording is complete, counted once for each program that they ran.
    pub threads: u64,
    /// Snapshots that conditions asked for.
    pub snapshots: u64,
    /// The number of threads that were killed.
    pub killed: u64,
    /// Programs that ran unrecorded, and why.
    pub warnings: Vec<String>,
}

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program did not start.
    #[error("{0}: {1}")]
    Start(PathBuf, #[source] io::Error),
    /// The program cannot be recorded.
    #[error("{0} can't be recorded: {1}")]
    Refused(PathBuf, Refusal),
    /// The program gets other rights when it starts.
    #[error("{0} can't be recorded: it is a set-user-ID program")]
    Privileged(PathBuf),
    /// The recording could not be written, or shared memory is missing.
    #[error("the recording: {0}")]
    Output(#[from] io::Error),
}

/// Runs a command and records it and all its descendants. Returns when all of them have ended.
///
/// # Errors
/// The command did not start or cannot be recorded, or the output failed.
pub fn record<W: Write + Send>(mut command: Command, out: W, options: Options) -> Result<Outcome, Error> {
    let name = PathBuf::from(command.get_program());
    if is_privileged(&name) {
        return Err(Error::Privileged(name));
    }
    let arena = arena(&options)?;
    let drain = Mutex::new(Drain::new(out, &options)?);
    process::trace_from_start(&mut command);
    let child = command.spawn().map_err(|error| Error::Start(name.clone(), error))?;
    let tracee = Tracee(child.id() as i32);
    if tracee.wait() != Event::Signal(libc::SIGTRAP) {
        return Err(Error::Refused(name, Refusal::Ended));
    }
    if let Err(refusal) = inject(tracee, arena.descriptor()) {
        process::send(tracee.0, libc::SIGKILL);
        tracee.wait();
        return Err(Error::Refused(name, refusal));
    }
    options.control.command.store(child.id(), Relaxed);
    tracee.detach()?;
    run(&arena, drain, Some(tracee), &options)
}

/// Records a running process, all of whose threads continue where they stand, and all its descendants from then on. Returns
/// when all of them have ended, or run their own code again.
///
/// # Errors
/// The process cannot be recorded, or the output failed.
pub fn attach<W: Write + Send>(process: u32, out: W, options: Options) -> Result<Outcome, Error> {
    let arena = arena(&options)?;
    let drain = Mutex::new(Drain::new(out, &options)?);
    let name = PathBuf::from(format!("process {process}"));
    attach_to(process, &arena).map_err(|refusal| Error::Refused(name, refusal))?;
    run(&arena, drain, None, &options)
}

fn arena(options: &Options) -> io::Result<Arena> {
    let arena = Arena::new()?;
    let header = arena.header();
    header.version.store(VERSION, Relaxed);
    header.recorder.store(std::process::id().into(), Relaxed);
    header.branches.store(options.branches.max(1), Relaxed);
    header.traces.store(options.traces.into(), Relaxed);
    header.memory.store(options.memory, Relaxed);
    header.every.store(options.time_every, Relaxed);
    header.waits.store(options.after.is_some().into(), Relaxed);
    select(&arena, &options.select)?;
    select_threads(&arena, &options.threads)?;
    Ok(arena)
}

fn select(arena: &Arena, parts: &[Select]) -> io::Result<()> {
    let too_long = parts.iter().any(|part| part.file.len() > SELECTED_NAME);
    if parts.len() > MOST_SELECTED as usize || too_long {
        return Err(io::Error::other(format!(
            "at most {MOST_SELECTED} names of {SELECTED_NAME} bytes are selected"
        )));
    }
    for (index, part) in parts.iter().enumerate() {
        let mut bytes = [0; size_of::<Selected>()];
        let words = [part.offsets.start, part.offsets.end, part.file.len() as u64];
        bytes[..24].copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        bytes[24..24 + part.file.len()].copy_from_slice(part.file.as_bytes());
        arena.select(index as u64, &bytes);
    }
    arena.header().selected.store(parts.len() as u32, Relaxed);
    Ok(())
}

fn select_threads(arena: &Arena, threads: &[SelectThread]) -> io::Result<()> {
    if threads.len() > MOST_SELECTED_THREADS as usize {
        return Err(io::Error::other(format!("at most {MOST_SELECTED_THREADS} threads are selected")));
    }
    for (index, thread) in threads.iter().enumerate() {
        let (number, pattern) = match thread {
            SelectThread::Number(number) => (u64::from(*number), ""),
            SelectThread::Name(name) => (0, name.as_str()),
        };
        if pattern.len() > PATTERN {
            return Err(io::Error::other(format!("the name of a thread has at most {PATTERN} bytes")));
        }
        let mut bytes = [0; size_of::<SelectedThread>()];
        bytes[..16].copy_from_slice([number, pattern.len() as u64].map(u64::to_le_bytes).as_flattened());
        bytes[16..16 + pattern.len()].copy_from_slice(pattern.as_bytes());
        arena.select_threads(index as u64, &bytes);
    }
    arena.header().selected_threads.store(threads.len() as u32, Relaxed);
    Ok(())
}

/// Serves recorded processes until the recording is over.
fn run<W: Write + Send>(
    arena: &Arena,
    drain: Mutex<Drain<W>>,
    root: Option<Tracee>,
    options: &Options,
) -> Result<Outcome, Error> {
    let header = arena.header();
    options.control.begun.store(true, Relaxed);
    let over = AtomicBool::new(false);
    let (status, mut warnings, drained) = thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            let drained = empty_chunks(arena, &drain, &over);
            if drained.is_err() {
                // Programs go on unrecorded instead of waiting for room.
                header.closed.store(1, Release);
                header.emptied.fetch_add(1, Release);
                process::wake(&header.emptied);
            }
            drained
        });
        let (status, warnings) = follow_descendants(arena, &drain, root, options);
        over.store(true, Release);
        header.filled.fetch_add(1, Release);
        process::wake(&header.filled);
        let drained = drainer.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")));
        (status, warnings, drained)
    });
    header.closed.store(1, Release);
    let without_room = header.without_room.load(Relaxed);
    if without_room != 0 {
        warnings
            .push(format!("{without_room} programs ran unrecorded: there was no memory or slot for them"));
    }
    let drain = drain.into_inner().map_err(|_| io::Error::other("the writing thread failed"))?;
    let (killed, threads, snapshots) = (drain.killed, drain.threads, drain.snapshots);
    let finished = drained.and_then(|()| drain.finish(arena));
    if let Err(error) = &finished {
        warnings.push(format!(
            "the recording ends early, and the programs went on without it: {error}; what was written before can be read"
        ));
    }
    Ok(Outcome { status, is_complete: finished.is_ok(), threads, snapshots, killed, warnings })
}

/// Whether a program file gives its program other rights than this process has. The name is a path, or is found in
/// `PATH`.
fn is_privileged(name: &Path) -> bool {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let file = if name.components().count() > 1 { Some(name.to_owned()) } else { in_path() };
    let Some(metadata) = file.and_then(|file| fs::metadata(file).ok()) else { return false };
    let own = fs::metadata("/proc/self").map(|own| own.uid()).unwrap_or(0);
    let mode = metadata.mode();
    mode & SET_USER != 0 && metadata.uid() != own || mode & SET_GROUP == SET_GROUP
}

/// Writes chunks as they fill, until the recording is over.
fn empty_chunks<W: Write>(arena: &Arena, drain: &Mutex<Drain<W>>, over: &AtomicBool) -> io::Result<()> {
    const PATIENCE_MS: i64 = 20;
    loop {
        let filled = arena.header().filled.load(Acquire);
        let is_over = over.load(Acquire);
        let count = match drain.lock() {
            Ok(mut drain) => drain.chunks(arena)?,
            Err(_) => return Ok(()),
        };
        if count == 0 {
            if is_over {
                return Ok(());
            }
            process::wait_for(&arena.header().filled, filled, PATIENCE_MS);
        }
    }
}

/// Serves threads that execute programs, until the command and all its descendants have ended.
fn follow_descendants<W: Write>(
    arena: &Arena,
    drain: &Mutex<Drain<W>>,
    root: Option<Tracee>,
    options: &Options,
) -> (ExitStatus, Vec<String>) {
    let mut warnings = Vec::new();
    let mut status = if root.is_some() { None } else { Some(ExitStatus::from_raw(0)) };
    let begin = Instant::now();
    let (mut left, mut idle) = (false, None);
    let mut tracers = Tracers::new();
    let header = arena.header();
    loop {
        let requests = header.requests.load(Acquire);
        if header.follow.load(Acquire) == follow::ASKED {
            let (thread, number) = (header.follow_thread.load(Relaxed), header.follow_process.load(Relaxed));
            if let Some(warning) = follow_into(arena, drain, thread, number) {
                warnings.push(warning);
            }
            header.follow.store(follow::FREE, Release);
            process::wake(&header.follow);
            continue;
        }
        let snapshot = &options.control.snapshot;
        if snapshot.load(Acquire) {
            if let Ok(Err(error)) = drain.lock().map(|mut drain| drain.snapshot(arena)) {
                warnings.push(format!("a snapshot could not be written: {error}"));
            }
            snapshot.store(false, Release);
        }
        let stopped = options.control.stop.load(Relaxed);
        let after = options.after.unwrap_or_default();
        if begin.elapsed() >= after {
            header.waits.store(0, Release);
        }
        if !left && (stopped || options.duration.is_some_and(|duration| begin.elapsed() >= after + duration))
        {
            left = true;
            leave_all(arena, drain, &mut warnings);
        }
        if let (None, Some(root)) = (status, root) {
            status = end_of(root);
            options.control.ended.store(status.is_some(), Relaxed);
        }
        // A process that was just started takes a slot before it counts as running. Starting processes are looked for first,
        // so a process that changes from one to the other meanwhile is in one of the two.
        let starting = arena.slots().any(|index| arena.slot_state(index).load(Acquire) == slot_state::TAKEN);
        let running = drain.lock().map_or(Ok(0), |mut drain| drain.processes(arena)).unwrap_or(0);
        idle = if running == 0 { idle.or_else(|| Some(Instant::now())) } else { None };
        if let (Some(status), Some(since)) = (status, idle) {
            if !starting {
                return (status, warnings);
            }
            if since.elapsed() >= STARTERS_PATIENCE {
                warnings.push("a process or thread that was being started is not recorded".to_owned());
                return (status, warnings);
            }
        }
        let traced = tracers.look(arena);
        if let Ok(mut notices) = options.control.notices.lock() {
            notices.extend(traced);
        }
        const PATIENCE_MS: i64 = 5;
        process::wait_for(&header.requests, requests, PATIENCE_MS);
    }
}

/// How the command ended, if it did.
fn end_of(root: Tracee) -> Option<ExitStatus> {
    match root.look() {
        Event::Ended(raw) => Some(ExitStatus::from_raw(raw)),
        Event::Gone => Some(ExitStatus::from_raw(0)),
        _ => None,
    }
}

/// How long to wait for processes that have been started, but do not run yet.
const STARTERS_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for processes that live in their parents' memory.
const BORROWERS_PATIENCE: Duration = Duration::from_secs(10);

/// Gives all recorded processes their own code back.
fn leave_all<W: Write>(arena: &Arena, drain: &Mutex<Drain<W>>, warnings: &mut Vec<String>) {
    let header = arena.header();
    header.leaving.store(1, Release);
    let mut failed = BTreeSet::new();
    let begin = Instant::now();
    loop {
        let mut processes = leave::processes(arena);
        processes.retain(|number, _| !failed.contains(number));
        let Some((&number, &memory)) = processes.iter().min_by_key(|(_, memory)| **memory) else { break };
        if memory == leave::Memory::Parents && begin.elapsed() < BORROWERS_PATIENCE {
            // It executes its program soon, unrecorded.
            if leave::is_gone(number) {
                _ = drain.lock().map(|mut drain| drain.left(arena, number));
            }
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        match leave::leave(arena, number) {
            Ok(halted) => {
                if let Ok(mut drain) = drain.lock() {
                    _ = drain.left(arena, number);
                }
                drop(halted);
            }
            Err(_) if !Path::new(&format!("/proc/{number}")).exists() => {
                _ = failed.insert(number);
            }
            Err(refusal) => {
                warnings.push(format!(
                    "process {number} goes on translated, and unrecorded: it did not get its own code back ({refusal})"
                ));
                failed.insert(number);
            }
        }
    }
    if !warnings.is_empty() {
        header.closed.store(1, Release);
    }
    header.leaving.store(0, Release);
    process::wake(&header.leaving);
}

/// Traces a thread until it has executed its program, and puts the runtime into that. Returns a warning if it runs
/// unrecorded.
fn follow_into<W: Write>(arena: &Arena, drain: &Mutex<Drain<W>>, thread: u32, number: u32) -> Option<String> {
    let header = arena.header();
    let tracee = Tracee(thread as i32);
    if let Err(error) = tracee.seize() {
        header.follow.store(follow::REFUSED, Release);
        process::wake(&header.follow);
        // The thread takes the answer back.
        while header.follow.load(Acquire) == follow::REFUSED && !matches!(tracee.look(), Event::Ended(_)) {
            if !Path::new(&format!("/proc/{thread}")).exists() {
                break;
            }
            thread::sleep(Duration::from_micros(100));
        }
        let refusal = explain(thread, error);
        return Some(format!("process {number}: its next program runs unrecorded: {refusal}"));
    }
    header.follow.store(follow::READY, Release);
    process::wake(&header.follow);
    let leader = Tracee(number as i32);
    loop {
        // A thread that executes a program takes the number of its process.
        let (who, event) = match tracee.look() {
            Event::Nothing | Event::Gone if thread != number => (leader, leader.look()),
            event => (tracee, event),
        };
        match event {
            Event::Executed => {
                if let Ok(mut drain) = drain.lock() {
                    _ = drain.retire(arena, number, End::Executed);
                }
                let injected = inject(who, arena.descriptor());
                _ = who.detach();
                return injected.err().map(|refusal| {
                    let program = fs::read_link(format!("/proc/{number}/exe")).unwrap_or_default();
                    format!("{} (process {number}) runs unrecorded: {refusal}", program.display())
                });
            }
            Event::Signal(libc::SIGSTOP) if header.follow.load(Acquire) == follow::FAILED => {
                _ = who.detach();
                return None;
            }
            Event::Signal(signal) => _ = who.go_on(signal),
            Event::Stopped(_) => _ = who.go_on(process::NO_SIGNAL),
            Event::Ended(_) => return None,
            Event::Gone if !Path::new(&format!("/proc/{number}")).exists() => return None,
            Event::Gone | Event::Nothing => thread::sleep(Duration::from_micros(50)),
        }
    }
}
