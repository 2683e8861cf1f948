//! The words of a log and the records of a table: what the runtime writes, and the reader reads.
//!
//! **A log** is a sequence of 32-bit words. A word below [`escape::FIRST`] is the number of an exit: the thread ran its
//! block from the begin to that exit. A larger word begins an escape, which has a fixed number of words after it.
//!
//! **A table** is a sequence of records, each a multiple of 8 bytes long. A record begins with a word that holds its
//! kind in the upper and its length in the lower 32 bits, then the time-stamp counter.
//!
//! | record | words after the time |
//! |---|---|
//! | `BLOCK` | address; first exit, number of exits (16 bits), of instructions (16); flags, bytes of code; then for each instruction a byte with its length in the lower and the kind of the branch that leads on in the upper 4 bits, followed by 8 bytes with the next address if that kind is not 0; padding to 8 bytes; for each exit: instructions before it (16 bits), kind (8), 0 (40), target; then, if the code is in no file, its bytes, instruction by instruction |
//! | `MAP` | address, length, offset, protection and flags, bytes of the name; the name |
//! | `UNMAP` | address, length |
//! | `FORK` | key of the parent's table, its number of exits |
//! | `EXEC` | key of the table that ended, or 0 |
//! | `REPLACED` | address, length: code at these addresses was replaced |
//! | `NOTE` | one of [`note`], a value |
//! | `IDENTITY` | process, parent's process |
//! | `NAME` | thread, its name in 16 bytes |

/// Kinds of exits and of branches.
pub mod exit {
    /// The block ends, or the step leads on, without a branch.
    pub const NONE: u8 = 0;
    /// A direct jump.
    pub const JUMP: u8 = 1;
    /// A conditional branch that was taken.
    pub const TAKEN: u8 = 2;
    /// A conditional branch that was not taken.
    pub const NOT_TAKEN: u8 = 3;
    /// A direct call.
    pub const CALL: u8 = 4;
    /// An indirect jump.
    pub const JUMP_INDIRECT: u8 = 5;
    /// An indirect call.
    pub const CALL_INDIRECT: u8 = 6;
    /// A return.
    pub const RETURN: u8 = 7;
    /// A system call.
    pub const SYSCALL: u8 = 8;
    /// A software interrupt or another far transfer.
    pub const FAR: u8 = 9;
    /// A far return.
    pub const FAR_RETURN: u8 = 10;
}

/// Escapes of a log.
pub mod escape {
    /// The smallest escape.
    pub const FIRST: u32 = 0xffff_ff00;
    /// The time-stamp counter: 2 words.
    pub const TIME: u32 = 0xffff_ff01;
    /// A part of a block ran: the block's first exit, and the number of instructions: 2 words.
    pub const PARTIAL: u32 = 0xffff_ff02;
    /// The exit before did not run its last instruction.
    pub const RETRACT: u32 = 0xffff_ff03;
    /// A signal: its number, and the address of its handler or 0: 3 words.
    pub const SIGNAL: u32 = 0xffff_ff04;
    /// Continues at an address, without a branch of the program: 2 words.
    pub const CONTINUE: u32 = 0xffff_ff05;
    /// A system call begins: its number, and the time: 3 words.
    pub const CALL: u32 = 0xffff_ff06;
    /// A system call is over: the time: 2 words.
    pub const CALL_END: u32 = 0xffff_ff07;
    /// Something was not recorded from here on: one of [`super::note`]: 1 word.
    pub const LOSS: u32 = 0xffff_ff08;
    /// The thread ended.
    pub const END: u32 = 0xffff_ff09;

    /// The number of words after an escape; `None` if there is no such escape.
    pub fn words(escape: u32) -> Option<usize> {
        Some(match escape {
            RETRACT | END => 0,
            LOSS => 1,
            TIME | PARTIAL | CONTINUE | CALL_END => 2,
            SIGNAL | CALL => 3,
            _ => return None,
        })
    }
}

