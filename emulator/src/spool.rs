//! The spool: a directory of files through which the plugin tells the recorder what happened.
//!
//! ```text
//! settings.json             recorder → plugin
//! thread-PID-TID-N          header (Thread, 8 KiB), then trace bytes
//! process-PID-N.notes       one JSON object a line: what the kernel would tell perf
//! process-PID-N.code        code that no file holds, in the order of its notes
//! ```
//!
//! Files are written through shared mappings or by single appends, so that they are usable however
//! the program dies. What the thread had not yet told is finished by [`ThreadRecord::read`].

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use hodo_intel_pt::encoder::{Encoder, Sink};
use serde::{Deserialize, Serialize};

use crate::block::Block;

/// Where trace bytes begin in a thread's file.
pub const HEADER: u64 = 8192;

/// First word of a thread's file; changes with the size of its header.
const MAGIC: u64 = 0x3173_6468_742d_6f68 ^ (size_of::<Thread>() as u64) << 32;

/// What happened, when, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Virtual clock, in ticks.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What happened.
    pub kind: NoteKind,
}

/// What a note says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoteKind {
    /// The thread has a new name; `exec` where it executed a program.
    Comm {
        /// The name.
        name: Vec<u8>,
        /// Whether it executed a program.
        exec: bool,
    },
    /// Code of a file (or of no file) is mapped.
    Map(MapNote),
    /// The thread, or its process, was made by this one.
    Fork {
        /// This one's process.
        parent_pid: u32,
        /// This one.
        parent_tid: u32,
    },
    /// The next so many bytes of the process's code file stood at an address from this time on.
    Code {
        /// First address.
        address: u64,
        /// Bytes.
        length: u64,
        /// When it was found there, in nanoseconds of `CLOCK_MONOTONIC`: the clock by which a run-time
        /// compiler's own account (jitdump) says what it made.
        found: u64,
    },
    /// A program ran where the emulator could not follow.
    Untraced {
        /// Why, for people.
        reason: String,
    },
}

/// A mapping of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapNote {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file of the byte at `address`.
    pub file_offset: u64,
    /// Device of the file.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// Path of the file, or `//anon`.
    pub name: Vec<u8>,
    /// Build id of the file; empty where it has none.
    pub build_id: Vec<u8>,
}

/// Where the next trace byte goes: a part of the file that is mapped.
#[repr(C)]
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) cursor: *mut u8,
    /// When the cursor reaches this, something is due: a PSB, or another window.
    pub(crate) limit: *mut u8,
    pub(crate) base: *mut u8,
    pub(crate) end: *mut u8,
    /// Trace bytes before `base`.
    pub(crate) offset: u64,
    /// Trace bytes at which the next PSB is due.
    pub(crate) next_psb: u64,
}

impl Window {
    /// Trace bytes so far.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.offset.wrapping_add((self.cursor as u64).wrapping_sub(self.base as u64))
    }
}

impl Sink for Window {
    #[inline(always)]
    fn put(&mut self, word: u64, length: usize) {
        // SAFETY: the thread changes windows long before the cursor comes within 8 bytes of the end.
        unsafe {
            self.cursor.cast::<u64>().write_unaligned(word);
            self.cursor = self.cursor.add(length);
        }
    }
}

/// Counts of what a thread ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The virtual clock.
    pub(crate) now: u64,
    /// Ticks that the clock was set forward.
    pub(crate) skipped: u64,
    /// Near calls.
    pub(crate) calls: u64,
    /// Instructions and calls that ran while the trace was off.
    pub(crate) untraced_instructions: u64,
    pub(crate) untraced_calls: u64,
}

/// A thread of the emulated program, at the start of its file: plain words, so that the recorder can
/// read them whatever state the thread died in.
#[repr(C)]
pub(crate) struct Thread {
    magic: u64,
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) start: u64,
    /// Orders the files of one thread.
    pub(crate) sequence: u64,
    /// Size of the ring, in snapshot mode; else 0.
    pub(crate) ring: u64,
    /// Set while the words here are being changed.
    pub(crate) busy: u64,
    pub(crate) previous: *const Block,
    /// Where the block begins that may be running.
    pub(crate) pc: u64,
    /// Whether packets are being made (the thread runs code that is traced).
    pub(crate) tracing: u64,
    /// Whether every block takes the slow path, because not everything is traced.
    pub(crate) careful: u64,
    /// Whether packets are being lost on request.
    pub(crate) losing: u64,
    /// Where the frame of the last signal lies, and where it returns to.
    pub(crate) last_frame: [u64; 2],
    /// Whether recording ended before the thread did.
    pub(crate) stopped: u64,
    /// Block successions that no rule explains.
    pub(crate) surprises: u64,
    pub(crate) counts: Counts,
    pub(crate) window: Window,
    pub(crate) encoder: Encoder,
    /// What was true right after the last PSB+.
    pub(crate) checkpoint: Checkpoint,
}

