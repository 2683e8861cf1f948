//! The logs of threads and processes, and their way to the recorder.
//!
//! The recorder copies the log of a running thread for a snapshot. So entries are written before the pointer that ends them
//! moves, and the part of the log that is left empty is always left before the other part grows: a copy may lack the newest
//! entries, but has none twice, and no half of one.

use core::sync::atomic::{
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

use crate::{
    context::Context,
    layout::{
        ARENA, ArenaHeader, CHUNK_ROOM, CHUNK_STRIDE, CHUNKS, ChunkHeader, FIRST_CHUNK, PACK_WORK,
        chunk_state, kind,
    },
    pack::{WORK, pack},
    raw,
    state::{Link, SILENT_CALL},
    sys,
    wire::{escape, note},
};

/// The begin of the arena.
pub fn arena<'a>() -> &'a ArenaHeader {
    raw::shared(ARENA)
}

/// Whether the recorder is there and wants more.
pub fn open() -> bool {
    let arena = arena();
    if arena.closed.load(Acquire) != 0 {
        return false;
    }
    if sys::call3(sys::nr::KILL, arena.recorder.load(Relaxed), 0, 0) == -3i64 as u64 {
        arena.closed.store(1, Release);
        return false;
    }
    true
}

/// An empty chunk, which now belongs to this thread. `None` once the recording is over.
fn take_chunk<'a>(process: u32) -> Option<(u64, &'a ChunkHeader)> {
    let arena = arena();
    loop {
        let emptied = arena.emptied.load(Acquire);
        for index in 0..CHUNKS {
            let address = ARENA + FIRST_CHUNK + index * CHUNK_STRIDE;
            let chunk: &ChunkHeader = raw::shared(address);
            let taken = chunk.state.compare_exchange(chunk_state::FREE, chunk_state::TAKEN, AcqRel, Relaxed);
            if taken.is_ok() {
                chunk.process.store(process, Relaxed);
                return Some((address + size_of::<ChunkHeader>() as u64, chunk));
            }
        }
        if !open() {
            return None;
        }
        sys::wait(&raw const arena.emptied as u64, emptied, 200);
    }
}

/// Moves the entries of the window to those before it.
fn stage(slot: &Context) {
    let length = slot.pointer.get() - slot.window.get();
    if slot.window.get() != slot.staged.get() {
        raw::write_bytes(slot.staged.get(), raw::bytes(slot.window.get(), length as usize));
    }
    slot.finished.set(slot.staged.get() + length);
    compiler_fence(Release);
    slot.pointer.set(slot.window.get());
    compiler_fence(Release);
    slot.staged.set(slot.finished.get());
}

/// Appends words to the entries before the window, where there is room.
fn append_staged(slot: &Context, words: &[u32]) {
    let begin = slot.staged.get();
    for (address, &word) in (begin..).step_by(size_of::<u32>()).zip(words) {
        raw::write(address, word);
    }
    compiler_fence(Release);
    slot.staged.set(begin + size_of_val(words) as u64);
}

/// The window is full: notes the time, and gives the log to the recorder if it is full too.
pub fn next_window(slot: &Context) {
    if slot.window.get() != slot.log() {
        stage(slot);
        let [low, high] = halves(sys::tsc());
        append_staged(slot, &[escape::TIME, low, high]);
        if has_room(slot) {
            return;
        }
    }
    flush(slot);
}

/// Gives what a slot contains to the recorder, and empties it.
pub fn flush(slot: &Context) {
    stage(slot);
    let length = slot.staged.get() - slot.log();
    slot.staged.set(slot.log());
    let first_tsc = slot.first_tsc.replace(sys::tsc());
    if length == 0 || slot.dropping.get() != 0 || slot.skips.load(Relaxed) != 0 {
        return;
    }
    let Some((room, chunk)) = take_chunk(slot.process.get()) else {
        slot.dropping.set(1);
        return;
    };
    let is_log = slot.kind.get() == kind::LOG && arena().unpacked.load(Relaxed) == 0;
    let source = raw::bytes(slot.log(), length as usize);
    let stored = if is_log { pack_log(slot, length, room) } else { u64::MAX };
    let packed = stored < length;
    if !packed {
        raw::write_bytes(room, source);
    }
    chunk.kind.store(slot.kind.get(), Relaxed);
    chunk.key.store(slot.key.get(), Relaxed);
    chunk.table_key.store(slot.table_key.get(), Relaxed);
    chunk.thread.store(slot.thread.get().into(), Relaxed);
    chunk.stored.store(if packed { stored as u32 } else { length as u32 }, Relaxed);
    chunk.raw.store(length as u32, Relaxed);
    chunk.packed.store(packed.into(), Relaxed);
    chunk.sequence.store(slot.sequence.get(), Relaxed);
    chunk.first_tsc.store(first_tsc, Relaxed);
    chunk.last_tsc.store(slot.first_tsc.get(), Relaxed);
    chunk.state.store(chunk_state::FULL, Release);
    // Whoever sees the next part's number finds this part among the chunks.
    compiler_fence(SeqCst);
    slot.sequence.set(slot.sequence.get() + 1);
    compiler_fence(Release);
    arena().filled.fetch_add(1, Release);
    sys::wake(&raw const arena().filled as u64);
}

