//! Where the runtime's memory lies, and what it shares with the recorder.
//!
//! All of it is far from where the kernel places a program's mappings, so that the program gets the addresses that it
//! would get alone. Only the code caches lie near the program's code (`cache`).
//!
//! ```text
//! IMAGE    the runtime's own code and data
//! HEAP     tables of blocks, exits, links: private to a process
//! ARENA    shared by all recorded processes and the recorder: header, chunks, slots
//! PRIVATE  for each slot, at a constant distance from it: the thread's table of targets, its two stacks
//! ```

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The address of the runtime's image.
pub const IMAGE: u64 = 0x2000_0000_0000;
/// Room for the image.
pub const IMAGE_ROOM: u64 = 4 << 20;
/// The address of the process's tables.
pub const HEAP: u64 = 0x2001_0000_0000;
/// Room for the process's tables; memory is used where it is touched.
pub const HEAP_ROOM: u64 = 0x8_0000_0000;
/// The address of the shared arena.
pub const ARENA: u64 = 0x2010_0000_0000;
/// The distance between slots, in the arena and in the private part.
pub const SLOT_STRIDE: u64 = 0x1a_0000;
/// The number of slots: threads and processes that are recorded at the same time.
pub const SLOTS: u64 = 1024;
/// The first slot, from the arena's begin; before it are the header and the chunks.
pub const FIRST_SLOT: u64 = 0x200_0000;
/// The length of the arena.
pub const ARENA_ROOM: u64 = FIRST_SLOT + SLOTS * SLOT_STRIDE;
/// From a slot to its private memory. Fits the displacement of an instruction.
pub const TO_PRIVATE: u64 = 0x7000_0000;
/// The end of all memory of the runtime that lies at fixed addresses.
pub const END: u64 = ARENA + TO_PRIVATE + ARENA_ROOM;

/// The log of a slot, from the slot's begin.
pub const LOG: u64 = 0x2000;
/// The length of a log in bytes.
pub const LOG_BYTES: u64 = 0x4_0000;
/// The inaccessible memory behind a log.
pub const GUARD_BYTES: u64 = 0x1_0000;
/// Where the log's pointer points while a signal waits, from the log's end.
pub const POISON: u64 = 0x8000;

/// The number of bits of a target that index the table of targets.
pub const TARGET_BITS: u32 = 16;
/// The table of targets, from the private memory's begin.
pub const TARGETS: u64 = 0;
/// The begin of the stack on which the runtime runs, from the private memory's begin.
pub const HOST_STACK_BEGIN: u64 = 0x8_0000;
/// The end of that stack.
pub const HOST_STACK: u64 = HOST_STACK_BEGIN + 0x4_0000;
/// The begin of the stack on which the runtime's signal handler runs.
pub const SIGNAL_STACK: u64 = 0xd_0000;
/// The length of that stack.
pub const SIGNAL_STACK_BYTES: u64 = 0x4_0000;
/// Room to rebuild the frame of a signal for the kernel.
pub const FRAME_ROOM: u64 = 0x12_0000;
/// Memory of the packer.
pub const PACK_WORK: u64 = 0x12_8000;
/// A copy of signal handlers.
pub const ACTIONS: u64 = 0x18_9000;
/// Says of which translated code the table of targets is.
pub const TARGETS_OF: u64 = 0x18_9ff8;
/// The end of the private memory of a slot.
pub const PRIVATE_END: u64 = 0x18_a000;

/// The number of chunks: finished parts of logs on their way to the recorder.
pub const CHUNKS: u64 = 64;
/// The distance between chunks; the longest packed log is shorter.
pub const CHUNK_STRIDE: u64 = 0x6_0000;
/// The first chunk, from the arena's begin.
pub const FIRST_CHUNK: u64 = 0x4000;
/// Room for the bytes of a chunk.
pub const CHUNK_ROOM: u64 = CHUNK_STRIDE - 128;

/// The version of this layout and of the format of logs.
pub const VERSION: u64 = 1;

/// The begin of the arena.
#[repr(C)]
pub struct ArenaHeader {
    /// [`VERSION`].
    pub version: AtomicU64,
    /// The recorder's process.
    pub recorder: AtomicU64,
    /// Not 0: the recording is over, and nothing more is written.
    pub closed: AtomicU32,
    /// Counts filled chunks; the recorder waits for its changes.
    pub filled: AtomicU32,
    /// Counts emptied chunks; threads without a chunk wait for its changes.
    pub emptied: AtomicU32,
    /// Counts requests; the recorder waits for its changes.
    pub requests: AtomicU32,
    /// The last number given to a process or thread.
    pub last_key: AtomicU64,
    /// The number of branches in a first translation.
    pub branches: AtomicU32,
    /// Not 0: hot paths are translated again as one.
    pub traces: AtomicU32,
    /// A request to follow a program that is about to start: see `FollowState`.
    pub follow: AtomicU32,
    /// The thread that requests it.
    pub follow_thread: AtomicU32,
    /// Its process.
    pub follow_process: AtomicU32,
    /// Not 0: chunks hold logs as they are, without packing.
    pub unpacked: AtomicU32,
    /// Counts programs that run unrecorded because there was no memory or slot for them.
    pub without_room: AtomicU32,
    /// Slots from this index on were never in use.
    pub slots_used: AtomicU32,
    /// Not 0: threads wait where the recorder finds their state, to get their own code back.
    pub leaving: AtomicU32,
    /// The most bytes of translated code and tables of a process.
    pub memory: AtomicU64,
    /// Exits between two time-stamp counters in a log; 0: only at system calls and at the end of each log.
    pub every: AtomicU32,
    /// The number of entries at [`SELECTED`]; 0: all code is recorded.
    pub selected: AtomicU32,
    /// The number of entries at [`SELECTED_THREADS`]; 0: all threads are recorded.
    pub selected_threads: AtomicU32,
    /// Not 0: nothing is recorded yet.
    pub waits: AtomicU32,
    /// Where the runtime makes system calls for programs: the first address, and the one behind the instruction.
    pub call: [AtomicU64; 2],
}

