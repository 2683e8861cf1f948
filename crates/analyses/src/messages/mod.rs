//! `messages`: how many messages did each program send to each other, and how long did they take?
//!
//! A message is a `msg_send` and the next `msg_recv` with the same `id`, of any traces of the input. If the clocks of two
//! traces are uncertain, so are its durations; one that was received before it was sent counts as unmatched.

mod each;

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, Description, FinishContext, FlowLoop, Interest, Item, LaneValue, Lanes, Made, Report,
    Shape, Start, Table,
    kernel::{Kind, Threads, field},
    only,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::{duration_cells, duration_columns, most_first},
    durations::{Add, Durations},
    pairs::{Pairs, Unpaired},
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Messages;

pub use each::EachMessage;

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "messages",
            help: "boards: how many messages went from whom to whom, and how long they took",
            views: &["pair", "message"],
            lanes: Some(Lanes {
                view: "message",
                title: "messages",
                lane: &["from"],
                value: LaneValue::Lane(&["to"]),
                path: &["Boards", "{from}"],
            }),
            ..Description::EMPTY
        },
        make: |parameters| match parameters.view() {
            "message" => Made::of_events(EachMessage),
            _ => Made::of_events(Messages),
        },
    }
}

/// A time in a trace.
type TraceTime = (Nanos, u32);

/// The messages of some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MessagesPartial {
    pairs: Pairs<TraceTime, TraceTime>,
    /// By index of the sender's and of the receiver's trace.
    sums: BTreeMap<(u32, u32), Durations>,
    /// Names of traces.
    names: BTreeMap<u32, String>,
}

fn add(sums: &mut BTreeMap<(u32, u32), Durations>, (sent, from): TraceTime, (received, to): TraceTime) {
    sums.entry((from, to)).or_default().see(received.0.saturating_sub(sent.0));
}

fn interest() -> Interest<'static> {
    use field::message::ID;
    Interest::events(const { &[(Kind::MessageSend, &[ID]), (Kind::MessageReceive, &[ID])] }).without_threads()
}

/// Adds an event to the pairs, and reports the message that it completes.
fn event(
    item: Item<'_>,
    pairs: &mut Pairs<TraceTime, TraceTime>,
    names: &mut BTreeMap<u32, String>,
    complete: impl FnOnce(TraceTime, TraceTime),
) {
    let Item::Event(event) = item else { return };
    let Some(id) = event.integer(field::message::ID).map(|id| id as u64) else { return };
    let trace_time = (event.time, event.trace());
    match event.kind {
        Kind::MessageSend => pairs.begin(id, trace_time),
        Kind::MessageReceive => {
            if let Some((sent, received)) = pairs.end(id, trace_time) {
                complete(sent, received);
            }
        }
        _ => return,
    }
    names.entry(event.trace()).or_insert_with(|| event.trace_name().to_owned());
}

impl Analysis for Messages {
    type Partial = MessagesPartial;

    fn interest(&self) -> Interest<'_> {
        interest()
    }

    fn begin(&self, start: &Start<'_>) -> MessagesPartial {
        MessagesPartial { pairs: Pairs::new(start.is_first), ..MessagesPartial::default() }
    }

    fn fold(&self, partial: &mut MessagesPartial, item: Item<'_>) {
        let MessagesPartial { pairs, sums, names } = partial;
        event(item, pairs, names, |sent, received| add(sums, sent, received));
    }

    fn merge(&self, mut earlier: MessagesPartial, later: MessagesPartial, _: &Threads) -> MessagesPartial {
        let MessagesPartial { pairs, sums, names } = &mut earlier;
        later.sums.into_iter().for_each(|(pair, durations)| sums.entry(pair).or_default().add(durations));
        pairs.add(later.pairs, |sent, received| add(sums, sent, received));
        later.names.into_iter().for_each(|(trace, name)| _ = names.entry(trace).or_insert(name));
        earlier
    }

    fn finish(&self, partials: Vec<MessagesPartial>, _: &FinishContext<'_>) -> Table {
        let MessagesPartial { pairs, sums, names } = only(partials);
        let Unpaired { unmatched, unfinished } = pairs.left();
        let summary = vec![
            ("messages", sums.values().map(|durations| durations.count).sum::<u64>().into()),
            ("unmatched", unmatched.into()),
            ("unfinished", unfinished.into()),
        ];
        let mut columns =
            vec![Column::name("from"), Column::name("to"), Column::integer("count", hodo_model::Unit::Count)];
        columns.extend(duration_columns());
        let name = |trace: u32| names.get(&trace).map(String::as_str);
        let rows = sums.into_iter().map(|((from, to), durations)| {
            let mut row = vec![name(from).into(), name(to).into(), durations.count.into()];
            row.extend(duration_cells(&durations));
            ((durations.total, (from, to)), row)
        });
        Table::new("messages", Shape::Counters, summary, columns, most_first(rows))
    }
}
