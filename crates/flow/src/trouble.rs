//! Reasons why flow can't be followed.

use std::fmt;

use hodo_clock::Tsc;
use hodo_code::Unreadable;

/// A span of the trace without flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First byte of the span in the stream: the packet that could not be followed.
    pub from: u64,
    /// The byte in the stream at which decoding continues.
    pub to: u64,
    /// The tick before the span, if known.
    pub since: Option<Tsc>,
    /// The tick at which decoding continues, if known.
    pub until: Option<Tsc>,
    /// Set if the trace contradicts itself or the code: bytes may have been damaged earlier. It is the last byte in
    /// the stream at which decoding was certain; everything reported since then is doubtful.
    pub doubtful_since: Option<u64>,
    /// The reason.
    pub trouble: Trouble,
}

/// Why flow can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The processor lost packets.
    Overflow,
    /// The recording marks bytes as missing or unusable.
    Missing,
    /// The bytes are no valid packet.
    Packet(PacketError),
    /// The next code to run can't be read.
    Code(Unreadable),
    /// A guest with unknown code runs.
    Guest {
        /// Address of its VMCS, if the trace gives it.
        vmcs: Option<u64>,
    },
    /// The code contradicts the packet: there is a branch of another kind at the address, or none.
    Contradiction {
        /// Address of the block whose end contradicts.
        at: u64,
        /// The branch that the packet requires.
        expected: Expected,
    },
    /// A compressed return on an empty return stack.
    EmptyReturnStack {
        /// Address of the return.
        at: u64,
    },
    /// A compressed return to a call that was not decoded, because something before it is missing.
    UnseenCall {
        /// Address of the return.
        at: u64,
        /// Why the call was not decoded.
        hidden: Hidden,
    },
    /// The code loops, and no packet ends the loop.
    EndlessLoop {
        /// An address in the loop.
        at: u64,
    },
    /// A packet lacks its address.
    NoAddress,
    /// A packet updates an unknown last IP.
    LostAddress,
    /// More elements wait to be committed than a processor speculates (Arm).
    Uncommitted,
    /// Conditional branches were not traced, and the code alone does not determine the flow.
    NotTraced {
        /// Address of the block that the branch ends.
        at: u64,
    },
    /// Several paths fit the packets: a return that is not traced is one of several.
    Ambiguous {
        /// An address that several paths reach, or that of the block with the return.
        at: u64,
    },
    /// An address filter ended tracing at this branch or after it; only the filter can decide which (erratum SKL014).
    UnknownFilter {
        /// Address of the block that the branch ends.
        at: u64,
    },
}

/// Why bytes are no valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The stream ends inside a packet of this many bytes (at least).
    CutShort(u8),
    /// A PSB begins inside a packet of this many bytes: the rest of the packet is lost.
    CutByPsb(u8),
    /// No packet begins with this byte.
    UnknownOpcode(u8),
    /// No packet begins with 02 and this byte.
    UnknownExtendedOpcode(u8),
    /// This byte has wrong fixed or reserved bits for its packet.
    Malformed(u8),
    /// A count stands for more than so few bytes of trace can.
    TooMany(u64),
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketError::CutShort(size) => write!(f, "the trace ends inside a packet of {size} bytes"),
            PacketError::CutByPsb(size) => write!(f, "a PSB begins inside a packet of {size} bytes"),
            PacketError::UnknownOpcode(byte) => write!(f, "no packet begins with byte {byte:02x}"),
            PacketError::UnknownExtendedOpcode(byte) => {
                write!(f, "no packet begins with bytes 02 {byte:02x}")
            }
            PacketError::Malformed(byte) => write!(f, "byte {byte:02x} is not valid in this packet"),
            PacketError::TooMany(count) => {
                write!(
                    f,
                    "a count of {count} is more than the bytes since the last synchronization can stand for"
                )
            }
        }
    }
}

/// Why a call was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The calling code, or code on the way to it, is missing.
    ByMissingCode,
    /// The processor lost packets.
    ByOverflow,
    /// Packets contradict the code, or bytes are no valid packets.
    ByDamage,
}

