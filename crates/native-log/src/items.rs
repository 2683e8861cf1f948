//! What a thread did, item by item.

use std::ops::Range;

use hodo_native_runtime::wire::{escape, note};

use crate::{
    entries::{DecodedBlock, other_item},
    file::{Block, FileError},
    table::{Part, Path, Table},
};

/// A digest of instruction addresses in order. Digests of parts can be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    sum: u64,
    power: u64,
    /// The sum of the addresses, modulo 2^64.
    addresses: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest { sum: 0, power: 1, addresses: 0 }
    }
}

impl Digest {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Appends an address.
    pub fn push(&mut self, address: u64) {
        let mixed = (address ^ address >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.sum = self.sum.wrapping_mul(Digest::FACTOR).wrapping_add(mixed ^ mixed >> 32);
        self.power = self.power.wrapping_mul(Digest::FACTOR);
        self.addresses = self.addresses.wrapping_add(address);
    }

    /// Appends the addresses of another digest.
    #[inline]
    pub fn append(&mut self, other: Digest) {
        self.sum = self.sum.wrapping_mul(other.power).wrapping_add(other.sum);
        self.power = self.power.wrapping_mul(other.power);
        self.addresses = self.addresses.wrapping_add(other.addresses);
    }

    /// The digest as a number.
    pub fn value(self) -> u64 {
        self.sum
    }

    /// The sum of the addresses, modulo 2^64.
    pub fn addresses(self) -> u64 {
        self.addresses
    }
}

/// What a thread did.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// It ran these instructions.
    Path(Path<'a>),
    /// A signal: its number, and its handler's address. 0: the signal ended the process.
    Signal(u32, u64),
    /// It continues at this address, without a branch.
    Continue(u64),
    /// A system call begins: its number, and the time-stamp counter.
    Call(u32, u64),
    /// A system call is over: the time-stamp counter.
    CallEnd(u64),
    /// The time-stamp counter.
    Time(u64),
    /// What follows was not recorded: one of [`hodo_native_runtime::wire::note`].
    Loss(u32),
    /// The log contradicts itself or its table: what is between this item and the next is unknown.
    Contradiction,
    /// The thread ended.
    End,
}

/// The items of a thread.
pub struct Items<'a> {
    table: &'a Table,
    blocks: std::slice::Iter<'a, Block<'a>>,
    /// The position of the block that continues the one before.
    sequence: Option<u64>,
    words: Vec<u32>,
    position: usize,
    /// An exit whose last instruction may still be retracted.
    held: Option<u32>,
    /// Where what was read so far leads; 0 if that is unknown.
    expected: u64,
    digest: Digest,
    instructions: u64,
    contradictions: u64,
    /// The time-stamp counter from the begin to the end of the current part.
    times: Range<u64>,
    /// Whether missing parts were overwritten.
    overwritten: bool,
    /// An exit that is counted already, and is the next item.
    due: Option<u32>,
    /// The next item says that parts are missing.
    gap_next: bool,
}

