//! Decodes packets and code to the exact flow of execution.
//!
//! ```text
//! packets ──decoder (what happened?)──► walk (which blocks is that?) ──► Sink
//! ```
//!
//! The decoder reports nothing without evidence: it walks over code only as far as a packet proves that it ran. At
//! each PSB it walks up to the IP in the PSB+, so a span between two PSBs decodes to the same flow whether or not the
//! span before it was decoded.
//!
//! # Example
//!
//! A loop around a `nop`, which runs twice:
//!
//! ```
//! use hodo_clock::Tsc;
//! use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
//! use hodo_intel_pt::{Config, flow::{Decoder, Event, Executed, Sink, Switch}, packet::{IpPayload, Packet, Tnt}};
//!
//! struct Addresses(Vec<u64>);
//!
//! impl Sink for Addresses {
//!     fn executed(&mut self, executed: Executed<'_>) {
//!         self.0.extend(executed.addresses());
//!     }
//!     fn event(&mut self, _: Event) {}
//! }
//!
//! // nop; jne back to it; ret
//! let code = Content { bytes: &[0x90, 0x75, 0xfd, 0xc3], origin: Origin::default() };
//! let mut space = AddressSpace::new();
//! space.map(0x1000..0x1004, code, 0);
//! let branches = Packet::Tnt8(Tnt { bits: 0b10, count: 2 });
//! let [on, off] = [Packet::TipPge(IpPayload::Full(0x1000)), Packet::TipPgd(IpPayload::Suppressed)];
//! let packets = [Packet::Psb, Packet::PsbEnd, on, branches, off];
//! let trace: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
//! let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
//! let mut ran = Addresses(Vec::new());
//! let decoder = Decoder::new(&trace, 0..trace.len(), &Config::default(), &schedule);
//! decoder.decode(&mut [Program::new(&space, &NoLabels)], &mut ran);
//! assert_eq!(ran.0, [0x1000, 0x1001, 0x1000, 0x1001, 0x1003]);
//! ```

mod bind;
mod decoder;
mod event;
mod fast;
mod lookahead;
mod machine;
mod psb;
mod recovery;
mod resync_probe;
#[cfg(feature = "serde")]
mod serialized;
mod trouble;
mod walk;

use hodo_clock::Tsc;
use hodo_code::{Block, BlockBytes, BlockId, Graph, Labels, Provenance, Snapshot};
pub use hodo_code::{FunctionRun, Transfer};

pub use decoder::{Decoder, Guest, GuestCode, Switch};
pub use event::{Cause, ControlFlow, ControlFlowKind, Event, EventData, Transaction, ValueBlock};
pub use fast::{Memos, Step};
pub use trouble::{Expected, Gap, Hidden, Trouble};

/// Consecutive instructions that ran: a block, or its first instructions.
#[derive(Clone, Copy, Debug)]
pub struct Executed<'a> {
    /// The block.
    pub block: &'a Block,
    /// Lengths of the instructions that ran, from the block's start on, in bytes.
    pub lengths: &'a [u8],
    /// The block's number.
    pub id: BlockId,
    /// The bytes of all blocks; [`Executed::bytes`] returns those that ran.
    pub bytes: &'a BlockBytes,
    /// The sources of all blocks, by number; [`Executed::provenance`] returns the block's.
    pub provenances: &'a [Provenance],
    /// The code that contains the block.
    pub code: Snapshot<'a>,
}

impl<'a> Executed<'a> {
    /// Returns the bytes of the instructions that ran. They are looked up only here: most sinks do not need them, and a
    /// listing of instructions took a tenth longer with them at hand.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        let all = self.bytes.of(self.id);
        match self.is_whole() {
            true => all,
            false => &all[..self.lengths.iter().map(|&length| usize::from(length)).sum()],
        }
    }

    /// Returns source and validity of the block's code, which are looked up only here too.
    #[inline]
    pub fn provenance(&self) -> &'a Provenance {
        &self.provenances[self.id.0 as usize]
    }

    /// Returns whether the block ran to its end, so that its terminator took effect.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.lengths.len() == self.block.instructions as usize
    }

    /// Returns the addresses of the instructions that ran.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.lengths.iter().scan(self.block.start, |next, &length| {
            let address = *next;
            *next = address.wrapping_add(u64::from(length));
            Some(address)
        })
    }
}

/// The kind of events that a packet reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A TNT packet. Its branches were pending in the processor until the packet was full, or until another packet,
    /// which comes next, forced it out.
    Tnt,
    /// Time only.
    Clock,
    /// Anything else; the processor sends it when it happens.
    Other,
}

/// Receives the decoded stream, in order.
pub trait Sink {
    /// Reports that instructions ran.
    fn executed(&mut self, executed: Executed<'_>);

    /// Reports any other event.
    fn event(&mut self, event: Event);

    /// Returns whether the sink takes function runs in place of blocks. The decoder asks again for each packet.
    #[inline]
    fn takes_function_runs(&self) -> bool {
        false
    }

    /// Reports consecutive function runs of blocks of this graph, and then this [time](Event::Time), if given. Other
    /// reports come after everything that ran before them.
    #[inline]
    fn function_runs<L: Labels>(
        &mut self,
        _function_runs: &[FunctionRun],
        _graph: &Graph<'_, L>,
        _until: Option<Tsc>,
    ) {
    }

    /// Announces that the next reports are those of one packet.
    #[inline]
    fn packet(&mut self, _kind: PacketKind) {}

    /// Whether the steps of [paths](Sink::learn) must be single blocks.
    const TAKES_BLOCKS: bool = false;

    /// Returns whether the sink takes paths in place of blocks. The decoder asks again after each reported time.
    #[inline]
    fn takes_paths(&self) -> bool {
        false
    }

    /// Returns a number for the sink's state, which decides what a path does to the sink; `None` if the sink needs
    /// blocks.
    ///
    /// Only [`Decoder::decode_with_memo`] reports paths, in place of [`Sink::executed`] and [`Sink::packet`].
    fn state(&mut self) -> Option<u32> {
        None
    }

    /// Learns the effect of consecutive steps on the sink in `state`, which need not be the current one. Returns a
    /// number for the path and the resulting state, or `None` if the sink needs the steps' blocks.
    fn learn<L: Labels>(
        &mut self,
        _state: u32,
        _steps: &[Step],
        _graph: &Graph<'_, L>,
    ) -> Option<(u32, u32)> {
        None
    }

    /// Learns a path that is two learned ones, `first` and then `second`; returns its number. `None` if the sink wants
    /// to take them one by one.
    fn join(&mut self, _first: u32, _second: u32) -> Option<u32> {
        None
    }

    /// Reports that a learned path ran.
    #[inline]
    fn path(&mut self, _path: u32) {}

    /// Sets the state that paths led to. Blocks follow.
    fn resume(&mut self, _state: u32) {}

    /// Invalidates all numbers of states and paths so far.
    fn forget(&mut self) {}
}
