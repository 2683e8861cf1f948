//! Compares what was decoded with what the emulated processor says ran. The logs of the native recorder say it for each
//! exit, which [`log`](crate::flow::log) compares.
//!
//! ```text
//! recording: instructions and the sum of their addresses before each PSB ──► what ran in a segment ──┐
//! decoder: blocks, function runs and paths ──► their number, and of blocks the sum of their addresses ┴─ equal?
//! ```
//!
//! A segment between two PSBs decodes alone, so any cutting into chunks and any selection checks the same segments. The
//! number of instructions is always compared, the sum of their addresses only for sinks that take single blocks: function
//! runs do not contain addresses, and to add them would cost more than the report. Neither detects the right instructions
//! in a wrong order, and the number alone does not detect other instructions of the same number.

use std::{cmp::Ordering, ops::Range};

use hodo_code::{Graph, Labels};
use hodo_flow::{Executed, Step};
use hodo_formats::recording::{Checkpoint, Recording};

use crate::flow::stream::TraceStream;

/// What ran, or was decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    instructions: u64,
    /// The sum of the addresses.
    sum: u64,
}

impl Account {
    #[inline]
    fn plus(self, more: Account) -> Account {
        Account { instructions: self.instructions + more.instructions, sum: self.sum.wrapping_add(more.sum) }
    }
}

/// Returns what the recording says ran in a segment of a stream: `span` of its extent with this index.
fn recorded(
    recording: &Recording<'_>,
    stream: &TraceStream<'_>,
    extent: usize,
    span: Range<u64>,
) -> Option<Account> {
    let cpu = stream.cpu?;
    let all = &recording.recorder.as_ref()?.notes.checkpoints;
    let checkpoints = &all.iter().find(|checkpoints| checkpoints.cpu == cpu)?.places;
    let before: u64 = stream.extents[..extent].iter().map(|extent| extent.length()).sum();
    let checkpoint = |position: u64| -> Option<Checkpoint> {
        let position = before.checked_add(position)?;
        let index = checkpoints.binary_search_by_key(&position, |checkpoint| checkpoint.position).ok()?;
        Some(checkpoints[index])
    };
    let (begin, end) = (checkpoint(span.start)?, checkpoint(span.end)?);
    Some(Account {
        instructions: end.instructions.wrapping_sub(begin.instructions),
        sum: end.sum.wrapping_sub(begin.sum),
    })
}

/// The paths that a sink has learned, by number.
#[derive(Debug, Default)]
pub(crate) struct PathAccounts {
    /// Empty if nothing is checked.
    all: Vec<Account>,
    /// Whether the recording has checkpoints to compare with.
    is_needed: bool,
}

impl PathAccounts {
    fn set(&mut self, path: u32, account: Account) {
        let index = path as usize;
        if self.all.len() <= index {
            self.all.resize(index + 1, Account::default());
        }
        self.all[index] = account;
    }
}

/// The check of one segment.
#[derive(Debug)]
pub(crate) struct SelfCheck<'p> {
    /// What ran; `None` if the recording does not say.
    expected: Option<Account>,
    decoded: Account,
    /// Whether the sink takes single blocks, so that addresses are added.
    of_blocks: bool,
    paths: &'p mut PathAccounts,
}

impl<'p> SelfCheck<'p> {
    pub(crate) fn new(
        recording: &Recording<'_>,
        stream: &TraceStream<'_>,
        (extent, span): (usize, Range<u64>),
        of_blocks: bool,
        paths: &'p mut PathAccounts,
    ) -> SelfCheck<'p> {
        // A path that is learned in one segment may run in any other.
        let recorder = recording.recorder.as_ref();
        paths.is_needed = recorder.is_some_and(|recorder| !recorder.notes.checkpoints.is_empty());
        SelfCheck {
            expected: recorded(recording, stream, extent, span),
            of_blocks,
            ..SelfCheck::of_nothing(paths)
        }
    }

    /// A check that finds no difference.
    pub(crate) fn of_nothing(paths: &'p mut PathAccounts) -> SelfCheck<'p> {
        SelfCheck { expected: None, decoded: Account::default(), of_blocks: false, paths }
    }

    /// Counts a block that ran, or its first instructions.
    #[inline]
    pub(crate) fn executed(&mut self, executed: &Executed<'_>) {
        if self.of_blocks && self.expected.is_some() {
            self.add(block_account(executed.block.start, executed.lengths));
        } else {
            self.count(executed.lengths.len() as u64);
        }
    }

    #[inline]
    fn add(&mut self, more: Account) {
        self.decoded = self.decoded.plus(more);
    }

    /// Counts instructions that ran.
    #[inline]
    pub(crate) fn count(&mut self, instructions: u64) {
        self.decoded.instructions += instructions;
    }

    /// Counts a learned path that ran.
    #[inline]
    pub(crate) fn path(&mut self, path: u32) {
        if let Some(&account) = self.paths.all.get(path as usize) {
            self.add(account);
        }
    }

    /// Keeps the account of a path that was learned.
    pub(crate) fn learn<L: Labels>(&mut self, path: u32, steps: &[Step], graph: &Graph<'_, L>) {
        if !self.paths.is_needed {
            return;
        }
        let of_step = |step: &Step| match self.of_blocks {
            true => block_account(step.start, graph.lengths(graph.block(step.block))),
            false => Account { instructions: step.instructions.into(), sum: 0 },
        };
        self.paths.set(path, steps.iter().map(of_step).fold(Account::default(), Account::plus));
    }

    /// Keeps the account of a path that consists of two others.
    pub(crate) fn join(&mut self, path: u32, first: u32, second: u32) {
        let account = |path: u32| self.paths.all.get(path as usize).copied().unwrap_or_default();
        if self.paths.is_needed {
            self.paths.set(path, account(first).plus(account(second)));
        }
    }

    /// Forgets all paths.
    pub(crate) fn forget(&mut self) {
        self.paths.all.clear();
    }

    /// Returns what differs, if something does and no gap in the segment explains it. It contains no numbers, so that
    /// the losses of many segments are counted together.
    pub(crate) fn difference(&self, has_gap: bool) -> Option<&'static str> {
        let (decoded, ran) = (self.decoded, self.expected?);
        match decoded.instructions.cmp(&ran.instructions) {
            Ordering::Greater => Some("more instructions were decoded than the recorder says ran"),
            _ if has_gap => None,
            Ordering::Less => Some("fewer instructions were decoded than the recorder says ran"),
            Ordering::Equal if self.of_blocks && decoded.sum != ran.sum => {
                Some("other instructions were decoded than the recorder says ran")
            }
            Ordering::Equal => None,
        }
    }
}

/// Returns the account of consecutive instructions, given by their lengths.
#[inline]
fn block_account(start: u64, lengths: &[u8]) -> Account {
    let (mut address, mut sum) = (start, 0u64);
    for &length in lengths {
        sum = sum.wrapping_add(address);
        address = address.wrapping_add(length.into());
    }
    Account { instructions: lengths.len() as u64, sum }
}