impl<'a> Items<'a> {
    /// The items of one block. `expected` is where the block before leads, or 0; `retracts`: whether the block after it
    /// retracts its last instruction.
    pub(crate) fn of_block(
        table: &'a Table,
        block: &DecodedBlock,
        expected: u64,
        retracts: bool,
    ) -> Items<'a> {
        let mut words = block.words.clone();
        if retracts {
            words.push(escape::RETRACT);
        }
        // A RETRACT at the begin belongs to the block before.
        let position = usize::from(words.first() == Some(&escape::RETRACT));
        let (no_blocks, overwritten) = (&[], false);
        Items {
            words,
            position,
            expected,
            times: block.times.clone(),
            ..Items::new(table, no_blocks, overwritten)
        }
    }

    /// The items of one block, after one that leads to `expected`, or to 0 if that is unknown.
    ///
    /// # Errors
    /// The block is damaged.
    pub fn of_part(table: &'a Table, block: &Block<'_>, expected: u64) -> Result<Items<'a>, FileError> {
        let retracts = false;
        Ok(Items::of_block(table, &DecodedBlock::read(block)?, expected, retracts))
    }

    /// Where what was read so far leads; 0 if that is unknown.
    pub fn leads_to(&self) -> u64 {
        self.expected
    }

    pub(crate) fn new(table: &'a Table, blocks: &'a [Block<'a>], overwritten: bool) -> Items<'a> {
        Items {
            table,
            blocks: blocks.iter(),
            sequence: Some(0),
            words: Vec::new(),
            position: 0,
            held: None,
            expected: 0,
            digest: Digest::default(),
            instructions: 0,
            contradictions: 0,
            times: 0..0,
            overwritten,
            due: None,
            gap_next: false,
        }
    }

    /// The digest of all instruction addresses so far.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// The number of instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// How often the log contradicted itself so far.
    pub fn contradictions(&self) -> u64 {
        self.contradictions
    }

    /// The time-stamp counter from the begin to the end of the part of the log that is being read.
    pub fn times(&self) -> Range<u64> {
        self.times.clone()
    }

    /// Reads all that is left.
    pub fn finish(&mut self) {
        while self.next().is_some() {}
    }

    /// Unpacks the next part of the log.
    fn refill(&mut self) -> Refill {
        let Some(block) = self.blocks.next() else { return Refill::End };
        let follows = Some(block.header.sequence) == self.sequence;
        self.sequence = block.header.next_sequence();
        self.position = 0;
        self.times = block.header.first_tsc..block.header.last_tsc;
        match block.words() {
            Ok(words) => self.words = words,
            Err(_) => {
                self.words.clear();
                return Refill::Gap;
            }
        }
        if follows { Refill::Next } else { Refill::Gap }
    }

    /// A part of the log is missing.
    fn gap(&mut self) -> Item<'a> {
        if !self.overwritten {
            return self.contradiction();
        }
        self.expected = 0;
        Item::Loss(note::OVERWRITTEN)
    }

    fn contradiction(&mut self) -> Item<'a> {
        self.contradictions += 1;
        self.expected = 0;
        Item::Contradiction
    }

    /// The exit that was held, as an item.
    fn release(&self, exit: u32) -> Option<Item<'a>> {
        Some(Item::Path(self.table.path(exit)?))
    }

    /// The exit that was held, as an item without its last instruction.
    fn release_retracted(&mut self, exit: u32) -> Option<Item<'a>> {
        let instructions = self.table.summary(exit)?.instructions;
        self.partial(exit, instructions as u32 - 1)
    }

    fn partial(&mut self, exit: u32, count: u32) -> Option<Item<'a>> {
        let table = self.table;
        let Some(Part { path, digest, next }) = table.part(exit, count) else {
            return Some(self.contradiction());
        };
        let start = table.start(exit)?;
        let known = self.expected;
        self.expected = next;
        if known != 0 && known != start && !self.table.is_of_selection() {
            return Some(self.contradiction());
        }
        self.digest.append(digest);
        self.instructions += u64::from(count);
        path.map(Item::Path)
    }

    /// Counts an exit, and checks that it begins where the one before led.
    fn count(&mut self, exit: u32) -> bool {
        let Some((summary, start)) = self.table.summary(exit).zip(self.table.start(exit)) else {
            return false;
        };
        let fits = self.expected == 0 || self.expected == start;
        self.expected = summary.target;
        self.digest.append(summary.digest);
        self.instructions += summary.instructions;
        fits
    }

    fn step(&mut self) -> Step<'a> {
        if std::mem::take(&mut self.gap_next) {
            return Step::Item(self.gap());
        }
        if self.position >= self.words.len() {
            return match self.refill() {
                Refill::End => Step::Over,
                Refill::Next => Step::Again,
                Refill::Gap => Step::Item(self.gap()),
            };
        }
        let word = self.words[self.position];
        self.position += 1;
        if word < escape::FIRST {
            self.held = Some(word);
            return Step::Again;
        }
        if word == escape::PARTIAL {
            let Some(&[exit, count]) = self.words.get(self.position..self.position + 2) else {
                return Step::Item(self.contradiction());
            };
            self.position += 2;
            return self.partial(exit, count).map_or(Step::Again, Step::Item);
        }
        let Some(item) = other_item(word, &self.words, &mut self.position) else {
            return Step::Item(self.contradiction());
        };
        match item {
            Item::Signal(_, next) | Item::Continue(next) => self.expected = next,
            Item::Loss(_) => self.expected = 0,
            _ => {}
        }
        Step::Item(item)
    }
}

/// The result of unpacking the next part of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refill {
    /// It continues the part before.
    Next,
    /// A part is missing or damaged.
    Gap,
    /// There is no further part.
    End,
}

/// The result of reading a word of a log.
enum Step<'a> {
    Item(Item<'a>),
    /// No item yet.
    Again,
    /// The log is over.
    Over,
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        if let Some(item) = self.due.take().and_then(|exit| self.release(exit)) {
            return Some(item);
        }
        loop {
            let Some(exit) = self.held else {
                match self.step() {
                    Step::Item(item) => return Some(item),
                    Step::Again => continue,
                    Step::Over => return None,
                }
            };
            // Whether the exit stands depends on the next word, which may be in the next part.
            if self.position >= self.words.len() && self.refill() == Refill::Gap {
                self.held = None;
                self.gap_next = true;
                let item = if self.count(exit) { self.release(exit) } else { None };
                return item.or_else(|| Some(self.contradiction()));
            }
            self.held = None;
            if self.words.get(self.position) == Some(&escape::RETRACT) {
                self.position += 1;
                match self.release_retracted(exit) {
                    Some(item) => return Some(item),
                    None => continue,
                }
            }
            if !self.count(exit) {
                if self.table.is_of_selection() && self.table.start(exit).is_some() {
                    self.due = Some(exit);
                    return Some(Item::Loss(note::UNSELECTED));
                }
                let item = self.contradiction();
                self.expected = self.table.summary(exit).map_or(0, |summary| summary.target);
                return Some(item);
            }
            return self.release(exit);
        }
    }
}
