//! The state that the threads of a process share: its code, its mappings, its signal handlers.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    block::{Block, HANDLER, REPLACED, Read},
    filter,
    lock::Lock,
    mappings::{Mappings, ToRecord},
    settings::Settings,
    spool::{Note, NoteKind},
    target, threads,
};

/// The most bytes of a thread's name in the kernel (TASK_COMM_LEN, without the NUL).
pub(crate) const COMM: usize = 15;

/// The current process.
pub(crate) static PROCESS: Lock<Option<Process>> = Lock::new(None);

/// A thread that is being made, identified by its stack pointer.
struct Clone {
    stack: u64,
    parent_tid: u32,
    time: u64,
}

/// The code that a block was made from, and the block.
type Version = (Box<[u8]>, &'static Block);

/// State of the emulated process.
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) spool: PathBuf,
    pub(crate) settings: Settings,
    /// The virtual clock when this program began to run.
    pub(crate) birth: u64,
    /// Distinguishes and orders the files of one thread or process.
    pub(crate) sequence: u64,
    /// The process and thread that forked this one, until its first thread runs.
    pub(crate) forked_by: Option<(u32, u32)>,
    /// Whether the program's first thread has run.
    pub(crate) started: bool,
    given_up: AtomicBool,
    mappings: Mappings,
    blocks: FxHashMap<u64, Vec<Version>>,
    handlers: FxHashSet<u64>,
    clones: Vec<Clone>,
}

impl Process {
    pub(crate) fn new(spool: PathBuf, settings: Settings, clock: u64) -> Process {
        let mut process = Process {
            pid: std::process::id(),
            spool,
            settings,
            birth: clock,
            sequence: 0,
            forked_by: None,
            started: false,
            given_up: AtomicBool::new(false),
            mappings: Mappings::default(),
            blocks: FxHashMap::default(),
            handlers: FxHashSet::default(),
            clones: Vec::new(),
        };
        process.choose_files();
        process
    }

    /// Chooses a name that no other process and no earlier program of this one has.
    fn choose_files(&mut self) {
        self.sequence = 0;
        while self.file("notes").exists() {
            self.sequence += 1;
        }
        // The first note may come late; this reserves the name now.
        _ = std::fs::File::create(self.file("notes"));
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.spool.join(format!("process-{}-{}.{kind}", self.pid, self.sequence))
    }

    /// Turns this into a child process, forked at `clock` by a thread of the former process.
    pub(crate) fn become_child(&mut self, parent_tid: u32, clock: u64) {
        self.forked_by = Some((self.pid, parent_tid));
        self.pid = std::process::id();
        self.birth = clock;
        self.clones.clear();
        self.choose_files();
    }

