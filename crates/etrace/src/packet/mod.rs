//! The packets of E-Trace ("Instruction Trace Encoder Output Packets").

mod decode;
mod encode;

pub use crate::bits::Payload;
use hodo_flow::{PacketError, Trouble};

/// One packet of the instruction trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Format 3, subformat 0: an instruction with all that a decoder needs to begin there.
    Start(Start),
    /// Format 3, subformat 1: a trap.
    Trap(Trap),
    /// Format 3, subformat 2: context and time.
    Context(Context),
    /// Format 3, subformat 3: what is enabled, and why tracing ends.
    Support(Support),
    /// Format 2: an address, without branches since the last packet.
    Address(Reported),
    /// Format 1: branches, and perhaps an address after them. Without one there are 31 branches.
    Branches {
        /// The outcomes.
        map: BranchMap,
        /// The address.
        reported: Option<Reported>,
    },
    /// Format 0 of the branch predictor.
    Predicted {
        /// Number of branches that were predicted correctly; at least 31.
        count: u64,
        /// What follows them.
        end: Prediction,
    },
    /// Format 0 of the jump target cache.
    Cached {
        /// Index of the entry that contains the address.
        index: u32,
        /// The outcomes of branches; it may be empty.
        map: BranchMap,
        /// `irdepth`, if `irreport` says that it is given.
        depth: Option<u32>,
    },
}

/// Privilege, time and context of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The privilege level: 0 user, 1 supervisor, 3 machine.
    pub privilege: u8,
    /// The time, if times are sent.
    pub time: Option<u64>,
    /// The context, if there is one.
    pub context: Option<u64>,
}

/// An instruction at which decoding may begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Whether the instruction is a branch that was taken. The field of the packet is the opposite.
    pub taken: bool,
    /// Its context.
    pub context: Context,
    /// Its address.
    pub address: u64,
}

/// A trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Whether the first instruction of the handler is a branch that was taken.
    pub taken: bool,
    /// The context of the handler, or of the trapped instruction if `is_handler` is unset.
    pub context: Context,
    /// The cause: `*cause` without its highest bit.
    pub cause: u64,
    /// Whether it is an interrupt.
    pub is_interrupt: bool,
    /// `thaddr`: whether the handler's first instruction retired, and `address` is its address.
    pub is_handler: bool,
    /// Address of the handler, or of the instruction at which the exception happened. It is absent if the option
    /// "implicit exception" leaves it to the decoder.
    pub address: Option<u64>,
    /// `*tval`, for exceptions.
    pub value: Option<u64>,
}

/// Why a support packet is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Qualification {
    /// Nothing ends.
    #[default]
    Unchanged,
    /// Tracing ends; the last packet was sent for that.
    EndedReported,
    /// Packets were lost.
    Lost,
    /// Tracing ends; the last packet would have been sent anyway.
    Ended,
}

/// The options of the instruction trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Returns to the address on the stack are not reported.
    pub implicit_return: bool,
    /// The addresses of trap handlers are not sent.
    pub implicit_exception: bool,
    /// Addresses are not differences.
    pub full_address: bool,
    /// Targets in the cache are reported by their index.
    pub jump_target_cache: bool,
    /// Branches that are predicted correctly are counted.
    pub branch_prediction: bool,
    /// Jumps whose target the instruction before loads are not reported.
    pub sijump: bool,
}

/// A support packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// Whether the instruction trace is enabled.
    pub enabled: bool,
    /// The encoder's mode; 0 is branch trace.
    pub mode: u8,
    /// Whether and how tracing ends.
    pub qualification: Qualification,
    /// The options from here on.
    pub options: Options,
    /// Whether data trace is enabled, and whether it lost packets.
    pub data: [bool; 2],
}

/// Outcomes of branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchMap {
    /// Number of branches, at most 31.
    pub count: u8,
    /// A bit for each branch, the oldest one lowest; 0 = taken. Higher bits are 0.
    pub not_taken: u32,
}

/// An address of formats 0, 1 and 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The address, or its difference from the address reported last: the field, sign-extended.
    pub address: i64,
    /// Whether a trigger asked to report it.
    pub notify: bool,
    /// Whether it follows an uninferable jump and precedes a packet of format 3.
    pub updiscon: bool,
    /// `irdepth`, if `irreport` says that it is given: the number of entries on the return stack.
    pub depth: Option<u32>,
}

/// What follows branches that were predicted correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// A branch that was predicted wrongly.
    Failed,
    /// An address; if it is of a branch, that one was predicted correctly and is the last of them.
    Address(Reported),
    /// The address of a branch that was predicted wrongly.
    FailedAt(Reported),
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// It has no bytes, or more than any packet.
    #[error("a packet of {0} bytes")]
    Length(usize),
    /// At least a byte follows its last field. The number is that of all bits that follow.
    #[error("{0} bits behind the packet's last field")]
    Unread(usize),
    /// Format 0, but no extension that uses it is enabled, or the subformat does not exist.
    #[error("format 0 with no extension for it")]
    NoExtension,
    /// The format of a count of branches does not exist.
    #[error("a count of branches of unknown format")]
    BranchFormat,
}

impl ErrorKind {
    /// As the reason of a gap; `payload` is that of the packet.
    pub(crate) fn trouble(self, payload: &[u8]) -> Trouble {
        Trouble::Packet(PacketError::Malformed(payload.first().copied().unwrap_or(0)))
    }
}