/// Where a trace may be cut if its thread died while it changed its words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checkpoint {
    pub(crate) counts: Counts,
    pub(crate) position: u64,
    pub(crate) pc: u64,
    pub(crate) tracing: u64,
}

/// Who a thread's file is about.
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) sequence: u64,
}

impl Thread {
    pub(crate) fn new(
        who: &Identity,
        ring: u64,
        start: u64,
        encoder: Encoder,
        outside: &'static Block,
    ) -> Thread {
        let none = std::ptr::null_mut();
        let counts = Counts { now: start, ..Counts::default() };
        Thread {
            magic: MAGIC,
            pid: who.pid.into(),
            tid: who.tid.into(),
            start,
            sequence: who.sequence,
            ring,
            busy: 0,
            previous: outside,
            pc: 0,
            tracing: 0,
            careful: 0,
            losing: 0,
            last_frame: [0; 2],
            stopped: 0,
            surprises: 0,
            counts,
            window: Window { cursor: none, limit: none, base: none, end: none, offset: 0, next_psb: 0 },
            encoder,
            checkpoint: Checkpoint { counts, ..Checkpoint::default() },
        }
    }
}

/// A thread's file, closed: everything that its trace shows.
#[derive(Clone, Debug)]
pub struct ThreadRecord {
    /// The file; trace bytes begin at [`HEADER`].
    pub path: PathBuf,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Orders the files of one thread.
    pub sequence: u64,
    /// Virtual clock at the start and at the end, in ticks.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// Instructions and near calls that ran.
    pub instructions: u64,
    /// See `instructions`.
    pub calls: u64,
    /// Those that the trace shows.
    pub traced_instructions: u64,
    /// See `traced_instructions`.
    pub traced_calls: u64,
    /// Trace bytes that were written to the file, ever.
    pub written: u64,
    /// Size of the ring that holds the last of them, in snapshot mode.
    pub ring: Option<u64>,
    /// Bytes that end the trace.
    pub tail: Vec<u8>,
    /// The thread died in the middle of a packet or is still running, and its trace was cut at the
    /// last PSB.
    pub cut: bool,
    /// The trace could not be written to its end, because the disk was full.
    pub stopped: bool,
    /// Block successions that no rule explains; 0 unless the emulator is wrong.
    pub surprises: u64,
}

impl ThreadRecord {
    /// Reads a thread's file, and finishes its trace: a thread that died while it was running ends
    /// with an interrupt at the start of the block that it was in, whose instructions count as not
    /// executed, here and in the trace.
    ///
    /// # Errors
    /// What the system says, or that it is no such file.
    pub fn read(path: &Path) -> io::Result<ThreadRecord> {
        let mut bytes = [0; size_of::<Thread>()];
        File::open(path)?.read_exact(&mut bytes)?;
        // SAFETY: the bytes are as many as a `Thread` has, and all its fields are words for which
        // every value is valid; the pointers among them are compared, never followed.
        let thread: Thread = unsafe { bytes.as_ptr().cast::<Thread>().read_unaligned() };
        if thread.magic != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a thread's trace of this version"));
        }
        Ok(thread.close(path))
    }
}

impl Thread {
    fn close(mut self, path: &Path) -> ThreadRecord {
        let alive = Path::new("/proc").join(format!("{}/task/{}", self.pid, self.tid)).exists();
        let cut = self.stopped == 0 && (self.busy != 0 || alive && self.tracing != 0);
        let mut end = Checkpoint {
            counts: self.counts,
            position: self.window.position(),
            pc: self.pc,
            tracing: self.tracing,
        };
        if cut {
            end = self.checkpoint;
            self.encoder.forget(end.counts.now);
        }
        let Checkpoint { counts, position: written, .. } = end;
        let mut tail = Vec::new();
        if end.tracing != 0 {
            self.encoder.interrupt(end.pc, counts.now, &mut tail);
        }
        let instructions = counts.now.saturating_sub(self.start).saturating_sub(counts.skipped);
        ThreadRecord {
            path: path.to_owned(),
            pid: self.pid as u32,
            tid: self.tid as u32,
            sequence: self.sequence,
            start: self.start,
            end: counts.now,
            instructions,
            calls: counts.calls,
            traced_instructions: instructions.saturating_sub(counts.untraced_instructions),
            traced_calls: counts.calls.saturating_sub(counts.untraced_calls),
            written,
            ring: (self.ring != 0).then_some(self.ring),
            tail,
            cut,
            stopped: self.stopped != 0,
            surprises: self.surprises,
        }
    }
}

/// Reads the notes of a process; a line that was cut short ends them.
///
/// # Errors
/// What the system says.
pub fn read_notes(path: &Path) -> io::Result<Vec<Note>> {
    let mut notes = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        match serde_json::from_str(&line?) {
            Ok(note) => notes.push(note),
            Err(_) => break,
        }
    }
    Ok(notes)
}
