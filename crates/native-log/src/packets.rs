//! Writes what a thread did as Intel PT packets, as a processor would that traces the user's code: Intel SDM vol. 3, "Intel
//! Processor Trace".
//!
//! ```text
//! Items ──► conditional branches: TNT    indirect branches and returns: TIP    system calls, signals: FUP, TIP.PGD, TIP.PGE
//! ```
//!
//! Times are those that the recording has: at system calls, and as often as was wanted. The counter ticks as the recorded
//! machine's.

use std::sync::Arc;

use hodo_intel_pt::encoder::{Encoder, Settings, Sink, Timing};
use hodo_native_runtime::wire::{exit, note};

use crate::{
    entries::DecodedBlock,
    file::{Block, FileError},
    items::{Item, Items},
    table::{Path, Span, Table},
};

/// The most bytes that a block may become. A recorder's block becomes some hundred kilobytes; a forged one could become
/// thousands of times its size.
const MOST_BYTES: usize = 64 << 20;

/// How to write packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether a return to its call is one bit of TNT (return compression), the default of processors.
    pub return_compression: bool,
}

/// The log of a thread. Each of its blocks becomes packets that can be decoded without the others.
#[derive(Clone, Debug)]
pub struct Log<'a> {
    /// The table of its process.
    pub table: Arc<Table>,
    /// Its blocks, in order. A block whose position does not follow that of the one before begins anew.
    pub blocks: Vec<Block<'a>>,
}

/// A block as packets.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Packets from a PSB on, and the PSB and status packets with which the next block begins.
    pub bytes: Vec<u8>,
    /// The number of bytes before those of the next block.
    pub length: usize,
}

/// Writes the blocks of a log as packets. Blocks in order are unpacked once.
pub struct Converter<'l, 'a> {
    log: &'l Log<'a>,
    options: Options,
    next: Option<NextBlock>,
}

/// The block that is next in order.
struct NextBlock {
    index: usize,
    block: DecodedBlock,
    begin: Begin,
}

/// The state at the begin of a block.
#[derive(Clone, Copy, Default)]
struct Begin {
    /// Whether tracing is on.
    tracing: bool,
    /// The address of the thread's next instruction; 0 if it is unknown.
    pc: u64,
    /// The address to which the last exit of the block before leads; 0 if it is unknown.
    expected: u64,
    /// The time-stamp counter.
    now: u64,
}

/// An indirect branch whose target only the next item shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    None,
    Indirect,
    Return,
}

struct Writer<'s, S> {
    encoder: Encoder,
    sink: &'s mut S,
    /// Whether tracing is on.
    tracing: bool,
    waiting: Waiting,
    /// The address of the thread's next instruction; 0 if it is unknown.
    pc: u64,
    /// The time-stamp counter.
    now: u64,
}

/// Drops all bytes.
struct Nowhere;

impl Sink for Nowhere {
    fn put(&mut self, _: u64, _: usize) {}
}

impl<'l, 'a> Converter<'l, 'a> {
    /// Begins with no block.
    pub fn new(log: &'l Log<'a>, options: Options) -> Converter<'l, 'a> {
        Converter { log, options, next: None }
    }

    /// The block with this index as packets.
    ///
    /// # Errors
    /// The block is damaged, or would become too long.
    pub fn segment(&mut self, index: usize) -> Result<Segment, FileError> {
        let (block, begin) = self.take(index)?;
        let mut bytes = Vec::with_capacity(block.words.len());
        let length = self.write(index, &block, begin, &mut bytes, Vec::len);
        if length > MOST_BYTES {
            self.next = None;
            return Err(FileError::Damaged(self.log.blocks[index].offset));
        }
        Ok(Segment { bytes, length })
    }

    /// The words of a block, and the state at its begin.
    fn take(&mut self, index: usize) -> Result<(DecodedBlock, Begin), FileError> {
        if let Some(next) = self.next.take().filter(|next| next.index == index) {
            return Ok((next.block, next.begin));
        }
        if index > 0 && self.follows(index) {
            // The state at the end of the block before shows where this one begins. That block is written without its own
            // state at the begin: its exits say where the thread is from there on.
            if let Ok(before) = DecodedBlock::read(&self.log.blocks[index - 1]) {
                self.write(index - 1, &before, Begin::default(), &mut Nowhere, |_| 0);
                if let Some(next) = self.next.take().filter(|next| next.index == index) {
                    return Ok((next.block, next.begin));
                }
            }
        }
        Ok((DecodedBlock::read(&self.log.blocks[index])?, Begin::default()))
    }

    /// Whether a block continues the one before.
    fn follows(&self, index: usize) -> bool {
        let [before, this] = [index - 1, index].map(|index| &self.log.blocks[index].header);
        before.next_sequence() == Some(this.sequence)
    }

    /// Writes a block, and the PSB of the next. Returns how much was written before that PSB. `length` returns the number of
    /// bytes in the sink.
    fn write<S: Sink>(
        &mut self,
        index: usize,
        block: &DecodedBlock,
        begin: Begin,
        sink: &mut S,
        length: impl Fn(&S) -> usize,
    ) -> usize {
        let following = (index + 1 < self.log.blocks.len() && self.follows(index + 1))
            .then(|| DecodedBlock::read(&self.log.blocks[index + 1]).ok())
            .flatten();
        let retracts = following.as_ref().is_some_and(DecodedBlock::retracts);
        let mut items = Items::of_block(&self.log.table, block, begin.expected, retracts);
        let mut writer = Writer::new(self.options, begin.now.max(block.times.start), sink);
        writer.begin(begin);
        for item in &mut items {
            writer.item(item);
            if length(writer.sink) > MOST_BYTES {
                break;
            }
        }
        let expected = items.leads_to();
        if let Some(following) = &following {
            let start = start_of(&self.log.table, following);
            writer.end_block(start);
        } else {
            writer.stop();
        }
        writer.encoder.flush(writer.now, writer.sink);
        let written = length(writer.sink);
        let end = Begin { tracing: writer.tracing, pc: writer.pc, expected, now: writer.now };
        if let Some(block) = following {
            writer.begin(end);
            self.next = Some(NextBlock { index: index + 1, block, begin: end });
        }
        written
    }
}

