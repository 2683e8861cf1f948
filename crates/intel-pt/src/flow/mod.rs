//! Packets and code to the exact flow of execution.
//!
//! ```text
//! packets ──decoder (what happened?)──► walk (which blocks is that?) ──► Sink
//! ```
//!
//! Nothing is reported without evidence: the decoder walks over code only as far as a packet proves
//! that it ran. At each PSB it walks up to the IP that the PSB+ names, so a span between two PSBs
//! decodes to the same flow whether the span before it was decoded or not.

mod bind;
mod decoder;
mod event;
mod fast;
mod lookahead;
mod machine;
mod psb;
mod recovery;
mod resync_probe;
mod trouble;
mod walk;

use hodo_clock::Tsc;
use hodo_code::{Block, Graph, Labels, Provenance, Snapshot};
pub use hodo_code::{FunctionRun, Transfer};

pub use decoder::{Decoder, Guest, GuestCode, Switch};
pub use event::{Cause, ControlFlow, ControlFlowKind, Event, EventData, Transaction, ValueBlock};
pub use fast::{Memos, Step};
pub use trouble::{Expected, Gap, Hidden, Trouble};

/// Instructions that ran one after the other: a block, or its first instructions.
#[derive(Clone, Copy, Debug)]
pub struct Executed<'a> {
    /// The block.
    pub block: &'a Block,
    /// Lengths in bytes of the instructions that ran, from the block's start on.
    pub lengths: &'a [u8],
    /// Their bytes.
    pub bytes: &'a [u8],
    /// Where its code comes from.
    pub provenance: &'a Provenance,
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

/// What a packet tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A TNT packet. Its branches waited in the processor until it was full, or until another packet forced
    /// it out, which then comes next.
    Tnt,
    /// The time alone.
    Clock,
    /// Anything else, which the processor sends when it happens.
    Other,
}

/// Takes in what a stream shows, in order.
pub trait Sink {
    /// Instructions ran.
    fn executed(&mut self, executed: Executed<'_>);

    /// Something else happened.
    fn event(&mut self, event: Event);

    /// Whether function runs may be told in place of blocks; asked again with each packet.
    #[inline]
    fn takes_function_runs(&self) -> bool {
        false
    }

    /// Blocks of this graph ran, some function runs one after another, and then it is this [time](Event::Time), if one is
    /// given. What else is told comes after all that ran before.
    #[inline]
    fn function_runs<L: Labels>(
        &mut self,
        _function_runs: &[FunctionRun],
        _graph: &Graph<'_, L>,
        _until: Option<Tsc>,
    ) {
    }

    /// What is told next is what one packet says.
    #[inline]
    fn packet(&mut self, _kind: PacketKind) {}

    /// Whether steps of [paths](Sink::learn) are to be single blocks.
    const TAKES_BLOCKS: bool = false;

    /// Whether paths may be told in place of blocks; asked again whenever a time was told.
    #[inline]
    fn takes_paths(&self) -> bool {
        false
    }

    /// A number for all that decides what a path means to this sink; `None` where it is to be told of blocks.
    ///
    /// Paths are told only by [`Decoder::decode_with_memo`], in place of what [`Sink::executed`] and
    /// [`Sink::packet`] would tell.
    fn state(&mut self) -> Option<u32> {
        None
    }

    /// Learns what steps that follow each other do to the sink in a state, which need not be the present one: a
    /// number for that, and the state behind them. `None` where the sink is to be told of their blocks.
    fn learn<L: Labels>(
        &mut self,
        _state: u32,
        _steps: &[Step],
        _graph: &Graph<'_, L>,
    ) -> Option<(u32, u32)> {
        None
    }

    /// A path that was learned ran.
    #[inline]
    fn path(&mut self, _path: u32) {}

    /// Paths led to this state. What comes next is told of blocks.
    fn resume(&mut self, _state: u32) {}

    /// No state and no path of those so far will be told any more.
    fn forget(&mut self) {}
}
