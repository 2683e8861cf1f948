//! The memory that the recorder shares with all recorded processes.

#![allow(unsafe_code)]

use std::{
    cell::Cell,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
    ptr::NonNull,
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, SeqCst},
        compiler_fence, fence,
    },
};

use hodo_native_runtime::{
    context::Context,
    layout::{
        ARENA, ARENA_ROOM, ATTACHED, ArenaHeader, Attached, CHUNK_ROOM, CHUNK_STRIDE, CHUNKS, ChunkHeader,
        FIRST_CHUNK, FIRST_SLOT, LOG, LOG_BYTES, MOST_SELECTED, MOST_SELECTED_THREADS, SELECTED,
        SELECTED_THREADS, SLOT_STRIDE, SLOTS, Selected, SelectedThread,
    },
};

/// The arena, mapped by the recorder.
pub(crate) struct Arena {
    file: File,
    base: NonNull<u8>,
}

// SAFETY: the memory is mapped until the arena is dropped, and what is shared in it is atomic or read when its owner is
// done.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// A part of a log that a thread has finished.
pub(crate) struct Chunk<'a> {
    pub(crate) header: &'a ChunkHeader,
    pub(crate) bytes: &'a [u8],
}

impl Arena {
    /// Creates an arena; memory is used where it is touched.
    pub(crate) fn new() -> io::Result<Arena> {
        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(c"hodo".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned the descriptor, which nobody else has.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(ARENA_ROOM)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of the file, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), ARENA_ROOM as usize, protection, libc::MAP_SHARED, descriptor, 0)
        };
        match NonNull::new(base.cast()) {
            Some(base) if base.as_ptr() != libc::MAP_FAILED.cast::<u8>() => Ok(Arena { file, base }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The descriptor of its memory.
    pub(crate) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn structure<T>(&self, offset: u64) -> &T {
        // SAFETY: callers pass offsets of the layout, where such structures of atomics and cells are.
        unsafe { self.base.byte_add(offset as usize).cast().as_ref() }
    }

    fn bytes(&self, offset: u64, length: u64) -> &[u8] {
        let length = length.min(ARENA_ROOM - offset) as usize;
        // SAFETY: the range is within the mapping. Threads of the program write to it only before they publish it, or the
        // program is at an end; a program that writes there on purpose makes its recording wrong, not the recorder.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset as usize), length) }
    }

    pub(crate) fn header(&self) -> &ArenaHeader {
        self.structure(0)
    }

    /// Says which code is selected, before any program runs.
    pub(crate) fn select(&self, index: u64, bytes: &[u8; size_of::<Selected>()]) {
        let offset = SELECTED + index.min(u64::from(MOST_SELECTED) - 1) * bytes.len() as u64;
        // SAFETY: the entry is within the mapping, and nothing else refers to it yet.
        unsafe { self.base.byte_add(offset as usize).cast().write(*bytes) };
    }

    /// Says which threads are selected, before any program runs.
    pub(crate) fn select_threads(&self, index: u64, bytes: &[u8; size_of::<SelectedThread>()]) {
        let index = index.min(u64::from(MOST_SELECTED_THREADS) - 1);
        let offset = SELECTED_THREADS + index * bytes.len() as u64;
        // SAFETY: as for `select`.
        unsafe { self.base.byte_add(offset as usize).cast().write(*bytes) };
    }

    /// Where threads of running programs are described.
    pub(crate) fn attached(&self) -> &Attached {
        self.structure(ATTACHED)
    }

    /// The chunk with this index, whatever its state.
    pub(crate) fn chunk(&self, index: u64) -> Chunk<'_> {
        let offset = FIRST_CHUNK + index.min(CHUNKS - 1) * CHUNK_STRIDE;
        let header: &ChunkHeader = self.structure(offset);
        let stored = u64::from(header.stored.load(Acquire)).min(CHUNK_ROOM);
        Chunk { header, bytes: self.bytes(offset + size_of::<ChunkHeader>() as u64, stored) }
    }

    /// The indices of slots that are or were in use.
    pub(crate) fn slots(&self) -> std::ops::Range<u64> {
        0..u64::from(self.header().slots_used.load(Acquire)).min(SLOTS)
    }

    /// The state of a slot, as an atomic.
    pub(crate) fn slot_state(&self, index: u64) -> &AtomicU32 {
        let field = std::mem::offset_of!(Context, state) as u64;
        self.structure(FIRST_SLOT + index.min(SLOTS - 1) * SLOT_STRIDE + field)
    }

    /// A slot.
    pub(crate) fn slot(&self, index: u64) -> &Context {
        self.structure(FIRST_SLOT + index.min(SLOTS - 1) * SLOT_STRIDE)
    }

    /// The content of the log in a slot whose thread has stopped; nothing if the thread is not selected.
    pub(crate) fn rest(&self, index: u64) -> Vec<u8> {
        let slot = self.slot(index);
        if slot.skips.load(Acquire) != 0 {
            return Vec::new();
        }
        let pointer = end_of_window(slot);
        // Finished entries are at the begin of the log; later ones are still in the window.
        let begin = ARENA + SLOT_LOG + index * SLOT_STRIDE;
        [self.log_part(index, begin, slot.staged.get()), self.log_part(index, slot.window.get(), pointer)]
            .concat()
    }

    /// The position of the current part of the log in a slot whose thread runs, and its content up to now. `None` if the thread
    /// moved its entries at each try.
    pub(crate) fn current(&self, index: u64) -> Option<(u64, Vec<u8>)> {
        const TRIES: u32 = 100;
        let slot = self.slot(index);
        let begin = ARENA + SLOT_LOG + index * SLOT_STRIDE;
        for _ in 0..TRIES {
            let sequence = changing(&slot.sequence);
            if slot.skips.load(Acquire) != 0 {
                return Some((sequence, Vec::new()));
            }
            // Before the pointer: the thread empties the window first.
            let staged = changing(&slot.staged);
            let window = self.log_part(index, slot.window.get(), end_of_window(slot)).to_vec();
            fence(SeqCst);
            // Entries that are written over were moved before.
            if changing(&slot.staged) != staged || changing(&slot.sequence) != sequence {
                continue;
            }
            let content = [self.log_part(index, begin, staged), &window].concat();
            fence(SeqCst);
            if changing(&slot.sequence) == sequence {
                return Some((sequence, content));
            }
        }
        None
    }

    /// Bytes of the log in a slot, by the program's addresses; none if they are outside.
    fn log_part(&self, index: u64, from: u64, to: u64) -> &[u8] {
        let offset = SLOT_LOG + index * SLOT_STRIDE;
        let (start, length) = (from.wrapping_sub(ARENA + offset), to.saturating_sub(from));
        let inside = start <= LOG_BYTES && length <= LOG_BYTES - start;
        if inside { self.bytes(offset + start, length) } else { &[] }
    }
}

/// Where the log of the first slot is.
const SLOT_LOG: u64 = FIRST_SLOT + LOG;

/// Where the next entry of a log is written. While a signal waits, the log's pointer is poisoned, and `real_pointer` is its value.
fn end_of_window(slot: &Context) -> u64 {
    match changing(&slot.real_pointer) {
        0 => changing(&slot.pointer),
        real => real,
    }
}

/// A value that its thread changes meanwhile, as it is now.
fn changing(value: &Cell<u64>) -> u64 {
    // SAFETY: it lies in the arena, and is aligned.
    let now = unsafe { value.as_ptr().read_volatile() };
    compiler_fence(SeqCst);
    now
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), ARENA_ROOM as usize) };
    }
}
