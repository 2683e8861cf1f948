//! The settings for reading traces: how they are cut, and what is selected.

use std::ops::RangeInclusive;

use hodo_clock::{Nanos, OriginNanos, Tsc};

use crate::{
    flow::selection_filter::{ChunkSelection, Numbers, Spans},
    parallel::share,
};

/// A window of time: ticks of a recording's clock, or nanoseconds on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<T> {
    /// Its beginning, inclusive; `None` is no limit.
    pub from: Option<T>,
    /// Its end, exclusive; `None` is no limit.
    pub to: Option<T>,
}

impl<T> Window<T> {
    /// All times, also unknown ones.
    pub const ALL: Window<T> = Window { from: None, to: None };

    /// Returns whether it is not limited.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

impl<T: PartialOrd> Window<T> {
    /// Returns whether a time is in the window.
    #[inline]
    pub fn contains(&self, time: T) -> bool {
        !self.begins_after(&time) && !self.ends_by(&time)
    }

    /// Returns whether a time is before the window.
    #[inline]
    pub fn begins_after(&self, time: &T) -> bool {
        self.from.as_ref().is_some_and(|from| time < from)
    }

    /// Returns whether a time is after the window.
    #[inline]
    pub fn ends_by(&self, time: &T) -> bool {
        self.to.as_ref().is_some_and(|to| time >= to)
    }
}

/// How traces are cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// A share of what is left for each thread: large chunks first and small ones last, so that all threads finish
    /// together.
    Default,
    /// About this many bytes of trace; of events, from any streams.
    Bytes(u64),
    /// This much time, for events only. Busy periods make larger chunks.
    Time(Nanos),
    /// One chunk per stream, only for work that does not need the streams of events merged.
    Streams,
}

impl Chunks {
    /// Returns after how many bytes a chunk ends, if that is what ends it. `left` bytes remain for `threads` threads;
    /// `limits` are the smallest and largest share.
    pub(crate) fn bytes(self, left: u64, threads: usize, limits: RangeInclusive<u64>) -> Option<u64> {
        match self {
            Chunks::Default => Some(share(left, threads, limits)),
            Chunks::Bytes(bytes) => Some(bytes.max(1)),
            Chunks::Time(_) | Chunks::Streams => None,
        }
    }
}

/// The settings for reading traces with times of type `T`: ticks for control flow, nanoseconds for events.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a, T = Tsc> {
    /// Number of threads that decode.
    pub threads: usize,
    /// The chunks.
    pub chunks: Chunks,
    /// The time to select.
    pub window: Window<T>,
    /// Numbers of the chunks' first instructions, if needed; of control flow only.
    pub numbers: Option<&'a Numbers>,
    /// Parts of the threads to select, which need `numbers`; everything if `None`.
    pub spans: Option<&'a Spans>,
    /// Whether to leave out chunks without a selected span: only the number of their instructions is reported.
    pub skims: bool,
    /// Whether a chunk with a selected span is selected as a whole, if [`Reading::skims`]. It is decoded faster, and whoever
    /// receives it chooses by the numbers of instructions.
    pub keeps_whole_chunks: bool,
    /// Whether to memoize the effect of packets, which is faster and does not change the results.
    pub memo: bool,
}

/// The settings for reading events.
pub type EventReading = Reading<'static, OriginNanos>;

impl<T> Reading<'_, T> {
    /// Reads everything.
    pub fn new(threads: usize, chunks: Chunks) -> Self {
        let (skims, keeps_whole_chunks, memo) = (false, false, true);
        Reading {
            threads,
            chunks,
            window: Window::ALL,
            numbers: None,
            spans: None,
            skims,
            keeps_whole_chunks,
            memo,
        }
    }

    /// Returns how much of a chunk the spans select, if chunks without a selected span are left out.
    pub(crate) fn selects(&self, chunk: usize) -> ChunkSelection {
        let Some((numbers, spans)) = self.numbers.zip(self.spans).filter(|_| self.skims) else {
            return ChunkSelection::Unknown;
        };
        match numbers.selected(chunk, spans) {
            ChunkSelection::Part if self.keeps_whole_chunks => ChunkSelection::All,
            selected => selected,
        }
    }

    /// Returns whether everything in the chunks is selected.
    pub(crate) fn is_of_all(&self) -> bool {
        self.window.is_all() && self.spans.is_none()
    }
}

impl EventReading {
    /// Returns whether an item at this time is selected; one without a time is if there is no limit.
    #[inline]
    pub fn wants(&self, time: Option<OriginNanos>) -> bool {
        time.map_or(self.window.is_all(), |time| self.window.contains(time))
    }
}
