//! The state of a recorded thread. `gs` points to it; translated code and the stubs use its first fields by offset.

use core::{cell::Cell, sync::atomic::AtomicU32};

/// Offsets that translated code and stubs use.
pub mod offset {
    /// [`super::Context::saved_rcx`].
    pub const SAVED_RCX: u32 = 0;
    /// [`super::Context::saved_rdx`].
    pub const SAVED_RDX: u32 = 8;
    /// [`super::Context::pointer`].
    pub const POINTER: u32 = 16;
    /// [`super::Context::target`].
    pub const TARGET: u32 = 24;
    /// [`super::Context::scratch`].
    pub const SCRATCH: u32 = 32;
}

/// Numbers of general registers.
pub mod register {
    #![allow(missing_docs)]
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RBX: usize = 3;
    pub const RSP: usize = 4;
    pub const RBP: usize = 5;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
    pub const R8: usize = 8;
    pub const R9: usize = 9;
    pub const R10: usize = 10;
    pub const R11: usize = 11;
}

/// Values of [`Context::reason`] that are no links.
pub mod reason {
    /// An indirect branch did not find its target in the table.
    pub const MISS: i32 = -1;
    /// A handler begins, or the program goes on elsewhere: at the context's pc.
    pub const AT_PC: i32 = -2;
}

/// Values of [`Context::pending`].
pub mod pending {
    /// No signal waits.
    pub const NONE: u32 = 0;
    /// A signal waits, and the log's pointer is as it was.
    pub const NOTED: u32 = 1;
    /// As `NOTED`, and the log's pointer leads into the guard page.
    pub const POISONED: u32 = 2;
    /// The signal is delivered by the next instruction.
    pub const DELIVERING: u32 = 3;
}

/// Values of [`Context::inside`].
pub mod inside {
    /// In translated code, or in a handler that returns there.
    pub const CODE: u32 = 0;
    /// In the runtime, or in a system call.
    pub const RUNTIME: u32 = 1;
    /// It waits, and all of its state is in the context.
    pub const PARKED: u32 = 2;
}

