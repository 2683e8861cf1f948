//! The table of losses: what could not be read, and what tracers discarded.

use hodo_clock::{Nanos, OriginNanos};
use hodo_model::{Cause, Loss};
use hodo_store::{Error, Field, Kind, Schema, Shape, Writer};

use super::tables::naming;
use crate::traces::Traces;

/// Name of the table.
const LOSSES: &str = "losses";

/// Returns the events and packets that tracers discarded: a loss for each packet whose counters say so.
pub(super) fn discarded(traces: &Traces<'_>) -> Vec<Loss> {
    let mut losses = Vec::new();
    for stream in traces.events.iter().flat_map(|trace| &trace.streams) {
        let mut after = None;
        for packet in &stream.packets {
            let mut lose = |count, what: &str, from: Option<OriginNanos>, to: Option<OriginNanos>| {
                if count == 0 {
                    return;
                }
                let nanos =
                    |time: Option<OriginNanos>| time.and_then(|time| u64::try_from(time.0).ok()).map(Nanos);
                losses.push(Loss {
                    stream: stream.name.clone(),
                    cause: Cause::Truncated,
                    bytes: 0..0,
                    time: nanos(from.or(to)).zip(nanos(to.or(from))),
                    count,
                    detail: format!("{what} that the tracer discarded"),
                });
            };
            lose(packet.packets_lost, "packets", after, packet.begin);
            lose(packet.events_lost, "events", after.or(packet.begin), packet.end);
            after = packet.end;
        }
    }
    losses
}

/// Adds losses as intervals. A loss without a time gets the span of all records, and `has_place` is false.
pub(super) fn add<'l>(
    writer: &Writer,
    losses: impl Iterator<Item = &'l Loss>,
    span: (u64, u64),
) -> Result<(), Error> {
    let count = Field { unit: "count".to_owned(), ..Field::new("count", Kind::Integer) };
    let schema = Schema {
        name: LOSSES.to_owned(),
        shape: Shape::Intervals,
        key: vec![Field::new("stream", Kind::Name)],
        value: Field::new("cause", Kind::Name),
        columns: vec![count, Field::new("detail", Kind::Name), Field::new("has_place", Kind::Boolean)],
        naming: naming("what is missing", &["Losses", "{stream}"]),
    };
    let mut feed = writer.feed(writer.table(&schema)?);
    let span = (span.0.min(span.1), span.1);
    for loss in losses {
        let stream = if loss.stream.is_empty() { "whole input" } else { &loss.stream };
        let stream = feed.name(stream)?;
        let lane = feed.lane(&[Some(stream)])?;
        let (cause, detail) = (feed.name(loss.cause.name())?, feed.name(&loss.detail)?);
        let known = loss.time.map(|(begin, end)| (begin.0, end.0.max(begin.0)));
        let cells = [Some(loss.count), Some(detail), Some(known.is_some().into())];
        feed.push(lane, known.unwrap_or(span), Some(cause), &cells)?;
    }
    feed.flush()
}
