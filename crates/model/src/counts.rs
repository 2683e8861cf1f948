//! Counts of events: items that are cheaper than the events themselves.

use hodo_clock::OriginNanos;

/// The counts that an analysis reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountInterest {
    /// Nothing.
    #[default]
    None,
    /// The events of each stream.
    Streams,
    /// The events of each stream per bin. The width is this many nanoseconds, or chosen to suit the trace.
    Bins(Option<u64>),
}

/// A time interval that begins at a multiple of its width, counted from the clock's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// The multiple.
    pub number: i128,
    /// The width in nanoseconds.
    pub width: i128,
}

/// Event counts of a stream or of a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a> {
    /// Index of the trace, and index of the stream in it.
    pub stream: (u32, u32),
    /// The stream's name.
    pub name: &'a str,
    /// Event names with the count of each.
    pub events: &'a [(&'a str, u64)],
    /// Number of events that the tracer lost.
    pub events_lost: u64,
    /// Number of packets that the tracer lost.
    pub packets_lost: u64,
    /// Times of the first and the last event.
    pub span: Option<(OriginNanos, OriginNanos)>,
    /// The bin of the events; `None` for events without a timestamp.
    pub bin: Option<Bin>,
    /// The width of bins in nanoseconds; 0 if no bins are requested.
    pub width: i128,
}