/// Kinds of records.
pub mod record {
    #![allow(missing_docs)]
    pub const BLOCK: u32 = 1;
    pub const MAP: u32 = 2;
    pub const UNMAP: u32 = 3;
    pub const FORK: u32 = 4;
    pub const EXEC: u32 = 5;
    pub const REPLACED: u32 = 6;
    pub const NOTE: u32 = 7;
    pub const IDENTITY: u32 = 8;
    pub const NAME: u32 = 9;
}

/// What went wrong, or was not recorded.
pub mod note {
    /// The recording ended while the thread continued.
    pub const CLOSED: u32 = 1;
    /// The program wanted to map, unmap or protect the runtime's memory.
    pub const OWN_MEMORY: u32 = 2;
    /// The program wanted to set `gs`, which the runtime uses.
    pub const SEGMENT: u32 = 3;
    /// The program wanted to filter system calls.
    pub const FILTER: u32 = 4;
    /// A program runs unrecorded: it is set-user-ID, or of 32 bits, or could not be followed.
    pub const UNFOLLOWED: u32 = 5;
    /// There was no memory or no slot for a thread or process.
    pub const NO_ROOM: u32 = 6;
    /// An instruction that cannot be recorded.
    pub const INSTRUCTION: u32 = 7;
    /// Shared code, whose changes through other mappings are not seen.
    pub const SHARED_CODE: u32 = 8;
    /// The thread was killed; what it ran after its last exit is unknown.
    pub const KILLED: u32 = 10;
    /// Older parts of the log were overwritten by newer ones, as wanted.
    pub const OVERWRITTEN: u32 = 11;
    /// Code that was not selected ran without being recorded.
    pub const UNSELECTED: u32 = 12;
    /// The program jumped into the runtime's memory.
    pub const JUMPED_INTO: u32 = 9;
    /// Threads ended, of whose logs nothing is left. Their number is added, shifted by [`COUNT_SHIFT`].
    pub const FORGOTTEN: u32 = 13;
    /// Where the number of threads begins in a [`FORGOTTEN`].
    pub const COUNT_SHIFT: u32 = 8;
    /// The most threads of one [`FORGOTTEN`].
    pub const MOST_FORGOTTEN: u64 = (1 << (32 - COUNT_SHIFT)) - 1;

    /// The note itself, and the number of such events that it stands for.
    pub fn counted(note: u32) -> (u32, u64) {
        match note & ((1 << COUNT_SHIFT) - 1) {
            FORGOTTEN => (FORGOTTEN, (note >> COUNT_SHIFT).into()),
            _ => (note, 1),
        }
    }

    /// The note in words.
    pub fn text(note: u32) -> &'static str {
        match note {
            CLOSED => "the recording ended while the thread continued",
            OWN_MEMORY => "the program wanted to change the recorder's memory, which was refused",
            SEGMENT => "the program wanted to change the segment gs, which was refused",
            FILTER => "the program wanted to install a seccomp filter, which was refused",
            UNFOLLOWED => "a program ran unrecorded: set-user-ID, of 32 bits, or impossible to follow",
            NO_ROOM => "there was no room for another thread, process or block",
            INSTRUCTION => "an instruction that can't be recorded was refused",
            SHARED_CODE => "code in shared memory: changes through other mappings are not seen",
            JUMPED_INTO => "the program jumped into the recorder's memory",
            UNSELECTED => "code that was not selected ran unrecorded",
            OVERWRITTEN => "older parts of the thread's log were overwritten by newer ones",
            FORGOTTEN => "threads ended before the kept parts of logs begin, so nothing of them is left",
            KILLED => "the thread was killed, and the code after its last recorded exit is unknown",
            _ => "an unknown note",
        }
    }
}

/// Bits of a `BLOCK` record's flags.
pub mod flag {
    /// Its code is in no file, so its bytes follow.
    pub const GENERATED: u32 = 1;
    /// It was made of a hot path.
    pub const TRACE: u32 = 2;
}
