//! Counts over time.

use std::collections::{BTreeMap, BTreeSet};

use hodo_clock::OriginNanos;
use hodo_model::{
    Analysis, Column, CountInterest, FinishContext, Interest, Item, Shape, Start, Table, Unit, Value,
    kernel::Threads, only,
};
use serde::{Deserialize, Serialize};

use super::{LossesAndTimes, per_second, time};

/// Maximum number of rows including empty ones; with more, empty rows are omitted.
const MOST_ROWS: i128 = 1 << 20;

/// Event counts per time span.
#[derive(Clone, Copy, Debug)]
pub struct CountOverTime {
    /// The width of spans in nanoseconds; by default it suits the trace.
    pub width: Option<u64>,
}

/// The counts of a time span: events and losses.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct CountBin {
    events: u64,
    events_lost: u64,
    packets_lost: u64,
}

/// Counts by span.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CountBins {
    width: i128,
    bins: BTreeMap<i128, CountBin>,
    untimed: u64,
    losses: LossesAndTimes,
    streams: BTreeSet<(u32, u32)>,
}

impl CountBins {
    fn add(&mut self, number: i128, bin: CountBin) {
        let own = self.bins.entry(number).or_default();
        own.events += bin.events;
        own.events_lost = own.events_lost.saturating_add(bin.events_lost);
        own.packets_lost = own.packets_lost.saturating_add(bin.packets_lost);
    }
}

impl Analysis for CountOverTime {
    type Partial = CountBins;

    fn interest(&self) -> Interest<'_> {
        Interest::counts(CountInterest::Bins(self.width))
    }

    fn begin(&self, _: &Start<'_>) -> CountBins {
        CountBins::default()
    }

    fn fold(&self, partial: &mut CountBins, item: Item<'_>) {
        let Item::Counts(counts) = item else { return };
        let events = counts.events.iter().map(|(_, count)| count).sum();
        partial.streams.insert(counts.stream);
        partial.width = partial.width.max(counts.width);
        partial.losses.add(LossesAndTimes::of(counts));
        match counts.bin {
            Some(bin) => {
                let (events_lost, packets_lost) = (counts.events_lost, counts.packets_lost);
                partial.add(bin.number, CountBin { events, events_lost, packets_lost });
            }
            None => partial.untimed += events,
        }
    }

    fn merge(&self, mut earlier: CountBins, later: CountBins, _: &Threads) -> CountBins {
        later.bins.into_iter().for_each(|(number, bin)| earlier.add(number, bin));
        earlier.width = earlier.width.max(later.width);
        earlier.untimed += later.untimed;
        earlier.losses.add(later.losses);
        earlier.streams.extend(later.streams);
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, partials: Vec<CountBins>, _: &FinishContext<'_>) -> Table {
        let CountBins { width, bins, untimed, losses, streams } = only(partials);
        let events: u64 = bins.values().map(|bin| bin.events).sum();
        let mut summary = losses.summary(events + untimed, streams.len() as u64);
        summary.push(("untimed", untimed.into()));
        summary.push(("width_ns", time(Some(OriginNanos(width)))));
        let ends = bins.first_key_value().zip(bins.last_key_value());
        let (first, last) = ends.map_or((0, -1), |(first, last)| (*first.0, *last.0));
        let row = |number: i128, bin: &CountBin| -> Vec<Value> {
            let rate = per_second(bin.events, width);
            let begin = time(Some(OriginNanos(number.saturating_mul(width))));
            vec![begin, bin.events.into(), rate, bin.events_lost.into(), bin.packets_lost.into()]
        };
        // Times in damaged packets may lie anywhere; then empty spans have no rows.
        let rows: Vec<Vec<Value>> = if last.saturating_sub(first) <= MOST_ROWS {
            (first..=last)
                .map(|number| row(number, &bins.get(&number).copied().unwrap_or_default()))
                .collect()
        } else {
            bins.iter().map(|(number, bin)| row(*number, bin)).collect()
        };
        let columns = vec![
            Column::signed("begin_ns", Unit::Nanoseconds),
            Column::integer("count", Unit::Count),
            Column::integer("per_second", Unit::Count),
            Column::integer("events_lost", Unit::Count),
            Column::integer("packets_lost", Unit::Count),
        ];
        Table::new("count", Shape::Points, summary, columns, rows)
    }
}
