//! The spool: a directory of files that the plugin writes for the recorder.
//!
//! ```text
//! settings.json             recorder → plugin
//! thread-PID-TID-N          header (Thread, 8 KiB), then trace bytes
//! process-PID-N.notes       one JSON object per line: what the kernel would report to perf
//! process-PID-N.code        code that no file contains
//! ```
//!
//! Files are written through shared mappings or by single appends, so that they are usable however the program dies.
//! [`ThreadRecord::read`] completes the trace of a thread that died.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    mem,
    path::{Path, PathBuf},
    ptr,
    sync::atomic::{AtomicU64, Ordering, compiler_fence},
};

use hodo_intel_pt::encoder::{Encoder, Sink};
use serde::{Deserialize, Serialize};

use crate::{block::Block, window};

/// Offset of the trace bytes in a thread's file.
pub const HEADER: u64 = 8192;

/// The first word of a thread's file; changes with the size of its header.
pub(crate) const MAGIC: u64 = 0x3173_6468_742d_6f68 ^ (size_of::<Thread>() as u64) << 32;

/// An event with its time, process and thread.
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

/// The content of a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoteKind {
    /// The thread has a new name.
    Comm {
        /// The name.
        name: Vec<u8>,
        /// Whether it executed a program.
        exec: bool,
    },
    /// Code of a file (or of no file) is mapped.
    Map(MapNote),
    /// The thread, or its process, was made by another.
    Fork {
        /// The process of the creator.
        parent_pid: u32,
        /// The creator.
        parent_tid: u32,
    },
    /// Since this time, bytes of the process's code file are at an address.
    Code {
        /// Their offset in the file.
        offset: u64,
        /// First address.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// When it was found there, in nanoseconds of `CLOCK_MONOTONIC`: the clock of a run-time compiler's own record
        /// (jitdump).
        found: u64,
    },
    /// A program ran where the emulator could not follow.
    Untraced {
        /// The reason, for people.
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
    /// File offset of the byte at `address`.
    pub file_offset: u64,
    /// Device of the file: major and minor number.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// Path of the file, or `//anon`.
    pub name: Vec<u8>,
    /// Build id of the file; empty if it has none.
    pub build_id: Vec<u8>,
}

/// The write position: a part of the file that is mapped.
#[repr(C)]
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) cursor: *mut u8,
    /// When the cursor reaches this, a PSB or another window is due.
    pub(crate) limit: *mut u8,
    pub(crate) base: *mut u8,
    pub(crate) end: *mut u8,
    /// Trace bytes before `base`.
    pub(crate) offset: u64,
    /// Position at which the next PSB is due, in trace bytes.
    pub(crate) next_psb: u64,
}

impl Window {
    /// The number of trace bytes so far.
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
    /// Ticks by which the clock was set forward.
    pub(crate) skipped: u64,
    /// Near calls.
    pub(crate) calls: u64,
    /// Instructions and calls that ran while the trace was off.
    pub(crate) untraced_instructions: u64,
    pub(crate) untraced_calls: u64,
}

/// A thread of the emulated program, at the start of its file: plain words, so that the recorder can read them in
/// whatever state the thread died.
#[repr(C)]
pub(crate) struct Thread {
    pub(crate) magic: u64,
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) start: u64,
    /// Orders the files of one thread.
    pub(crate) sequence: u64,
    /// Size of the ring in snapshot mode; else 0.
    pub(crate) ring: u64,
    /// Nonzero while the words here change.
    pub(crate) busy: u64,
    pub(crate) previous: *const Block,
    /// Address of the block that may be running.
    pub(crate) pc: u64,
    /// Whether packets are emitted (the thread runs traced code).
    pub(crate) tracing: u64,
    /// Why every block takes the slow path: [`FILTERED`], [`GIVEN_UP`], [`SEALED`].
    pub(crate) careful: AtomicU64,
    /// Whether packets are lost on request.
    pub(crate) losing: u64,
    /// The address of the last signal's frame, and its return address.
    pub(crate) last_frame: [u64; 2],
    /// Whether recording ended before the thread did.
    pub(crate) stopped: u64,
    /// Unexplained block successions.
    pub(crate) flow_losses: u64,
    pub(crate) counts: Counts,
    pub(crate) window: Window,
    pub(crate) encoder: Encoder,
    /// The state right after the last PSB+, and after the one before.
    checkpoints: [Checkpoint; 2],
    /// The index of the last one. It changes when the checkpoint is complete, so that a thread that dies while it
    /// writes one leaves the other.
    latest: u64,
}

