//! Counts events, and folds the counts as items of analyses.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_formats::events::{Cursor, Item as Read, Stream, Trace};
use hodo_model::{AnyAnalysis, AnyPartial, Bin, CountInterest, Counts, Item};

use super::{
    EventReading, Traces,
    count::{Counted, count_range},
    filter::{Filter, Wanted},
    ranges::{PacketRange, each_of, ranges},
};
use crate::losses::Losses;

/// Maximum number of time bins if no width is given: about the number of lines of a screen.
const BINS: i128 = 20;
/// Maximum number of time bins.
pub(crate) const MOST_BINS: i128 = 1 << 20;

/// The counts of a range of packets by time bin; `None` if bins are not requested, or for items without a time.
type ByBin = BTreeMap<Option<i128>, Counted>;

/// The events to count, and the width of the time bins.
pub(crate) struct Counting<'t> {
    filter: Option<Filter>,
    /// The width of a time bin in nanoseconds; 0 counts whole streams.
    width: i128,
    reading: &'t EventReading,
}

impl<'t> Counting<'t> {
    /// Prepares counting for an analysis; `None` if that needs more than [`MOST_BINS`] time bins.
    pub(crate) fn new(
        traces: &Traces<'_>,
        wanted: &Wanted,
        interest: CountInterest,
        reading: &'t EventReading,
    ) -> Option<Counting<'t>> {
        let (first, last) = traces.event_span().unwrap_or_default();
        let from = reading.window.from.map_or(first, |from| from.max(first));
        let length = (reading.window.to.map_or(last, |to| to.min(last)).0 - from.0).max(0);
        let width = match interest {
            CountInterest::Bins(width) => width.map_or_else(|| round_width(length), i128::from).max(1),
            CountInterest::Streams | CountInterest::None => 0,
        };
        let filter = (!wanted.is_all()).then(|| Filter::new(traces, wanted));
        (width == 0 || length / width <= MOST_BINS).then_some(Counting { filter, width, reading })
    }

    fn count(&self, range: &PacketRange<'_, '_>) -> ByBin {
        match self.width {
            0 => [(None, count_range(range, self.filter.as_ref(), self.reading))].into(),
            width => count_bins(range, self.filter.as_ref(), self.reading, width),
        }
    }
}

/// Returns the smallest width of 1, 2 or 5 times a power of ten that covers `length` in at most [`BINS`] bins.
fn round_width(length: i128) -> i128 {
    let widths = (0..30).flat_map(|power| [1, 2, 5].map(|factor| factor * 10i128.pow(power)));
    widths.into_iter().find(|width| width * BINS >= length).unwrap_or(i128::MAX)
}

/// Counts the events in the ranges of packets that `choose` selects, and folds them. `progress` receives the number of
/// bytes read so far, and returns whether to continue.
pub(crate) fn fold_counts<'t, 'a>(
    traces: &'t Traces<'a>,
    analysis: &dyn AnyAnalysis,
    counting: &Counting<'_>,
    choose: impl FnOnce(Vec<PacketRange<'t, 'a>>) -> Vec<PacketRange<'t, 'a>>,
    losses: &mut Losses,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> AnyPartial {
    let nothing = |trace: &Trace<'_>| trace.streams.iter().map(|_| ByBin::new()).collect();
    let mut sums: Vec<Vec<ByBin>> = traces.events.iter().map(nothing).collect();
    let mut done = 0;
    let ranges = choose(ranges(traces, counting.reading));
    each_of(
        traces,
        &ranges,
        counting.reading,
        |range| counting.count(range),
        |range, counted: ByBin| {
            let stream = &mut sums[range.trace_index][range.stream_index];
            for (bin, counted) in counted {
                stream.entry(bin).or_default().add(counted, losses);
            }
            done += range.bytes;
            progress(done)
        },
    );
    let mut partial = analysis.begin(&hodo_model::Start::default());
    for (trace_index, (trace, sums)) in traces.events.iter().zip(&sums).enumerate() {
        for (stream_index, counted) in sums.iter().enumerate() {
            let indices = (trace_index, stream_index);
            fold_stream(traces, trace, indices, counted, counting.width, analysis, &mut partial);
        }
    }
    partial
}

/// Folds the counts of a stream. A stream without counts is folded too, so that the analysis knows every stream.
fn fold_stream(
    traces: &Traces<'_>,
    trace: &Trace<'_>,
    (trace_index, stream_index): (usize, usize),
    counted: &ByBin,
    width: i128,
    analysis: &dyn AnyAnalysis,
    partial: &mut AnyPartial,
) {
    let stream: &Stream<'_> = &trace.streams[stream_index];
    let several = traces.events.len() > 1;
    let name = if several { format!("{}/{}", trace.name, stream.name) } else { stream.name.clone() };
    let nothing = [(None, Counted::default())].into();
    let counted = if counted.is_empty() { &nothing } else { counted };
    for (bin, counted) in counted {
        let classes = trace.stream_class(stream).events.iter().map(|class| class.name.as_str());
        let events: Vec<(&str, u64)> = classes.zip(counted.events.iter().copied()).collect();
        let counts = Counts {
            stream: (trace_index as u32, stream_index as u32),
            name: &name,
            events: &events,
            events_lost: counted.events_lost,
            packets_lost: counted.packets_lost,
            span: counted.span,
            bin: bin.map(|number| Bin { number, width }),
            width,
        };
        analysis.fold_item(partial, Item::Counts(&counts));
    }
}

/// Counts the events of a range by time bin.
fn count_bins(
    range: &PacketRange<'_, '_>,
    filter: Option<&Filter>,
    reading: &EventReading,
    width: i128,
) -> ByBin {
    let mut bins = ByBin::new();
    let mut cursor: Cursor<'_, '_> = range.cursor();
    // The current bin: most events are in the bin of the previous one.
    let (mut number, mut counted) = (None, Counted::new(range));
    while let Some((time, item)) = cursor.next_item() {
        if !reading.wants(time) {
            continue;
        }
        let own = time.map(|time: OriginNanos| time.0.div_euclid(width));
        if own != number {
            put(&mut bins, number, std::mem::replace(&mut counted, Counted::new(range)));
            number = own;
        }
        match item {
            Read::Event(parts) => {
                let is_wanted = filter.is_none_or(|filter| {
                    filter.wants(range.trace_index, range.stream_index, &cursor.event(parts))
                });
                if is_wanted {
                    counted.events[parts.class as usize] += 1;
                    counted.add_time(time);
                }
            }
            Read::Lost(lost) => counted.add_lost(&lost),
        }
    }
    put(&mut bins, number, counted);
    let rest = bins.entry(None).or_default();
    rest.losses = cursor.loss;
    bins
}

/// Adds the counts of a bin, unless they are all zero.
fn put(bins: &mut ByBin, number: Option<i128>, counted: Counted) {
    if counted.events_lost > 0 || counted.packets_lost > 0 || counted.events.iter().any(|&count| count > 0) {
        bins.entry(number).or_default().add(counted, &mut Losses::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_20_bins_of_a_round_width_cover_a_span() {
        for (length, width) in [(0, 1), (20, 1), (21, 2), (41, 5), (1_000_000_007, 100_000_000)] {
            assert_eq!(round_width(length), width);
        }
    }
}