/// Where a block begins, if its first item says so.
fn start_of(table: &Table, block: &DecodedBlock) -> Option<u64> {
    let (expected, retracts) = (0, false);
    match Items::of_block(table, block, expected, retracts).next()? {
        Item::Path(path) => Some(path.all().next()?.start),
        Item::Continue(pc) => Some(pc),
        _ => None,
    }
}

impl<'s, S: Sink> Writer<'s, S> {
    fn new(options: Options, now: u64, sink: &'s mut S) -> Writer<'s, S> {
        let timing = Timing { tsc: true, mtc_period: None, cyc_threshold: None };
        let settings = Settings { return_compression: options.return_compression, timing };
        let encoder = Encoder::new(settings, now);
        Writer { encoder, sink, tracing: false, waiting: Waiting::None, pc: 0, now }
    }

    /// Writes a PSB and status packets.
    fn begin(&mut self, begin: Begin) {
        self.tracing = begin.tracing && begin.pc != 0;
        self.pc = begin.pc;
        self.encoder.synchronize(Some(self.pc).filter(|_| self.tracing), self.now, self.sink);
    }

    /// The block ends, and the next begins at `start`.
    fn end_block(&mut self, start: Option<u64>) {
        match start {
            Some(start) => self.arrive(start),
            None if self.waiting != Waiting::None => self.stop(),
            None => {}
        }
    }

    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Path(path) => self.path(&path),
            Item::Signal(_, handler) => {
                if self.tracing && self.waiting == Waiting::None {
                    self.encoder.interrupt(self.pc, self.now, self.sink);
                    self.tracing = false;
                }
                self.stop();
                self.pc = handler;
            }
            Item::Continue(pc) => {
                self.arrive(pc);
                if self.tracing && self.pc != pc {
                    self.stop();
                }
                self.pc = pc;
            }
            Item::Call(_, time) | Item::CallEnd(time) | Item::Time(time) => {
                self.now = self.now.max(time);
                self.encoder.set_clock(self.now, self.sink);
            }
            Item::Loss(note::UNSELECTED) => {
                self.stop();
                self.pc = 0;
            }
            Item::Loss(_) | Item::Contradiction => {
                self.stop();
                self.encoder.overflow(None, self.now, self.sink);
                self.pc = 0;
            }
            Item::End => self.stop(),
        }
    }

    /// The thread is at `pc`, where the last indirect branch led.
    fn arrive(&mut self, pc: u64) {
        match std::mem::replace(&mut self.waiting, Waiting::None) {
            Waiting::None => return,
            Waiting::Indirect => self.encoder.indirect(pc, self.now, self.sink),
            Waiting::Return => self.encoder.ret(pc, self.now, self.sink),
        }
        self.pc = pc;
    }

    /// Ends tracing, if it is on.
    fn stop(&mut self) {
        if self.tracing {
            match self.waiting {
                // Where it led is unknown.
                Waiting::Indirect | Waiting::Return => self.encoder.disable(None, self.now, self.sink),
                Waiting::None => self.encoder.interrupt(self.pc, self.now, self.sink),
            }
        }
        (self.tracing, self.waiting) = (false, Waiting::None);
    }

    fn path(&mut self, path: &Path<'_>) {
        let start = path.spans.first().unwrap_or(&path.last).start;
        if path.since > self.now {
            // Code that is in no file exists from the time of its translation on.
            self.now = path.since;
            self.encoder.set_clock(self.now, self.sink);
        }
        self.arrive(start);
        if self.tracing && self.pc != start {
            self.stop();
        }
        if !self.tracing {
            self.encoder.enable(start, self.now, self.sink);
            self.tracing = true;
        }
        let mut not_taken = path.not_taken.iter().peekable();
        let mut number = 0;
        for span in path.all() {
            number += span.count;
            while not_taken.next_if(|&&branch| u32::from(branch) <= number).is_some() {
                self.encoder.branch(false, self.now, self.sink);
            }
            self.branch(&span);
        }
    }

    /// The branch at the end of a span.
    fn branch(&mut self, span: &Span) {
        self.pc = if span.kind == exit::NONE { span.end } else { span.target };
        match span.kind {
            exit::TAKEN => self.encoder.branch(true, self.now, self.sink),
            exit::NOT_TAKEN => {
                self.encoder.branch(false, self.now, self.sink);
                self.pc = span.end;
            }
            exit::CALL if span.target != span.end => self.encoder.call(span.end),
            exit::CALL_INDIRECT => {
                self.encoder.call(span.end);
                self.indirect(span.target, Waiting::Indirect);
            }
            exit::JUMP_INDIRECT | exit::FAR_RETURN => self.indirect(span.target, Waiting::Indirect),
            exit::RETURN => self.indirect(span.target, Waiting::Return),
            exit::SYSCALL | exit::FAR => {
                self.encoder.disable(None, self.now, self.sink);
                self.tracing = false;
            }
            _ => {}
        }
    }

    fn indirect(&mut self, target: u64, how: Waiting) {
        self.waiting = how;
        if target != 0 {
            self.arrive(target);
        }
    }
}