/// In [`Thread::careful`]: not everything is traced.
pub(crate) const FILTERED: u64 = 1;
/// In [`Thread::careful`]: the process's notes can't be written any more, and the thread's trace ends.
pub(crate) const GIVEN_UP: u64 = 4;
/// In [`Thread::careful`]: the recorder has ended the recording, and the thread must not touch its file. The
/// recorder sets this bit in the file, and writes no other word.
pub(crate) const SEALED: u64 = 2;

/// Where to cut a trace if its thread died while it changed its words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checkpoint {
    pub(crate) counts: Counts,
    pub(crate) position: u64,
    pub(crate) pc: u64,
    pub(crate) tracing: u64,
}

/// The thread that a file belongs to.
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
            careful: AtomicU64::new(0),
            losing: 0,
            last_frame: [0; 2],
            stopped: 0,
            flow_losses: 0,
            counts,
            window: Window { cursor: none, limit: none, base: none, end: none, offset: 0, next_psb: 0 },
            encoder,
            checkpoints: [Checkpoint { counts, ..Checkpoint::default() }; 2],
            latest: 0,
        }
    }

    /// Sets the point at which the trace may be cut.
    pub(crate) fn set_checkpoint(&mut self, checkpoint: Checkpoint) {
        let next = (self.latest + 1) % 2;
        self.checkpoints[next as usize] = checkpoint;
        compiler_fence(Ordering::SeqCst);
        // SAFETY: a plain store, volatile so that it stays after the one above.
        unsafe { ptr::write_volatile(&mut self.latest, next) };
    }

    /// Writes a thread's words to the start of its file. The magic word comes last, so that a file whose thread died
    /// meanwhile is not taken for a complete one.
    ///
    /// # Safety
    /// `home` is a valid place for a `Thread`, and no other code uses it.
    pub(crate) unsafe fn publish(mut self, home: *mut Thread) {
        let magic = mem::take(&mut self.magic);
        // SAFETY: the caller promises it.
        unsafe {
            home.write(self);
            compiler_fence(Ordering::SeqCst);
            (&raw mut (*home).magic).write_volatile(magic);
        }
    }
}

/// A thread's completed record.
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
    /// The traced instructions and near calls.
    pub traced_instructions: u64,
    /// See `traced_instructions`.
    pub traced_calls: u64,
    /// All trace bytes that were ever written to the file.
    pub written: u64,
    /// Size of the ring that contains the last of them, in snapshot mode: byte `n` is at `n` modulo this size.
    pub ring: Option<u64>,
    /// Trace bytes that the ring no longer contains, counted from the first.
    pub overwritten: u64,
    /// Bytes to append to the trace.
    pub tail: Vec<u8>,
    /// Whether the thread died in the middle of a packet, and its trace was cut at the last PSB.
    pub cut: bool,
    /// Whether the trace ended early because the disk was full.
    pub stopped: bool,
    /// Unexplained block successions; 0 unless the emulator is wrong.
    pub flow_losses: u64,
}