fn pack_log(slot: &Context, length: u64, room: u64) -> u64 {
    let count = (length / 4) as usize;
    let words = raw::words(slot.log(), count);
    let work = raw::words_mut(slot.private() + PACK_WORK, WORK);
    pack(words, raw::bytes_mut(room, CHUNK_ROOM as usize), work) as u64
}

/// Appends words to a thread's log, whose pointer is not poisoned.
pub fn push(context: &Context, words: &[u32]) {
    make_room(context, words.len());
    let begin = context.pointer.get();
    for (address, &word) in (begin..).step_by(size_of::<u32>()).zip(words) {
        raw::write(address, word);
    }
    compiler_fence(Release);
    context.pointer.set(begin + size_of_val(words) as u64);
}

/// The instruction of a link, whose exit was just logged, did not run.
pub fn retract(context: &Context, link: &Link) {
    if link.linked != SILENT_CALL {
        take_back(context);
    }
}

/// The last exit did not run its last instruction. Where the window is full, no time comes between the two.
pub fn take_back(context: &Context) {
    if context.pointer.get() < context.log_end() {
        return push(context, &[escape::RETRACT]);
    }
    if context.window.get() == context.log() {
        flush(context);
        return push(context, &[escape::RETRACT]);
    }
    // Before the window is room for a time.
    stage(context);
    append_staged(context, &[escape::RETRACT]);
    if !has_room(context) {
        flush(context);
    }
}

/// Whether another window and a time fit before the window.
fn has_room(slot: &Context) -> bool {
    const TIME_BYTES: u64 = 12;
    let window = slot.log_end() - slot.window.get();
    slot.staged.get() + window + TIME_BYTES <= slot.window.get()
}

fn make_room(context: &Context, words: usize) {
    if context.pointer.get() + words as u64 * 4 > context.log_end() {
        next_window(context);
    }
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Records that a system call begins.
pub fn call(context: &Context, number: u64) {
    // A full window notes the time, which must not be later.
    make_room(context, 4);
    let [low, high] = halves(sys::tsc());
    push(context, &[escape::CALL, number as u32, low, high]);
}

/// Records that a system call is over.
pub fn call_end(context: &Context) {
    make_room(context, 3);
    let [low, high] = halves(sys::tsc());
    push(context, &[escape::CALL_END, low, high]);
}

/// Records that a signal's handler starts.
pub fn signal(context: &Context, number: u32, handler: u64) {
    let [low, high] = halves(handler);
    push(context, &[escape::SIGNAL, number, low, high]);
}

/// Records that a signal ends the program, and when: what ran until then has a time.
pub fn death(context: &Context, number: u32) {
    let no_handler = 0;
    make_room(context, 7);
    let [low, high] = halves(sys::tsc());
    push(context, &[escape::TIME, low, high]);
    signal(context, number, no_handler);
}

/// Records that the thread continues elsewhere without a branch.
pub fn go_on_at(context: &Context, pc: u64) {
    let [low, high] = halves(pc);
    push(context, &[escape::CONTINUE, low, high]);
}

/// Records that nothing is recorded from here on.
pub fn lost(context: &Context, what: u32) {
    push(context, &[escape::LOSS, what]);
}

/// A thread that was not recorded is recorded from here on.
pub fn resume(context: &Context) {
    context.staged.set(context.log());
    context.pointer.set(context.window.get());
    context.first_tsc.set(sys::tsc());
    lost(context, note::UNSELECTED);
    context.skips.store(0, Release);
}

/// A thread is not recorded from here on.
pub fn suspend(context: &Context) {
    lost(context, note::UNSELECTED);
    flush(context);
    context.skips.store(1, Release);
}
