//! `messages --by message`: each message, from whom to whom.

use std::collections::BTreeMap;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Column, FinishContext, Heading, Interest, Item, Shape, Start, Table, TableBuilder, Value,
    kernel::Threads, only,
};
use serde::{Deserialize, Serialize};

use super::{TraceTime, event, interest};
use crate::{
    columns::interval_columns,
    pairs::{Pairs, Unpaired},
    settling::SettlingRows,
};

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct EachMessage;

/// A message without the time of its receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct MessageRow {
    /// The trace of the sender.
    from: u32,
    /// The trace of the receiver.
    to: u32,
    sent: Nanos,
}

/// The messages of some events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MessageList {
    pairs: Pairs<TraceTime, TraceTime>,
    rows: SettlingRows<MessageRow>,
    /// Names of traces.
    names: BTreeMap<u32, String>,
}

fn see(rows: &mut SettlingRows<MessageRow>, (sent, from): TraceTime, (received, to): TraceTime) {
    rows.see(received, MessageRow { from, to, sent });
}

impl Analysis for EachMessage {
    type Partial = MessageList;

    fn interest(&self) -> Interest<'_> {
        interest()
    }

    fn begin(&self, start: &Start<'_>) -> MessageList {
        MessageList { pairs: Pairs::new(start.is_first), ..MessageList::default() }
    }

    fn fold(&self, partial: &mut MessageList, item: Item<'_>) {
        let MessageList { pairs, rows, names } = partial;
        event(item, pairs, names, |sent, received| see(rows, sent, received));
    }

    fn merge(&self, mut earlier: MessageList, later: MessageList, _: &Threads) -> MessageList {
        let MessageList { pairs, rows, names } = &mut earlier;
        pairs.add(later.pairs, |sent, received| see(rows, sent, received));
        rows.add(later.rows, |row| row);
        later.names.into_iter().for_each(|(trace, name)| _ = names.entry(trace).or_insert(name));
        earlier
    }

    fn heading(&self) -> Option<Heading> {
        let mut columns = interval_columns().to_vec();
        columns.extend([Column::name("from"), Column::name("to")]);
        Some(Heading { name: "messages", shape: Shape::Intervals, columns })
    }

    fn settle(&self, partial: &mut MessageList, context: &FinishContext<'_>, rows: &mut TableBuilder) {
        let settled = partial.rows.settle(context.span.1);
        partial.rows.settled += add_rows(&partial.names, settled, rows);
    }

    fn finish(&self, partials: Vec<MessageList>, _: &FinishContext<'_>) -> Table {
        let mut whole = only(partials);
        let mut rows = self.heading().expect("rows that settle have a heading").builder();
        let rest = whole.rows.rest();
        let count = whole.rows.settled + add_rows(&whole.names, rest, &mut rows);
        let Unpaired { unmatched, unfinished } = whole.pairs.left();
        rows.finish(vec![
            ("messages", count.into()),
            ("unmatched", unmatched.into()),
            ("unfinished", unfinished.into()),
            ("left_out", whole.rows.left_out.into()),
        ])
    }
}

/// Adds messages in the order of their receipt. Returns how many.
fn add_rows(
    names: &BTreeMap<u32, String>,
    mut messages: Vec<(Nanos, MessageRow)>,
    rows: &mut TableBuilder,
) -> u64 {
    messages.sort_unstable();
    let name = |trace: &u32| Value::from(names.get(trace).map(String::as_str));
    for (received, MessageRow { from, to, sent }) in &messages {
        let row = [sent.0.into(), received.0.saturating_sub(sent.0).into(), name(from), name(to)];
        rows.row(row.iter().map(Value::cell));
    }
    messages.len() as u64
}
