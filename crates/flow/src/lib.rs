//! The control flow of a processor, whichever unit traced it.
//!
//! ```text
//! packets of Intel PT, Arm ETM, … ──decoder──► Executed, Event, Gap ──► Sink
//! ```
//!
//! A decoder reports nothing without evidence: what a trace does not show is a [`Gap`] with a [`Trouble`].

mod continuity;
mod event;
mod lookahead;
#[cfg(feature = "serde")]
mod serialized;
mod step;
mod trouble;

use hodo_clock::Tsc;
use hodo_code::{Block, BlockBytes, BlockId, FunctionRun, Graph, Labels, Provenance, Snapshot};

pub use continuity::Continuity;
pub use event::{Cause, ControlFlow, ControlFlowKind, Event, EventData, Transaction, ValueBlock};
pub use lookahead::{CircleGuard, Lookahead, SUSPICIOUS, instructions_before};
pub use step::Step;
pub use trouble::{Expected, Gap, Hidden, PacketError, Trouble};

/// The tick from which a stream shows another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The tick.
    pub at: Tsc,
    /// Index of the program in the caller's list.
    pub program: usize,
    /// The caller's identification of what runs, for example the thread.
    pub context: u32,
}

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
    /// Whether the last instruction is a branch whose condition failed although its terminator has none: a conditional
    /// call, return or indirect jump of A32 or T32.
    pub condition_failed: bool,
}

impl<'a> Executed<'a> {
    /// Returns the bytes of the instructions that ran. They are looked up only here: most sinks do not need them, and a
    /// listing of instructions took a tenth longer with them at hand.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        let all = self.bytes.of(self.id);
        match self.lengths.len() == self.block.instructions as usize {
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
        self.lengths.len() == self.block.instructions as usize && !self.condition_failed
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
    /// Only a decoder with a memo reports paths, in place of [`Sink::executed`] and [`Sink::packet`].
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