/// What is selected for recording, from the arena's begin: entries of [`Selected`].
pub const SELECTED: u64 = 0x2000;
/// The most entries.
pub const MOST_SELECTED: u32 = 60;
/// The most bytes of a name.
pub const SELECTED_NAME: usize = 104;

/// Code that is selected for recording: bytes of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Selected {
    /// The first byte.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// The length of the name.
    pub length: u64,
    /// The end of the file's path.
    pub name: [u8; SELECTED_NAME],
}

/// Which threads are recorded, from the arena's begin: entries of [`SelectedThread`].
pub const SELECTED_THREADS: u64 = 0x1800;
/// The most entries.
pub const MOST_SELECTED_THREADS: u32 = 32;
/// The most bytes of a pattern of names.
pub const PATTERN: usize = 48;

/// Threads that are selected for recording.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SelectedThread {
    /// The thread in the system; 0: those whose names match the pattern.
    pub thread: u64,
    /// The length of the pattern.
    pub length: u64,
    /// A name, in which `*` stands for any bytes.
    pub pattern: [u8; PATTERN],
}

const _: () =
    assert!(SELECTED_THREADS + MOST_SELECTED_THREADS as u64 * size_of::<SelectedThread>() as u64 <= SELECTED);

/// Where the recorder describes a thread of a running process that it records from now on, from the arena's begin.
pub const ATTACHED: u64 = 0x1000;

/// The state of such a thread.
#[repr(C)]
pub struct Attached {
    /// Its general registers, by number.
    pub registers: [AtomicU64; 16],
    /// Its flags.
    pub flags: AtomicU64,
    /// Where it stands.
    pub pc: AtomicU64,
    /// Its signal mask.
    pub mask: AtomicU64,
    /// Its restartable sequences: address, length, signature; 0 without them.
    pub sequences: [AtomicU64; 3],
    /// Not 0: it is the first thread of its process.
    pub first: AtomicU32,
    /// One of [`done`].
    pub done: AtomicU32,
}

/// Values of [`Attached::done`].
pub mod done {
    /// The thread has not entered the runtime yet.
    pub const NO: u32 = 0;
    /// It is recorded.
    pub const RECORDED: u32 = 1;
    /// It cannot be recorded.
    pub const REFUSED: u32 = 2;
}

/// From the runtime's entry for new programs to that for threads of running ones.
pub const ATTACH_ENTRY: u64 = 16;

/// States of [`ArenaHeader::follow`].
pub mod follow {
    /// No request.
    pub const FREE: u32 = 0;
    /// A thread prepares a request.
    pub const TAKEN: u32 = 1;
    /// A thread waits for the recorder's answer.
    pub const ASKED: u32 = 2;
    /// The recorder follows the thread, which may start its program.
    pub const READY: u32 = 3;
    /// The recorder cannot follow the thread.
    pub const REFUSED: u32 = 4;
    /// The program did not start; the recorder lets go.
    pub const FAILED: u32 = 5;
}

/// What a slot or a chunk contains.
pub mod kind {
    /// Exits of a thread.
    pub const LOG: u32 = 1;
    /// Blocks, mappings and other records of a process.
    pub const TABLE: u32 = 2;
}

/// States of slots.
pub mod slot_state {
    /// Not in use.
    pub const FREE: u32 = 0;
    /// In preparation by a process.
    pub const TAKEN: u32 = 1;
    /// Its log grows.
    pub const LIVE: u32 = 2;
    /// The thread has written all; the recorder frees the slot.
    pub const DONE: u32 = 3;
}

/// States of chunks.
pub mod chunk_state {
    /// Not in use.
    pub const FREE: u32 = 0;
    /// A thread writes.
    pub const TAKEN: u32 = 1;
    /// The recorder may read it.
    pub const FULL: u32 = 2;
}

/// The begin of a chunk.
#[repr(C)]
pub struct ChunkHeader {
    /// One of [`chunk_state`].
    pub state: AtomicU32,
    /// One of [`kind`].
    pub kind: AtomicU32,
    /// The process that writes it.
    pub process: AtomicU32,
    /// Bytes that follow.
    pub stored: AtomicU32,
    /// Bytes of the log before packing; the same as `stored` if it is not packed.
    pub raw: AtomicU32,
    /// Not 0 if it is packed.
    pub packed: AtomicU32,
    /// The number of the thread or process (`key`).
    pub key: AtomicU64,
    /// The number of the process whose table it refers to.
    pub table_key: AtomicU64,
    /// The thread that writes it.
    pub thread: AtomicU64,
    /// The position of this part in its stream, from 0.
    pub sequence: AtomicU64,
    /// The time-stamp counter when the part began.
    pub first_tsc: AtomicU64,
    /// The time-stamp counter when the part ended.
    pub last_tsc: AtomicU64,
}

/// The address of the slot with this index.
pub const fn slot_address(index: u64) -> u64 {
    ARENA + FIRST_SLOT + index * SLOT_STRIDE
}