impl ThreadRecord {
    /// Reads a thread's file, and completes its trace: a thread that died while it was running ends with an interrupt
    /// at the start of its last block, whose instructions count as not executed, here and in the trace. `None` for a
    /// thread that ran no instruction: its file is not complete.
    ///
    /// `settled`: the thread lives and was [sealed](crate::seal::seal) between two blocks.
    ///
    /// # Errors
    /// The system's error, or that the file has another format.
    pub fn read(path: &Path, settled: bool) -> io::Result<Option<ThreadRecord>> {
        let mut bytes = [0; size_of::<Thread>()];
        match File::open(path)?.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        // SAFETY: the array has the size of a `Thread`, whose fields are all words for which every value is valid; the
        // pointers among them are compared, never dereferenced.
        let mut thread: Thread = unsafe { bytes.as_ptr().cast::<Thread>().read_unaligned() };
        match thread.magic {
            0 => return Ok(None),
            MAGIC => {}
            _ => {
                let reason = "not a thread's trace of this version";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        }
        if settled {
            thread.busy = 0;
        }
        Ok(Some(thread.close(path)))
    }
}

impl Thread {
    fn close(mut self, path: &Path) -> ThreadRecord {
        let cut = self.stopped == 0 && self.busy != 0;
        let mut end = Checkpoint {
            counts: self.counts,
            position: self.window.position(),
            pc: self.pc,
            tracing: self.tracing,
        };
        // A thread that died within a change may have written more than its words count.
        let last =
            self.window.position().saturating_add(if self.busy != 0 { window::SLACK as u64 } else { 0 });
        let overwritten = if self.ring == 0 { 0 } else { last.saturating_sub(self.ring) };
        if cut {
            end = self.checkpoints[usize::from(self.latest == 1)];
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
            overwritten: overwritten.min(written),
            tail,
            cut,
            stopped: self.stopped != 0,
            flow_losses: self.flow_losses,
        }
    }
}

impl ThreadRecord {
    /// The available trace: its length in bytes, and a reader. The trace of a ring may begin within a packet.
    ///
    /// # Errors
    /// The system's error.
    pub fn trace(&self) -> io::Result<(u64, impl Read)> {
        let open = |at: u64| {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(HEADER + at))?;
            io::Result::Ok(file)
        };
        let kept = self.written - self.overwritten;
        // The bytes in a ring wrap around at most once.
        let ring = self.ring.unwrap_or(u64::MAX);
        let start = self.overwritten % ring;
        let first = kept.min(ring - start);
        let bytes = open(start)?.take(first).chain(open(0)?.take(kept - first)).chain(self.tail.as_slice());
        Ok((kept + self.tail.len() as u64, bytes))
    }
}

/// Reads the notes of a process, and counts incomplete ones.
///
/// # Errors
/// The system's error.
pub fn read_notes(path: &Path) -> io::Result<(Vec<Note>, u64)> {
    let (mut notes, mut torn) = (Vec::new(), 0);
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(note) => notes.push(note),
            Err(_) => torn += 1,
        }
    }
    Ok((notes, torn))
}

#[cfg(test)]
mod tests {
    use hodo_intel_pt::encoder::{Settings, Timing};

    use super::*;
    use crate::{block::OUTSIDE, window};

    const RING: u64 = 64 << 10;
    const WORD: u64 = 8;
    /// The threads of these tests died.
    const SETTLED: bool = false;

    /// A thread in snapshot mode that has written `words` words, each its own number, with a checkpoint after
    /// `checkpoint` of them.
    fn ring(folder: &Path, words: u64, checkpoint: u64) -> (PathBuf, *mut Thread) {
        let timing = Timing { tsc: true, mtc_period: None, cyc_threshold: None };
        let encoder = Encoder::new(Settings { return_compression: false, timing }, 0);
        let who = Identity { pid: 1, tid: 1, sequence: 0 };
        let home = window::create(folder, Thread::new(&who, RING, 0, encoder, &OUTSIDE)).unwrap();
        // SAFETY: just made, and not shared yet.
        let thread = unsafe { &mut *home };
        for number in 0..words {
            if number == checkpoint {
                let (counts, position) = (thread.counts, thread.window.position());
                thread.set_checkpoint(Checkpoint { counts, position, pc: 0, tracing: 0 });
            }
            thread.window.put(number, WORD as usize);
            window::advance(thread).unwrap();
        }
        (folder.join("thread-1-1-0"), home)
    }

