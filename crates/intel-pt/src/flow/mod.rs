//! Packets and code to the exact flow of execution.
//!
//! ```text
//! packets ──decoder (what happened?)──► walk (which blocks is that?) ──► Sink
//! ```
//!
//! Nothing is reported without evidence: the decoder walks over code only as far as a packet proves
//! that it ran. At each PSB it walks up to the IP that the PSB+ names, so a span between two PSBs
//! decodes to the same flow whether the span before it was decoded or not.

mod decoder;
mod event;
mod walk;

use std::fmt;

use hodo_clock::Tsc;
use hodo_code::{Block, Snapshot, Unreadable};

use crate::packet;

pub use decoder::{Decoder, Switch};
pub use event::{Cause, ControlFlow, ControlFlowKind, Event, EventData, Transaction, ValueBlock};

/// Instructions that ran one after the other: a block, or its first instructions.
#[derive(Clone, Copy, Debug)]
pub struct Executed<'a> {
    /// The block.
    pub block: &'a Block,
    /// Lengths in bytes of the instructions that ran, from the block's start on.
    pub lengths: &'a [u8],
    /// The code that it is part of.
    pub code: Snapshot<'a>,
}

impl Executed<'_> {
    /// Whether the block ran to its end, so that its terminator took effect.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.lengths.len() == self.block.instructions as usize
    }

    /// Addresses of the instructions that ran.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.lengths.iter().scan(self.block.start, |next, &length| {
            let address = *next;
            *next = address.wrapping_add(u64::from(length));
            Some(address)
        })
    }
}

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
    /// Where the trace contradicts the code: the byte in the stream since which nothing confirmed the
    /// flow, so that instructions reported from there on are doubtful.
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
    /// The code runs in a circle that no packet ends.
    EndlessLoop {
        /// Some address of the circle.
        at: u64,
    },
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
            Trouble::Contradiction { at, expected } => match expected {
                Expected::Conditional => {
                    write!(f, "no conditional branch at {at:x}, where the trace has one")
                }
                Expected::Indirect => write!(f, "no indirect branch at {at:x}, where the trace has one"),
                Expected::Reach(to) => {
                    write!(f, "the code at {at:x} does not lead to {to:x}, as the trace says")
                }
                Expected::Off => write!(f, "tracing begins at {at:x}, but it was on already"),
                Expected::On => f.write_str("the trace goes on, but tracing was off"),
            },
            Trouble::EmptyReturnStack { at } => write!(f, "the return at {at:x} has no call to return from"),
            Trouble::EndlessLoop { at } => write!(f, "the code at {at:x} loops without a branch to trace"),
        }
    }
}

/// Takes in what a stream shows, in order.
pub trait Sink {
    /// Instructions ran.
    fn executed(&mut self, executed: Executed<'_>);

    /// Something else happened.
    fn event(&mut self, event: Event);
}
