//! `lost`: what did the tracer lose, in which streams, and when?
//!
//! A gap is a span of time in which a stream lost events or packets. Events are lost between the end of a packet and
//! the end of the next packet; packets are lost between the end of a packet and the begin of the next. The exact times
//! within a gap are unknown.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, Made, Report, Shape, Start,
    Table, Unit, Value,
    kernel::{Kind, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::{most_first, share},
    durations::{Add, Durations, LongItem, Longest, add_fields},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Lost<const ALL: bool>;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "lost",
            help: "software events: events and packets lost by the tracer, by stream and time",
            views: &["stream", "longest", "interval"],
            in_all: true,
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "interval" => Made::of_events(Lost::<true>),
            _ => Made::of_events(Lost::<false>),
        },
    }
}

/// The losses of a stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StreamLosses {
    events: u64,
    packets: u64,
    gaps: Durations,
}

add_fields!(StreamLosses { events, packets, gaps });

/// A gap of a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct StreamGap {
    stream: String,
    events: u64,
    packets: u64,
}

/// The losses after some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamsLost<const ALL: bool> {
    streams: BTreeMap<String, StreamLosses>,
    longest: Longest<StreamGap, ALL>,
}

impl<const ALL: bool> Analysis for Lost<ALL> {
    type Partial = StreamsLost<ALL>;

    fn interest(&self) -> Interest<'_> {
        use field::lost::{BEGIN, COUNT, END, PACKETS, STREAM};
        Interest::events(&[(Kind::Lost, &[COUNT, PACKETS, BEGIN, END, STREAM])]).without_threads()
    }

    fn begin(&self, _: &Start<'_>) -> StreamsLost<ALL> {
        StreamsLost::default()
    }

    fn fold(&self, partial: &mut StreamsLost<ALL>, item: Item<'_>) {
        let Item::Event(event) = item else { return };
        let number = |field| event.integer(field).unwrap_or(0) as u64;
        if event.kind != Kind::Lost {
            return;
        }
        let stream = String::from_utf8_lossy(event.text(field::lost::STREAM).unwrap_or_default());
        let count = number(field::lost::COUNT);
        let (events, packets) = if number(field::lost::PACKETS) == 0 { (count, 0) } else { (0, count) };
        let (begin, end) = (number(field::lost::BEGIN), number(field::lost::END));
        let length = end.saturating_sub(begin);
        let mut gaps = Durations::default();
        gaps.see(length);
        let own = partial.streams.entry(stream.clone().into_owned()).or_default();
        own.add(StreamLosses { events, packets, gaps });
        partial.longest.see(length, Nanos(begin), StreamGap { stream: stream.into_owned(), events, packets });
    }

    fn merge(&self, mut earlier: StreamsLost<ALL>, later: StreamsLost<ALL>, _: &Threads) -> StreamsLost<ALL> {
        for (stream, figures) in later.streams {
            earlier.streams.entry(stream).or_default().add(figures);
        }
        earlier.longest.add(later.longest);
        earlier
    }

    fn is_commutative(&self) -> bool {
        true
    }

    fn finish(&self, partials: Vec<StreamsLost<ALL>>, context: &FinishContext<'_>) -> Table {
        let whole = only(partials);
        let mut summary = vec![
            ("streams_with_loss", (whole.streams.len() as u64).into()),
            ("gaps", whole.streams.values().map(|losses| losses.gaps.count).sum::<u64>().into()),
            ("duration_ns", context.span.1.0.saturating_sub(context.span.0.0).into()),
        ];
        let (shape, columns, rows) = match context.selection.view.as_str() {
            "interval" => (Shape::Intervals, longest_columns(), longest(&whole)),
            "longest" => {
                summary.extend(whole.longest.note());
                (Shape::Intervals, longest_columns(), longest(&whole))
            }
            _ => (Shape::Counters, stream_columns(), by_stream(whole, context)),
        };
        Table::new("lost", shape, summary, columns, rows)
    }
}

fn stream_columns() -> Vec<Column> {
    vec![
        Column::name("stream"),
        Column::integer("events", Unit::Count),
        Column::integer("packets", Unit::Count),
        Column::integer("gaps", Unit::Count),
        Column::integer("total_ns", Unit::Nanoseconds),
        Column::real("share", Unit::Share),
        Column::integer("max_ns", Unit::Nanoseconds),
    ]
}

fn by_stream<const ALL: bool>(whole: StreamsLost<ALL>, context: &FinishContext<'_>) -> Vec<Vec<Value>> {
    let length = context.span.1.0.saturating_sub(context.span.0.0);
    let rows = whole.streams.into_iter().map(|(stream, figures)| {
        let StreamLosses { events, packets, gaps } = figures;
        let row = vec![
            stream.as_str().into(),
            events.into(),
            packets.into(),
            gaps.count.into(),
            gaps.total.into(),
            share(gaps.total, length),
            gaps.max.into(),
        ];
        ((gaps.total, stream), row)
    });
    most_first(rows)
}

fn longest_columns() -> Vec<Column> {
    vec![
        Column::name("stream"),
        Column::integer("events", Unit::Count),
        Column::integer("packets", Unit::Count),
        Column::integer("duration_ns", Unit::Nanoseconds),
        Column::integer("begin_ns", Unit::Nanoseconds),
        Column::integer("end_ns", Unit::Nanoseconds),
    ]
}

fn longest<const ALL: bool>(whole: &StreamsLost<ALL>) -> Vec<Vec<Value>> {
    let rows = whole.longest.iter().map(|LongItem { length, begin, item }| {
        let end = begin.0.saturating_add(*length);
        vec![
            item.stream.as_str().into(),
            item.events.into(),
            item.packets.into(),
            (*length).into(),
            begin.0.into(),
            end.into(),
        ]
    });
    rows.collect()
}