    /// Appends to the process's notes. If that fails (the disk is full, or the recorder and its spool are gone), the
    /// traces of the process end: they are useless without the notes.
    pub(crate) fn note(&self, time: u64, tid: u32, kind: NoteKind) {
        let note = Note { time, pid: self.pid, tid, kind };
        let line = serde_json::to_vec(&note).map_err(io::Error::from);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            append(&self.file("notes"), &line)
        });
        if written.is_err() {
            self.give_up();
        }
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        threads::give_up(self);
    }

    /// Whether the process's notes can't be written any more.
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// A thread is about to be made with this stack; stack 0 shares the parent's.
    pub(crate) fn clone_begins(&mut self, stack: u64, parent_tid: u32, time: u64) {
        self.clones.retain(|clone| clone.stack != stack);
        self.clones.push(Clone { stack, parent_tid, time });
    }

    /// The creator of the thread that begins with this stack, and the time.
    pub(crate) fn clone_of(&mut self, stack: u64) -> Option<(u32, u64)> {
        let index = self.clones.iter().position(|clone| clone.stack == stack)?;
        let clone = self.clones.swap_remove(index);
        Some((clone.parent_tid, clone.time))
    }

    /// A signal handler begins at `address`.
    pub(crate) fn add_handler(&mut self, address: u64) {
        if self.handlers.insert(address) {
            for (_, block) in self.blocks.get(&address).into_iter().flatten() {
                block.flags.fetch_or(HANDLER, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn is_handler(&self, address: u64) -> bool {
        self.handlers.contains(&address)
    }

    /// Drops the mappings of this range, which may change.
    pub(crate) fn unmap(&mut self, address: u64, length: u64) {
        self.mappings.forget(address, length);
    }

    /// A file is about to be mapped for execution.
    pub(crate) fn maps(&mut self, file: i32) {
        if let Ok(name) = std::fs::read_link(format!("/proc/self/fd/{file}")) {
            self.mappings.mark(name.into_os_string().into_encoded_bytes());
        }
    }

    /// The block that QEMU is translating. `later` returns a time after everything that ran so far.
    pub(crate) fn translate(&mut self, reads: &[Read<'_>], later: &dyn Fn() -> u64) -> &'static Block {
        if self.blocks.is_empty() {
            // Before the program's first mapping, because it drops the mappings of the program before.
            let name = Process::command_name(&crate::program().unwrap_or_default());
            self.note(self.birth, self.pid, NoteKind::Comm { name, exec: true });
        }
        let pc = reads.first().map_or(0, |read| read.address);
        let bytes: Vec<u8> = reads.iter().flat_map(|read| read.bytes).copied().collect();
        for map in self.mappings.marked() {
            self.note(self.birth, self.pid, NoteKind::Map(map));
        }
        let to_record = self.mappings.look_up(pc, &bytes, later);
        let not_before = to_record.not_before;
        self.record_code(pc, &bytes, to_record);
        let known = self.blocks.entry(pc).or_default();
        let block = match known.iter().find(|(code, block)| **code == bytes[..] && block.reads == reads.len())
        {
            Some((_, block)) => *block,
            None => {
                // Blocks are never freed: QEMU's code may call back with them at any time.
                let block: &'static Block =
                    Box::leak(Box::new(Block::new(pc, reads, target::current().isa())));
                known.push((bytes.into(), block));
                block
            }
        };
        if self.handlers.contains(&pc) {
            block.flags.fetch_or(HANDLER, Ordering::Relaxed);
        }
        if not_before != 0 {
            block.not_before.fetch_max(not_before, Ordering::Relaxed);
            block.flags.fetch_or(REPLACED, Ordering::Relaxed);
        }
        block
    }

    /// Records the mapping and the bytes of code if they are new. Code at a new place is dated back to the program's begin:
    /// threads have separate clocks, and code must exist by the clock of every thread that runs it.
    fn record_code(&self, pc: u64, bytes: &[u8], to_record: ToRecord) {
        let time = to_record.not_before.max(self.birth);
        if let Some(map) = to_record.new_mapping {
            filter::mapped(&map);
            self.note(time, self.pid, NoteKind::Map(map));
        }
        if to_record.keep {
            let length = bytes.len() as u64;
            match append(&self.file("code"), bytes) {
                Ok(offset) => {
                    let kind = NoteKind::Code { offset, address: pc, length, found: monotonic() };
                    self.note(time, self.pid, kind);
                }
                Err(_) => self.give_up(),
            }
        }
    }

    /// The program's name as the kernel reports it: the file's name, cut.
    fn command_name(program: &Path) -> Vec<u8> {
        let mut name = program.file_name().unwrap_or(program.as_os_str()).as_bytes().to_vec();
        name.truncate(COMM);
        name
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Appends in a single write, so that lines stay whole despite other writers or a sudden end of the process. Returns
/// the offset of the bytes in the file. No file stays open: the program may close or count all its file descriptors.
fn append(path: &Path, bytes: &[u8]) -> io::Result<u64> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    let offset = file.metadata()?.len();
    file.write_all(bytes)?;
    Ok(offset)
}