impl Trouble {
    /// Returns why later returns may find no call; `None` if the trouble is only a consequence of hidden calls.
    pub fn hides(self) -> Option<Hidden> {
        match self {
            Trouble::UnseenCall { .. } => None,
            Trouble::Code(Unreadable::Unmapped(_) | Unreadable::MissingBytes(..)) | Trouble::Guest { .. } => {
                Some(Hidden::ByMissingCode)
            }
            Trouble::Overflow => Some(Hidden::ByOverflow),
            _ => Some(Hidden::ByDamage),
        }
    }

    /// Returns whether earlier decoding may be wrong, because bytes were damaged or code changed unseen. Otherwise
    /// the packets are sound, and only code or packets are missing.
    pub fn is_doubtful(self) -> bool {
        match self {
            Trouble::Overflow | Trouble::Missing | Trouble::Guest { .. } | Trouble::NotTraced { .. } => false,
            Trouble::LostAddress | Trouble::UnknownFilter { .. } | Trouble::UnseenCall { .. } => false,
            Trouble::Ambiguous { .. } => false,
            Trouble::Code(code) => matches!(code, Unreadable::Invalid(_)),
            // A stream may end at any byte.
            Trouble::Packet(PacketError::CutShort(_)) => false,
            _ => true,
        }
    }
}

/// The next branch, as a packet requires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A conditional branch or a compressed return.
    Conditional,
    /// An indirect branch or a far transfer.
    Indirect,
    /// No branch before this address.
    Reach(u64),
    /// The transfer that follows a FUP.
    Transfer,
    /// PTWRITE.
    PtWrite,
    /// Tracing is off.
    Off,
    /// Tracing is on.
    On,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Trouble::Overflow => f.write_str("the processor's trace buffer overflowed"),
            Trouble::Missing => f.write_str("trace bytes are missing"),
            Trouble::Packet(error) => error.fmt(f),
            Trouble::Code(Unreadable::Unmapped(at)) => write!(f, "no code is mapped at {at:x}"),
            Trouble::Code(Unreadable::MissingBytes(at, _)) => {
                write!(f, "the code at {at:x} is not available")
            }
            Trouble::Code(Unreadable::Invalid(at)) => write!(f, "the bytes at {at:x} are not an instruction"),
            Trouble::Guest { vmcs: Some(vmcs) } => {
                write!(f, "the code of the guest with VMCS {vmcs:x} is not available")
            }
            Trouble::Guest { vmcs: None } => f.write_str("the code of a guest is not available"),
            Trouble::Contradiction { at, expected } => match expected {
                Expected::Conditional => {
                    write!(f, "no conditional branch at {at:x}, but the trace contains one")
                }
                Expected::Indirect => write!(f, "no indirect branch at {at:x}, but the trace contains one"),
                Expected::Reach(to) => {
                    write!(f, "the code at {at:x} does not lead to {to:x}, as the trace requires")
                }
                Expected::Transfer => write!(f, "no transfer follows that would leave {at:x}"),
                Expected::PtWrite => write!(f, "no PTWRITE after {at:x}, but the trace contains one"),
                Expected::Off => write!(f, "tracing begins at {at:x}, but it was on already"),
                Expected::On => f.write_str("the trace continues, but tracing was off"),
            },
            Trouble::EmptyReturnStack { at } => write!(f, "the return at {at:x} has no call to return from"),
            Trouble::UnseenCall { at, hidden } => {
                let why = match hidden {
                    Hidden::ByMissingCode => "code is missing",
                    Hidden::ByOverflow => "packets were lost",
                    Hidden::ByDamage => "the trace could not be followed",
                };
                write!(f, "the return at {at:x} goes back to a call that was not decoded, because {why}")
            }
            Trouble::EndlessLoop { at } => write!(f, "the code at {at:x} loops without a branch to trace"),
            Trouble::NoAddress => f.write_str("a packet lacks the address that it must contain"),
            Trouble::LostAddress => f.write_str("the address is compressed against one that was lost"),
            Trouble::Uncommitted => f.write_str("the trace does not say what was committed"),
            Trouble::NotTraced { at } => write!(f, "the branch after {at:x} was not traced"),
            Trouble::Ambiguous { at } => write!(f, "several paths to {at:x} fit the trace"),
            Trouble::UnknownFilter { at } => {
                write!(
                    f,
                    "tracing ended at the branch after {at:x} or later, as an unknown address filter decides"
                )
            }
        }
    }
}
