//! Packets of the instruction trace (ETMv4 "Descriptions of trace protocols"; ETE in DDI 0487, part D).

mod decode;
mod plain;
mod show;

pub use decode::{A_SYNC, Decoder, Error, find_sync};

pub(crate) use plain::PlainPackets;

use hodo_code::Isa;

/// A packet, with fields that are complete: compressed addresses and timestamps are joined with those before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Eleven bytes of zero and 80.
    Synchronization,
    /// The state of the trace unit: what follows needs no packet before it.
    TraceInfo(TraceInfo),
    /// Tracing comes on, after a filter or a loss.
    TraceOn,
    /// The unit stops. Elements that are not committed are lost.
    Discard,
    /// The unit's buffer overflowed.
    Overflow,
    /// The time, and the cycles since the previous count.
    Timestamp {
        /// The time.
        time: u64,
        /// The cycles.
        cycles: Option<u32>,
    },
    /// ETE: the place that the next timestamp is of.
    TimestampMarker,
    /// An exception.
    Exception(Exception),
    /// A return from an exception.
    ExceptionReturn,
    /// Cycles since the previous count; `None` if the count is unknown.
    Cycles {
        /// P0 elements that are committed before.
        commits: u32,
        /// The count.
        count: Option<u32>,
    },
    /// The oldest P0 elements are committed.
    Commit(u32),
    /// The newest P0 elements are cancelled; atoms follow.
    Cancel {
        /// Atoms that come first, and are newer.
        atoms: Atoms,
        /// Elements that are cancelled, after the atoms.
        count: u32,
        /// Whether the newest atom was mispredicted.
        mispredict: bool,
    },
    /// Atoms, the newest of which was mispredicted.
    Mispredict(Atoms),
    /// Waypoints that were executed.
    Atoms(Atoms),
    /// The target of a branch, or the place where tracing begins.
    Address(Address),
    /// The context changed.
    Context(Context),
    /// The context changed, and an address in it.
    AddressContext(Address, Context),
    /// ETE: a branch was taken, from this address.
    SourceAddress(Address),
    /// Instructions ran without atoms.
    Q {
        /// Their number, if known.
        count: Option<u32>,
        /// The address at which execution continues; `None` if an address packet follows.
        address: Option<Address>,
    },
    /// Events that the unit counts, a bit each.
    Event(u8),
    /// ETE: a value that software wrote.
    Instrumentation {
        /// The exception level.
        level: u8,
        /// The value.
        value: u64,
    },
    /// ETE: a transaction began or was committed.
    Transaction {
        /// Whether it began.
        begins: bool,
    },
    /// No information for the flow of instructions.
    Ignore,
}

/// The state of a trace unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceInfo {
    /// Whether cycles are counted.
    pub cycle_counts: bool,
    /// Elements that are not committed here.
    pub speculation: u32,
    /// What is added to cycle counts.
    pub threshold: u32,
}

/// Up to 24 atoms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Atoms {
    /// A bit each, the oldest lowest: 1 for E, taken or executed; 0 for N.
    pub bits: u32,
    /// Their number.
    pub count: u8,
}

/// An address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub value: u64,
    /// Whether the code there is T32, and not A64 or A32.
    pub is_t32: bool,
}

/// The context of execution. Fields that a packet does not have are unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Whether the packet only says that the context is the same as before.
    pub is_same: bool,
    /// The exception level.
    pub level: u8,
    /// Whether it is AArch64 state.
    pub is_64: bool,
    /// Whether it is the non-secure state.
    pub is_non_secure: bool,
    /// The virtual machine.
    pub virtual_context: Option<u32>,
    /// The process.
    pub context_id: Option<u32>,
}

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its type.
    pub kind: u16,
    /// Whether the address that follows is also the target of the branch just before it.
    pub is_target: bool,
    /// Whether the type is one of M-profile: the number of the exception, for interrupts from 8 on another one.
    pub is_m_profile: bool,
}

impl Address {
    /// Returns the instruction set at the address, in a context.
    pub fn isa(self, is_64: bool) -> Isa {
        match (self.is_t32, is_64) {
            (true, _) => Isa::T32,
            (false, true) => Isa::A64,
            (false, false) => Isa::A32,
        }
    }
}

impl Atoms {
    /// Creates a single atom.
    pub fn one(taken: bool) -> Atoms {
        Atoms { bits: taken.into(), count: 1 }
    }
}

impl Exception {
    /// Returns the name of an exception's type (IHI 0064, "Exception instruction trace packet").
    pub fn name(self) -> &'static str {
        match self.kind {
            0x01 if self.is_m_profile => "reset",
            0x02 if self.is_m_profile => "NMI",
            0x03 if self.is_m_profile => "HardFault",
            0x04 if self.is_m_profile => "MemManage",
            0x05 if self.is_m_profile => "BusFault",
            0x06 if self.is_m_profile => "UsageFault",
            0x0b if self.is_m_profile => "SVC",
            0x0c if self.is_m_profile => "DebugMonitor",
            0x0e if self.is_m_profile => "PendSV",
            0x0f if self.is_m_profile => "SysTick",
            0x10..=0x17 | 0x208..=0x3ef if self.is_m_profile => "IRQ",
            _ if self.is_m_profile => "exception",
            0x00 => "reset",
            0x01 => "debug halt",
            0x02 => "call",
            0x03 => "trap",
            0x04 => "system error",
            0x06 => "instruction debug",
            0x07 => "data debug",
            0x0a => "alignment fault",
            0x0b => "instruction fault",
            0x0c => "data fault",
            0x0e => "IRQ",
            0x0f => "FIQ",
            _ => "exception",
        }
    }
}
