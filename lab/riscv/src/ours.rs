//! Our decoder beside the account.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_etrace::{
    Configuration,
    flow::{Decoder, SynchronizationPoint, synchronization_points},
    ntrace,
};
use hodo_flow::{Event, Executed, Sink, Trouble};

use crate::account::Account;

/// What a decoder found.
#[derive(Default)]
pub(crate) struct Opinion {
    /// Instructions with the right address.
    pub(crate) equal: u64,
    /// Gaps, with what was expected there.
    pub(crate) gaps: Vec<String>,
    /// Gaps because several paths fit implicit returns.
    pub(crate) ambiguous: u64,
    /// The first difference.
    pub(crate) difference: Option<String>,
    pub(crate) traps: u64,
    pub(crate) took: Duration,
}

/// Compares what is decoded with what ran.
pub(crate) struct Comparison<'e> {
    expected: &'e [u64],
    at: usize,
    /// Whether the instructions since the last gap may be several places in what ran.
    after_gap: bool,
    /// The position of the gap, and the instructions since.
    gap_at: usize,
    since_gap: Vec<u64>,
    opinion: Opinion,
}

/// Instructions after a gap that occur only once in what ran: programs repeat themselves.
const CERTAIN: usize = 4_000_000;

impl<'e> Comparison<'e> {
    pub(crate) fn new(expected: &'e [u64]) -> Comparison<'e> {
        Comparison {
            expected,
            at: 0,
            after_gap: false,
            gap_at: 0,
            since_gap: Vec::new(),
            opinion: Opinion::default(),
        }
    }

    /// The opinion, if what is at the end may be hidden by a gap.
    pub(crate) fn spoilt(self) -> Opinion {
        self.opinion
    }

    /// Finds the next place after the gap where the instructions since may have run.
    fn resume(&mut self) {
        let skipped = self.at.saturating_sub(self.since_gap.len() - 1);
        let from = if self.since_gap.len() == 1 { self.gap_at } else { skipped + 1 };
        let windows = self.expected[from.min(self.expected.len())..].windows(self.since_gap.len());
        match windows.into_iter().position(|window| window == self.since_gap) {
            Some(ahead) => self.at = from + ahead + self.since_gap.len(),
            None => {
                let difference = format!("no place after the gap at instruction {} fits", self.gap_at);
                self.opinion.difference.get_or_insert(difference);
                (self.at, self.after_gap) = (self.expected.len(), false);
            }
        }
    }

    /// The opinion, at the end of the stream.
    fn end(self) -> Opinion {
        let Comparison { expected, at, after_gap, since_gap, mut opinion, .. } = self;
        // A gap may last to the end.
        let is_hidden = after_gap && since_gap.is_empty();
        if opinion.difference.is_none() && at != expected.len() && !is_hidden {
            opinion.difference = Some(format!("{at} instructions of {}", expected.len()));
        }
        opinion
    }
}

impl Sink for Comparison<'_> {
    fn executed(&mut self, executed: Executed<'_>) {
        for address in executed.addresses() {
            if self.after_gap {
                self.since_gap.push(address);
                if self.expected.get(self.at) != Some(&address) {
                    self.resume();
                    continue;
                }
                self.after_gap = self.since_gap.len() < CERTAIN;
            }
            if self.expected.get(self.at) == Some(&address) {
                self.opinion.equal += 1;
            } else if self.opinion.difference.is_none() {
                let expected = self.expected.get(self.at);
                self.opinion.difference =
                    Some(format!("instruction {}: {address:x}, not {expected:x?}", self.at));
            }
            self.at += 1;
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Gap(gap) => {
                self.after_gap = true;
                self.since_gap.clear();
                self.gap_at = self.at;
                match gap.trouble {
                    Trouble::Ambiguous { .. } => self.opinion.ambiguous += 1,
                    trouble => self.opinion.gaps.push(format!("instruction {}: {trouble}", self.at)),
                }
            }
            Event::Asynchronous { .. } => self.opinion.traps += 1,
            _ => {}
        }
    }
}

/// Counts instructions.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn executed(&mut self, executed: Executed<'_>) {
        self.0 += executed.lengths.len() as u64;
    }

    fn event(&mut self, _: Event) {}
}

/// The code of an account, as a decoder needs it.
pub(crate) fn address_space(account: &Account) -> AddressSpace<'_> {
    space_of(&account.code)
}

/// Code by address.
pub(crate) fn space_of(code: &BTreeMap<u64, Vec<u8>>) -> AddressSpace<'_> {
    let mut space = AddressSpace::new();
    for (&address, bytes) in code {
        let content = Content { bytes, origin: Origin { module: 0, offset: address } };
        space.map(address..address + bytes.len() as u64, content, 0);
    }
    space
}

/// Decodes a stream as a whole, or cut at every `cut`-th synchronization point.
pub(crate) fn compare(
    stream: &[u8],
    configuration: &Configuration,
    space: &AddressSpace<'_>,
    expected: &[u64],
    cut: Option<usize>,
) -> Opinion {
    let points = synchronization_points(stream, configuration);
    let mut chosen: Vec<SynchronizationPoint> = match cut {
        Some(cut) => points.iter().copied().step_by(cut).collect(),
        None => Vec::new(),
    };
    // Decoding begins at the first byte.
    let begin = SynchronizationPoint { at: 0, options: Default::default() };
    if chosen.first().is_none_or(|first| first.at != 0) {
        chosen.insert(0, begin);
    }
    let mut comparison = Comparison::new(expected);
    let mut program = Program::new(space, &NoLabels);
    for (index, point) in chosen.iter().enumerate() {
        let end = chosen.get(index + 1).map_or(stream.len(), |next| next.at);
        Decoder::new(stream, point.at..end, configuration, point.options)
            .decode(&mut program, &mut comparison);
    }
    comparison.end()
}

/// Decodes a stream of N-Trace as a whole, or cut at every `cut`-th synchronization message.
pub(crate) fn compare_messages(
    stream: &[u8],
    configuration: &ntrace::Configuration,
    space: &AddressSpace<'_>,
    expected: &[u64],
    cut: Option<usize>,
) -> Opinion {
    let points = ntrace::synchronization_points(stream, configuration);
    let mut chosen = vec![0];
    if let Some(cut) = cut {
        chosen.extend(points.into_iter().skip(1).step_by(cut));
    }
    let mut comparison = Comparison::new(expected);
    let mut program = Program::new(space, &NoLabels);
    let begin = Instant::now();
    for (index, &point) in chosen.iter().enumerate() {
        let end = chosen.get(index + 1).copied().unwrap_or(stream.len());
        ntrace::Decoder::new(stream, point..end, configuration).decode(&mut program, &mut comparison);
    }
    comparison.opinion.took = begin.elapsed();
    comparison.end()
}

/// Decodes a stream twice, and returns how long the second time took.
pub(crate) fn time(
    stream: &[u8],
    configuration: &Configuration,
    space: &AddressSpace<'_>,
) -> (u64, Duration) {
    let mut program = Program::new(space, &NoLabels);
    let mut timed = (0, Duration::ZERO);
    for _ in 0..2 {
        let mut count = Count::default();
        let begin = Instant::now();
        Decoder::new(stream, 0..stream.len(), configuration, Default::default())
            .decode(&mut program, &mut count);
        timed = (count.0, begin.elapsed());
    }
    timed
}