    fn words(record: &ThreadRecord) -> Vec<u64> {
        let mut bytes = Vec::new();
        let (length, mut trace) = record.trace().unwrap();
        trace.read_to_end(&mut bytes).unwrap();
        assert_eq!(length, bytes.len() as u64);
        bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect()
    }

    #[test]
    fn a_ring_gives_the_last_of_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        for words_written in [0, 1, RING / WORD - 1, RING / WORD, RING / WORD + 1, 3 * RING / WORD + 7] {
            let (path, thread) = ring(folder.path(), words_written, 0);
            let record = ThreadRecord::read(&path, SETTLED).unwrap().unwrap();
            let first = words_written.saturating_sub(RING / WORD);
            assert_eq!(words(&record), (first..words_written).collect::<Vec<_>>());
            // SAFETY: it was made here, and is not used any more.
            unsafe { window::close(thread) };
            std::fs::remove_file(path).unwrap();
        }
    }

    /// A thread that dies while it changes its words is cut at its checkpoint. Its later bytes overwrite the oldest
    /// bytes of the ring, and must not be taken for them.
    #[test]
    fn a_ring_that_is_cut_holds_nothing_new_in_the_place_of_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let (all, checkpoint) = (3 * RING / WORD, 3 * RING / WORD - 100);
        let (path, thread) = ring(folder.path(), all, checkpoint);
        // SAFETY: it was made here.
        let thread = unsafe { &mut *thread };
        thread.busy = 1;
        // Bytes beyond the cursor may be written before it moves.
        let slack = window::SLACK as u64 / WORD;
        for beyond in 0..slack {
            // SAFETY: the ring is mapped twice.
            unsafe { thread.window.cursor.cast::<u64>().add(beyond as usize).write_unaligned(u64::MAX) };
        }
        let record = ThreadRecord::read(&path, SETTLED).unwrap().unwrap();
        assert!(record.cut);
        assert_eq!(words(&record), (all + slack - RING / WORD..checkpoint).collect::<Vec<_>>());
        // SAFETY: it was made here, and is not used any more.
        unsafe { window::close(thread) };
    }

    #[test]
    fn a_thread_that_has_not_begun_is_none_and_a_foreign_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thread-1-1-0");
        for bytes in [&[][..], &[0; 100], &[0; 3 * HEADER as usize]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(ThreadRecord::read(&path, SETTLED).unwrap().is_none());
        }
        std::fs::write(&path, [1; 3 * HEADER as usize]).unwrap();
        assert_eq!(ThreadRecord::read(&path, SETTLED).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    /// A thread that dies while it writes a checkpoint leaves the one before it whole.
    #[test]
    fn a_checkpoint_is_written_beside_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, thread) = ring(folder.path(), 1000, 500);
        // SAFETY: it was made here.
        let thread = unsafe { &mut *thread };
        thread.busy = 1;
        thread.checkpoints[1 - thread.latest as usize].position = u64::MAX;
        let record = ThreadRecord::read(&path, SETTLED).unwrap().unwrap();
        assert_eq!(record.written, 500 * WORD);
        // SAFETY: it was made here, and is not used any more.
        unsafe { window::close(thread) };
    }

    #[test]
    fn a_note_that_is_torn_is_counted_and_loses_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("process-1-0.notes");
        let note = |time| Note { time, pid: 1, tid: 1, kind: NoteKind::Untraced { reason: String::new() } };
        let line = |time| serde_json::to_string(&note(time)).unwrap();
        let text = format!("{}\n{}{}\n{}\n", line(1), &line(2)[..9], line(3), line(4));
        std::fs::write(&path, text).unwrap();
        assert_eq!(read_notes(&path).unwrap(), (vec![note(1), note(4)], 1));
    }
}
