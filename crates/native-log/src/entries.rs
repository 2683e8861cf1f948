//! The entries of a log, one by one, without the table that says what they stand for.

use std::ops::Range;

use hodo_native_runtime::wire::escape;

use crate::{
    file::{Block, FileError},
    items::Item,
};

/// The words of a block.
#[derive(Clone, Debug)]
pub struct DecodedBlock {
    pub(crate) words: Vec<u32>,
    /// The time-stamp counter from its begin to its end.
    pub times: Range<u64>,
}

/// An entry of a log.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// The thread ran a block up to this exit.
    Exit(u32),
    /// As [`Entry::Exit`], but without the last instruction.
    Retracted(u32),
    /// It ran the first instructions of the block of an exit.
    Partial {
        /// The exit.
        exit: u32,
        /// How many instructions.
        count: u32,
    },
    /// Anything but a path.
    Item(Item<'static>),
}

impl DecodedBlock {
    /// Unpacks a block of a log.
    ///
    /// # Errors
    /// The block is damaged.
    pub fn read(block: &Block<'_>) -> Result<DecodedBlock, FileError> {
        Ok(DecodedBlock { words: block.words()?, times: block.header.first_tsc..block.header.last_tsc })
    }

    /// Whether it begins with a RETRACT: the last instruction of the block before did not run.
    pub fn retracts(&self) -> bool {
        self.words.first() == Some(&escape::RETRACT)
    }

    /// Its entries. `retracts`: whether the block after it [retracts](DecodedBlock::retracts) its last instruction.
    pub fn entries(&self, retracts: bool) -> Entries<'_> {
        // One at the begin belongs to the block before.
        Entries { words: &self.words[usize::from(self.retracts())..], position: 0, retracts }
    }
}

/// The entries of a block.
#[derive(Clone, Debug)]
pub struct Entries<'b> {
    words: &'b [u32],
    position: usize,
    retracts: bool,
}

impl<'b> Entries<'b> {
    /// Whether the exit before the current position is retracted. Passes the RETRACT.
    #[inline]
    fn is_retracted(&mut self) -> bool {
        match self.words.get(self.position) {
            Some(&escape::RETRACT) => {
                self.position += 1;
                true
            }
            Some(_) => false,
            None => self.retracts,
        }
    }

    /// The exit of the next entry, if it is an [`Entry::Exit`].
    #[inline]
    pub fn next_exit(&self) -> Option<u32> {
        let &word = self.words.get(self.position)?;
        let retracts =
            self.words.get(self.position + 1).map_or(self.retracts, |&next| next == escape::RETRACT);
        (word < escape::FIRST && !retracts).then_some(word)
    }

    /// The next words, if another word follows them that does not retract the last of them. They may be other entries than
    /// exits.
    #[inline]
    pub fn ahead<const COUNT: usize>(&self) -> Option<&'b [u32; COUNT]> {
        let (words, rest) = self.words.get(self.position..)?.split_first_chunk()?;
        (*rest.first()? != escape::RETRACT).then_some(words)
    }

    /// Passes this many exits.
    #[inline]
    pub fn pass(&mut self, count: usize) {
        self.position += count;
    }

    #[cold]
    fn escape(&mut self, word: u32) -> Entry {
        if word == escape::PARTIAL
            && let Some(&[exit, count]) = self.words.get(self.position..self.position + 2)
        {
            self.position += 2;
            return Entry::Partial { exit, count };
        }
        Entry::Item(other_item(word, self.words, &mut self.position).unwrap_or(Item::Contradiction))
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        let &word = self.words.get(self.position)?;
        self.position += 1;
        Some(match word {
            escape::FIRST.. => self.escape(word),
            _ if self.is_retracted() => Entry::Retracted(word),
            _ => Entry::Exit(word),
        })
    }
}

/// The item that an escape begins; its further words begin at `position`. `None` if there is no such
/// escape, or words are missing.
pub(crate) fn other_item(word: u32, words: &[u32], position: &mut usize) -> Option<Item<'static>> {
    let count = escape::words(word)?;
    let payload = words.get(*position..*position + count)?;
    *position += count;
    let long = |index: usize| u64::from(payload[index]) | u64::from(payload[index + 1]) << 32;
    Some(match word {
        escape::TIME => Item::Time(long(0)),
        escape::SIGNAL => Item::Signal(payload[0], long(1)),
        escape::CONTINUE => Item::Continue(long(0)),
        escape::CALL => Item::Call(payload[0], long(1)),
        escape::CALL_END => Item::CallEnd(long(0)),
        escape::LOSS => Item::Loss(payload[0]),
        escape::END => Item::End,
        _ => return None,
    })
}
