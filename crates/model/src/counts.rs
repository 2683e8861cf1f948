//! Counts of events: items that are cheaper than the events themselves.

use hodo_clock::OriginNanos;

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountInterest {
    /// Nothing.
    #[default]
    None,
    /// The events of each stream.
    Streams,
    /// The events of each stream in spans of time, which are this many nanoseconds wide, or as suits the trace.
    Bins(Option<u64>),
}

/// A span of time that begins at a multiple of its width from the clock's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Which multiple.
    pub number: i128,
    /// Nanoseconds.
    pub width: i128,
}

/// What was counted in a stream, or in a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a> {
    /// Indices of the trace and of the stream in it.
    pub stream: (u32, u32),
    /// The stream's name.
    pub name: &'a str,
    /// Names of events, and how many there were of each.
    pub events: &'a [(&'a str, u64)],
    /// Events that the tracer lost.
    pub events_lost: u64,
    /// Packets that the tracer lost.
    pub packets_lost: u64,
    /// The times of the first event and of the last.
    pub span: Option<(OriginNanos, OriginNanos)>,
    /// The span of time that the events lie in; `None` for events without a time.
    pub bin: Option<Bin>,
    /// How wide spans of time are; 0 where they are not asked for.
    pub width: i128,
}
