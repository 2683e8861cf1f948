//! What keeps flow from being followed.

use std::fmt;

use hodo_clock::Tsc;
use hodo_code::Unreadable;

use crate::packet;

/// A span of the trace that gave no flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First byte of the span in the stream: the packet that could not be followed.
    pub from: u64,
    /// The byte in the stream at which decoding goes on.
    pub to: u64,
    /// The tick before it, where known.
    pub since: Option<Tsc>,
    /// The tick at which decoding goes on, where known.
    pub until: Option<Tsc>,
    /// Where the trace contradicts itself or the code, bytes may have been damaged before that showed:
    /// the byte in the stream at which decoding was certain the last time. What was reported since is
    /// doubtful.
    pub doubtful_since: Option<u64>,
    /// Why.
    pub trouble: Trouble,
}

/// Why flow can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The processor lost packets.
    Overflow,
    /// Bytes are missing or unusable where the recording says so.
    Missing,
    /// The bytes are no packet.
    Packet(packet::ErrorKind),
    /// The code that runs next can't be read.
    Code(Unreadable),
    /// A guest runs whose code is not known.
    Guest {
        /// Address of its VMCS, where the trace says so.
        vmcs: Option<u64>,
    },
    /// The code contradicts the packet: at the address is a branch of another kind, or none.
    Contradiction {
        /// Address of the block whose end contradicts.
        at: u64,
        /// What the packet asks for.
        expected: Expected,
    },
    /// A compressed return without a call that it could return from.
    EmptyReturnStack {
        /// Address after the return.
        at: u64,
    },
    /// A compressed return to a call that was not decoded, as something is missing before it.
    UnseenCall {
        /// Address after the return.
        at: u64,
        /// What the call lies in.
        hidden: Hidden,
    },
    /// The code runs in a circle that no packet ends.
    EndlessLoop {
        /// Some address of the circle.
        at: u64,
    },
    /// A packet leaves out the address that it is there for.
    NoAddress,
    /// A packet updates an address that was lost.
    LostAddress,
    /// Conditional branches were not traced, and the code alone does not say where it went.
    NotTraced {
        /// Address of the block that the branch ends.
        at: u64,
    },
    /// An address filter ended tracing at this branch or behind it; which of them, only the filter says (erratum
    /// SKL014).
    UnknownFilter {
        /// Address of the block that the branch ends.
        at: u64,
    },
}

/// Why a call was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The code that called is missing, or that on the way to it.
    ByMissingCode,
    /// The processor lost packets.
    ByOverflow,
    /// Packets and code do not fit each other, or bytes are no packets.
    ByDamage,
}

impl Trouble {
    /// What it does to the calls that are made from here on; `None` where it only shows that they are hidden.
    pub(super) fn hides(self) -> Option<Hidden> {
        match self {
            Trouble::UnseenCall { .. } => None,
            Trouble::Code(Unreadable::Unmapped(_) | Unreadable::MissingBytes(..)) | Trouble::Guest { .. } => {
                Some(Hidden::ByMissingCode)
            }
            Trouble::Overflow => Some(Hidden::ByOverflow),
            _ => Some(Hidden::ByDamage),
        }
    }

    /// Whether what was decoded before may be wrong because of it, as bytes were damaged or code changed
    /// unseen. Else the packets are sound, and only code or packets are missing.
    pub(super) fn is_doubtful(self) -> bool {
        match self {
            Trouble::Overflow | Trouble::Missing | Trouble::Guest { .. } | Trouble::NotTraced { .. } => false,
            Trouble::LostAddress | Trouble::UnknownFilter { .. } | Trouble::UnseenCall { .. } => false,
            Trouble::Code(code) => matches!(code, Unreadable::Invalid(_)),
            // The stream may end anywhere.
            Trouble::Packet(packet::ErrorKind::CutShort(_)) => false,
            _ => true,
        }
    }
}

/// What a packet says of the branch that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A conditional branch or a compressed return.
    Conditional,
    /// An indirect branch or a far transfer.
    Indirect,
    /// No branch before this address.
    Reach(u64),
    /// The transfer that a FUP announces.
    Transfer,
    /// PTWRITE.
    PtWrite,
    /// Tracing to be off.
    Off,
    /// Tracing to be on.
    On,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Trouble::Overflow => f.write_str("the processor's trace buffer overflowed"),
            Trouble::Missing => f.write_str("trace bytes are missing"),
            Trouble::Packet(kind) => packet::Error { at: 0, kind }.fmt(f),
            Trouble::Code(Unreadable::Unmapped(at)) => write!(f, "no code is mapped at {at:x}"),
            Trouble::Code(Unreadable::MissingBytes(at, _)) => {
                write!(f, "the code at {at:x} is not available")
            }
            Trouble::Code(Unreadable::Invalid(at)) => write!(f, "the bytes at {at:x} are no instruction"),
            Trouble::Guest { vmcs: Some(vmcs) } => {
                write!(f, "the code of the guest with VMCS {vmcs:x} is not available")
            }
            Trouble::Guest { vmcs: None } => f.write_str("the code of a guest is not available"),
            Trouble::Contradiction { at, expected } => match expected {
                Expected::Conditional => {
                    write!(f, "no conditional branch at {at:x}, where the trace has one")
                }
                Expected::Indirect => write!(f, "no indirect branch at {at:x}, where the trace has one"),
                Expected::Reach(to) => {
                    write!(f, "the code at {at:x} does not lead to {to:x}, as the trace says")
                }
                Expected::Transfer => write!(f, "no transfer follows that would leave {at:x}"),
                Expected::PtWrite => write!(f, "no PTWRITE behind {at:x}, where the trace has one"),
                Expected::Off => write!(f, "tracing begins at {at:x}, but it was on already"),
                Expected::On => f.write_str("the trace goes on, but tracing was off"),
            },
            Trouble::EmptyReturnStack { at } => write!(f, "the return at {at:x} has no call to return from"),
            Trouble::UnseenCall { at, hidden } => {
                let why = match hidden {
                    Hidden::ByMissingCode => "code is missing",
                    Hidden::ByOverflow => "packets were lost",
                    Hidden::ByDamage => "the trace could not be followed",
                };
                write!(f, "the return at {at:x} goes back to a call that was not decoded, as {why}")
            }
            Trouble::EndlessLoop { at } => write!(f, "the code at {at:x} loops without a branch to trace"),
            Trouble::NoAddress => f.write_str("a packet leaves out the address that it is there for"),
            Trouble::LostAddress => f.write_str("the address is told as a change of one that was lost"),
            Trouble::NotTraced { at } => write!(f, "the branch behind {at:x} was not traced"),
            Trouble::UnknownFilter { at } => {
                write!(
                    f,
                    "tracing ended at the branch behind {at:x} or later, as an unknown address filter says"
                )
            }
        }
    }
}