/// The state of a thread, at the begin of its slot.
#[repr(C)]
pub struct Context {
    /// The program's `rcx` while a stub uses the register.
    pub saved_rcx: Cell<u64>,
    /// The program's `rdx` likewise.
    pub saved_rdx: Cell<u64>,
    /// Where the next exit is written.
    pub pointer: Cell<u64>,
    /// The program's address that an indirect branch leads to.
    pub target: Cell<u64>,
    /// A register that an operand out of reach borrows.
    pub scratch: Cell<u64>,
    /// The end of the stack on which the runtime runs.
    pub host_stack: Cell<u64>,
    /// Where translated code continues.
    pub resume: Cell<u64>,
    /// One of [`pending`]. The signal handler changes it at any time.
    pub pending: Cell<u32>,
    /// Why the runtime was entered: the number of a link, or a [`reason`].
    pub reason: Cell<i32>,
    /// The program's registers while the runtime runs.
    pub registers: [Cell<u64>; 16],
    /// The program's flags likewise.
    pub flags: Cell<u64>,
    /// This structure's address.
    pub address: Cell<u64>,
    /// Where the program stands while the runtime runs.
    pub pc: Cell<u64>,
    /// Where exits that are not logged write: a word that is never read, or into the guard page while a signal waits.
    pub silent: Cell<u64>,
    unread: Cell<u64>,
    unused: [u64; 3],
    /// The program's `xmm0` to `xmm15` while the runtime runs; it uses no other vector register.
    pub vectors: [Cell<[u64; 2]>; 16],
    /// One of [`crate::layout::slot_state`]; shared with the recorder.
    pub state: Cell<u32>,
    /// One of [`crate::layout::kind`].
    pub kind: Cell<u32>,
    /// The process's number in the system.
    pub process: Cell<u32>,
    /// The thread's number in the system.
    pub thread: Cell<u32>,
    /// The number of this thread or process in the recording.
    pub key: Cell<u64>,
    /// The number of the process whose blocks its exits are of.
    pub table_key: Cell<u64>,
    /// The position of the next part in its stream.
    pub sequence: Cell<u64>,
    /// The time-stamp counter when the current part began.
    pub first_tsc: Cell<u64>,
    /// The log's pointer while it is poisoned; 0 otherwise.
    pub real_pointer: Cell<u64>,
    /// The waiting signal.
    pub signal: Cell<u32>,
    /// Bits of signals that the processor raises, which the program has blocked; the kernel never blocks them.
    pub blocked: Cell<u64>,
    /// The signal mask to which the waiting signal's handler returns.
    pub mask: Cell<u64>,
    /// The waiting signal's `siginfo`.
    pub info: Cell<[u64; 16]>,
    /// The program's alternative stack: address, flags, size.
    pub alternative: Cell<[u64; 3]>,
    /// Not 0 once the recording has stopped: the log is dropped.
    pub dropping: Cell<u32>,
    /// Entries since hot paths were last searched.
    pub since_search: Cell<u64>,
    /// The address of the process's signal handlers, or of a copy of its own.
    pub actions: Cell<u64>,
    /// Not 0 in a process that has a copy of its parent's memory, until it has a table of its own.
    pub forked: Cell<u32>,
    /// One of [`inside`]: where the thread is. Other threads and the recorder read it.
    pub inside: AtomicU32,
    /// Where the thread writes from, up to the log's end. Finished entries are moved to the log's begin.
    pub window: Cell<u64>,
    /// The end of the entries at the log's begin.
    pub staged: Cell<u64>,
    /// The end of the entries that were finished last, where they are until they are overwritten.
    pub finished: Cell<u64>,
    /// What [`crate::hold::HOLD`] was when `resume` was set.
    pub hold_at_resume: Cell<u32>,
    /// The signal mask that a system call of the program sets while it waits, and its length, as the kernel gets them.
    pub waiting_mask: Cell<[u64; 2]>,
    /// While `waiting_mask` is in use: the number of the register that leads the kernel there, and the program's value of it.
    pub given: Cell<[u64; 2]>,
    /// Restartable sequences that were registered before the recording: address, length, signature.
    pub sequences: Cell<[u64; 3]>,
    /// Not 0: `waiting_mask` is in use.
    pub waits: Cell<u32>,
    /// Bits of signals of the processor's kinds that were sent, and wait.
    pub queued: Cell<u64>,
    /// Their `siginfo`, in the order of [`crate::signal::RAISED`]'s bits.
    pub queued_info: [Cell<[u64; 16]>; 5],
    /// Not 0 in a process that shares its parent's memory while the parent waits.
    pub borrows: Cell<u32>,
    /// Not 0 while the thread is not selected: its log is not recorded. The recorder reads it.
    pub skips: AtomicU32,
}

impl Context {
    /// Takes the poison of a waiting signal back.
    pub fn cure(&self) {
        self.pointer.set(self.real_pointer.replace(0));
        self.silent.set(&raw const self.unread as u64);
    }

    /// Makes the next exit that is not logged write to `address`, which faults.
    pub fn poison_silent(&self, address: u64) {
        self.silent.set(address);
    }

    /// Nothing is poisoned in a new slot.
    pub fn reset_silent(&self) {
        self.silent.set(&raw const self.unread as u64);
    }

    /// The begin of its log.
    pub fn log(&self) -> u64 {
        self.address.get() + crate::layout::LOG
    }

    /// The end of its log, where the guard page begins.
    pub fn log_end(&self) -> u64 {
        self.log() + crate::layout::LOG_BYTES
    }

    /// The address of its private memory.
    pub fn private(&self) -> u64 {
        self.address.get() + crate::layout::TO_PRIVATE
    }

    /// A general register of the program.
    pub fn register(&self, number: usize) -> u64 {
        self.registers[number].get()
    }

    /// Sets a general register of the program.
    pub fn set_register(&self, number: usize, value: u64) {
        self.registers[number].set(value);
    }
}
