//! How many events there are over time.

use std::collections::BTreeMap;

use hodo_clock::OriginNanos;
use hodo_formats::ctf::Item;
use hodo_trace::{Column, Loss, Shape, Table, Unit, Value};

use super::{
    EventReading, EventTraces,
    counts::{Figures, per_second, time},
    filter::{Filter, Wanted},
    runs::{Run, each_run},
};
use crate::Losses;

/// Bins where nobody says how wide they are: about as many as a screen has lines.
const BINS: i128 = 20;
/// The most bins that somebody may ask for.
pub const MOST_BINS: i128 = 1 << 20;

/// A bin: events, and what was lost.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    events: u64,
    events_lost: u64,
    packets_lost: u64,
}

/// What was counted in a run.
#[derive(Default)]
struct Counted {
    bins: BTreeMap<i128, Bin>,
    /// Events that have no time.
    untimed: u64,
    span: Option<(OriginNanos, OriginNanos)>,
    losses: Vec<Loss>,
}

/// Counts the wanted events in spans of time of one width, which begin at multiples of it from the clock's origin.
/// `None` where there would be more than [`MOST_BINS`]. `progress` is told the bytes that were read, and returns
/// whether to go on.
pub fn count_over_time(
    traces: &EventTraces<'_>,
    wanted: &Wanted,
    width: Option<u64>,
    reading: &EventReading,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Option<Table> {
    let (first, last) = traces.span().unwrap_or_default();
    let from = reading.from.map_or(first, |from| from.max(first));
    let length = reading.to.map_or(last, |to| to.min(last)).0 - from.0;
    let width = width.map_or_else(|| usual(length), i128::from);
    if length / width > MOST_BINS {
        return None;
    }
    let filter = Filter::new(traces, wanted);
    let mut total = Counted::default();
    let mut losses = Losses::default();
    traces.loss().into_iter().for_each(|loss| losses.add(loss));
    let mut done = 0;
    each_run(
        traces,
        reading,
        |run| count(run, &filter, reading, width),
        |run, counted: Counted| {
            for (number, bin) in counted.bins {
                let own = total.bins.entry(number).or_default();
                own.events += bin.events;
                own.events_lost = own.events_lost.saturating_add(bin.events_lost);
                own.packets_lost = own.packets_lost.saturating_add(bin.packets_lost);
            }
            total.untimed += counted.untimed;
            counted.span.into_iter().for_each(|(first, last)| {
                total.see(first);
                total.see(last);
            });
            counted.losses.into_iter().for_each(|loss| losses.add(loss));
            done += run.bytes;
            progress(done)
        },
    );
    let streams = traces.traces.iter().map(|trace| trace.streams.len() as u64).sum();
    Some(table(&total, width, streams, losses))
}

/// A width of 1, 2 or 5 times a power of ten, of which the length takes at most [`BINS`].
fn usual(length: i128) -> i128 {
    let widths = (0..30).flat_map(|power| [1, 2, 5].map(|of| of * 10i128.pow(power)));
    widths.into_iter().find(|width| width * BINS >= length).unwrap_or(i128::MAX)
}

fn count(run: &Run<'_, '_>, filter: &Filter, reading: &EventReading, width: i128) -> Counted {
    let mut counted = Counted::default();
    let mut cursor = run.cursor();
    // The bin in hand: most events are of that of the one before.
    let (mut number, mut bin) = (0, Bin::default());
    while let Some((time, item)) = cursor.next_item() {
        if !reading.wants(time) {
            continue;
        }
        if let Some(time) = time
            && time.0.div_euclid(width) != number
        {
            counted.put(number, std::mem::take(&mut bin));
            number = time.0.div_euclid(width);
        }
        match item {
            Item::Event(parts) if filter.wants(run.trace, run.stream, &cursor.event(parts)) => match time {
                Some(time) => {
                    bin.events += 1;
                    counted.see(time);
                }
                None => counted.untimed += 1,
            },
            Item::Event(_) => {}
            Item::Lost(lost) => {
                let sum = if lost.packets { &mut bin.packets_lost } else { &mut bin.events_lost };
                *sum = sum.saturating_add(lost.count);
            }
        }
    }
    counted.put(number, bin);
    counted.losses = cursor.loss;
    counted
}

impl Counted {
    fn put(&mut self, number: i128, bin: Bin) {
        if bin.events > 0 || bin.events_lost > 0 || bin.packets_lost > 0 {
            let own = self.bins.entry(number).or_default();
            own.events += bin.events;
            own.events_lost = own.events_lost.saturating_add(bin.events_lost);
            own.packets_lost = own.packets_lost.saturating_add(bin.packets_lost);
        }
    }

    #[inline]
    fn see(&mut self, time: OriginNanos) {
        self.span = Some(self.span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
    }
}

fn table(total: &Counted, width: i128, streams: u64, losses: Losses) -> Table {
    let sum = |of: fn(&Bin) -> u64| total.bins.values().map(of).fold(0, u64::saturating_add);
    let figures = Figures {
        events_lost: sum(|bin| bin.events_lost),
        packets_lost: sum(|bin| bin.packets_lost),
        span: total.span,
    };
    let mut summary = figures.summary(sum(|bin| bin.events) + total.untimed, streams);
    summary.push(("untimed", total.untimed.into()));
    summary.push(("width_ns", time(Some(OriginNanos(width)))));
    let ends = total.bins.first_key_value().zip(total.bins.last_key_value());
    let (first, last) = ends.map_or((0, -1), |(first, last)| (*first.0, *last.0));
    let row = |number: i128, bin: &Bin| -> Vec<Value> {
        let rate = per_second(bin.events, width);
        let begin = time(Some(OriginNanos(number * width)));
        vec![begin, bin.events.into(), rate, bin.events_lost.into(), bin.packets_lost.into()]
    };
    // Times in damaged packets may lie anywhere; then only bins that have something are told.
    let rows = if last - first <= MOST_BINS {
        (first..=last)
            .map(|number| row(number, &total.bins.get(&number).copied().unwrap_or_default()))
            .collect()
    } else {
        total.bins.iter().map(|(number, bin)| row(*number, bin)).collect()
    };
    let columns = vec![
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("count", Unit::Count),
        Column::integer("per_second", Unit::Count),
        Column::integer("events_lost", Unit::Count),
        Column::integer("packets_lost", Unit::Count),
    ];
    Table { name: "count", shape: Shape::Points, summary, columns, rows, loss: losses.into_list() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_of_round_widths_and_few() {
        for (length, width) in [(0, 1), (20, 1), (21, 2), (41, 5), (1_000_000_007, 100_000_000)] {
            assert_eq!(usual(length), width);
        }
    }
}
