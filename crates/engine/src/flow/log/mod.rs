//! Decodes the logs of native recordings, without packets.
//!
//! ```text
//! block of a log ──entries──► exit ──exits──► blocks, function runs ─┐
//!                             exit ───ways──► known path            ─┼─► Sink
//!                     eight exits ─superblocks─► one path           ─┘
//! ```
//!
//! The table of the process says for each exit which instructions ran. They are looked up in the code once, and compared
//! with it: their number, and the sum of their addresses. So the sink gets the same blocks as from packets, and needs
//! no walk from branch to branch. What an exit does to a sink in a state is learned, as [`hodo_intel_pt`] does for
//! packets.

mod decoder;
mod exits;
mod superblocks;
mod ways;

use hodo_code::{FunctionRun, Labels, Program};
use hodo_flow::{Event, Executed, Sink, Step, Switch};
use hodo_native_log::{DecodedBlock, Entry, FileError, Item, Log, Table};
use rustc_hash::FxHashMap;

use self::{
    decoder::{AfterBlock, Decoder},
    exits::Exits,
    ways::Benefit,
};

/// What a decoding thread knows of exits. It belongs to one sink, or to several that share the paths that they learned.
#[derive(Debug, Default)]
pub(crate) struct LogMemos {
    /// By program and table.
    exits: FxHashMap<(usize, usize), Exits>,
    benefit: Benefit,
    /// Pending function runs.
    runs: Vec<FunctionRun>,
    /// Memory for the steps of a path.
    steps: Vec<Step>,
}

/// What the decoding of a log needs beside the log.
pub(crate) struct LogContext<'c, 'a, L> {
    pub(crate) programs: &'c mut [Program<'a, L>],
    pub(crate) memos: &'c mut LogMemos,
    /// The programs of the thread, in order of time.
    pub(crate) schedule: &'c [Switch],
    /// Whether paths may be learned.
    pub(crate) learns: bool,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Whether its code is recorded.
    is_recorded: bool,
    /// Its address; 0 if only the next entry says it.
    address: u64,
    /// Where the next exit must begin; 0 if that is not known.
    expected: u64,
    /// The last time.
    now: u64,
}

/// Decodes the blocks of a log. Blocks in order are unpacked once.
pub(crate) struct LogReader<'l, 'f> {
    log: &'l Log<'f>,
    /// The block that is next in order, if it was unpacked.
    next: Option<NextBlock>,
}

struct NextBlock {
    index: usize,
    block: DecodedBlock,
    /// Where the thread is at its begin.
    begin: Position,
}

impl<'l, 'f> LogReader<'l, 'f> {
    pub(crate) fn new(log: &'l Log<'f>) -> LogReader<'l, 'f> {
        LogReader { log, next: None }
    }

    /// Decodes the block with this index.
    ///
    /// # Errors
    /// The block is damaged. Nothing was reported.
    pub(crate) fn decode<L: Labels, S: Sink>(
        &mut self,
        index: usize,
        context: &mut LogContext<'_, '_, L>,
        sink: &mut S,
    ) -> Result<(), FileError> {
        let (block, begin) = self.take(index, context)?;
        self.follow(index, &block, begin, context, sink);
        Ok(())
    }

    /// The words of a block, and where the thread is at its begin.
    fn take<L: Labels>(
        &mut self,
        index: usize,
        context: &mut LogContext<'_, '_, L>,
    ) -> Result<(DecodedBlock, Position), FileError> {
        if self.next.as_ref().is_none_or(|next| next.index != index) {
            self.next = None;
            if index > 0
                && self.follows(index)
                && let Ok(before) = DecodedBlock::read(&self.log.blocks[index - 1])
            {
                self.follow(index - 1, &before, Position::default(), context, &mut Nowhere);
            }
        }
        match self.next.take() {
            Some(next) => Ok((next.block, next.begin)),
            None => Ok((DecodedBlock::read(&self.log.blocks[index])?, Position::default())),
        }
    }

    /// Whether a block continues the one before.
    fn follows(&self, index: usize) -> bool {
        let [before, this] = [index - 1, index].map(|index| self.log.blocks[index].header.sequence);
        this == before + 1
    }

    /// Reports a block, at whose begin the thread is at `begin`, and keeps the next block.
    fn follow<L: Labels, S: Sink>(
        &mut self,
        index: usize,
        block: &DecodedBlock,
        begin: Position,
        context: &mut LogContext<'_, '_, L>,
        sink: &mut S,
    ) {
        let next = index + 1;
        let following = (next < self.log.blocks.len() && self.follows(next))
            .then(|| DecodedBlock::read(&self.log.blocks[next]).ok())
            .flatten();
        let mut decoder = Decoder::new(&self.log.table, begin, context, sink);
        decoder.begin(block.times.start);
        decoder.entries(&mut block.entries(following.as_ref().is_some_and(DecodedBlock::retracts)));
        let after = match &following {
            Some(block) => AfterBlock::Continues { start: start_of(&self.log.table, block) },
            None => AfterBlock::Ends,
        };
        let end = decoder.end(after);
        self.next = following.map(|block| NextBlock { index: next, block, begin: end });
    }
}

/// Where a block begins, if its first entry says so.
fn start_of(table: &Table, block: &DecodedBlock) -> Option<u64> {
    let retracts = false;
    match block.entries(retracts).next()? {
        Entry::Exit(exit) | Entry::Retracted(exit) | Entry::Partial { exit, .. } => table.start(exit),
        Entry::Item(Item::Continue(pc)) => Some(pc),
        Entry::Item(_) => None,
    }
}

/// Drops all reports.
struct Nowhere;

impl Sink for Nowhere {
    fn executed(&mut self, _: Executed<'_>) {}

    fn event(&mut self, _: Event) {}

    fn takes_function_runs(&self) -> bool {
        true
    }
}
