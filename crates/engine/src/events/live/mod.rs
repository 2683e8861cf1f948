//! Reads live sessions from LTTng's relay daemon.
//!
//! ```text
//! relay daemon ──Client──► packets, beacons ──Viewer──► streams, each known up to a time
//!                                                          │ up to the least of these times
//!                                          text, JSON ◄──Merge           counts ◄── each packet as it comes
//! ```
//!
//! A stream is known up to the end of its last packet; beacons extend that for idle streams. Events before the minimum
//! of these times are printed in order. Only new streams can have earlier events: these are printed late. No event is
//! dropped or printed twice.

mod address;
mod client;
mod stream;
mod viewer;

use std::{thread, time::Duration};

use hodo_formats::ctf::lttng_live::Session;
use hodo_model::{
    AnyAnalysis, CountInterest, FinishContext, NoSources, Selection, Start, Table, Value, kernel::Threads,
};

pub use address::LiveAddress;
pub use client::LiveError;

use super::{Counting, EventReading, Traces, Wanted, fold_counts, slices::Slice};
use crate::losses::Losses;
use client::Client;
use viewer::Viewer;

/// The polling interval when there is no new data.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the sessions of a relay daemon.
///
/// # Errors
/// Returns an error if the daemon can't be queried.
pub fn live_sessions(address: &LiveAddress) -> Result<Vec<Session>, LiveError> {
    Client::connect(address)?.sessions()
}

/// Passes the events of a session to `each` as they arrive, in slices of time, until the session ends, or `each` or
/// `keep_going` returns `false`; the events received by then are still passed. Returns the losses. `wanted` is the filter
/// that `each` applies.
///
/// # Errors
/// Returns an error if the session can't be read, or has no events that the filter could select.
pub fn live_slices(
    address: &LiveAddress,
    wanted: &Wanted,
    keep_going: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Traces<'_>, &Slice) -> bool,
) -> Result<Losses, LiveError> {
    let mut viewer = Viewer::attach(address)?;
    loop {
        let progressed = viewer.gather(keep_going)?;
        let is_last = viewer.has_ended() || !keep_going();
        let to = viewer.horizon().filter(|_| !is_last);
        let mut wants_more = true;
        if to.is_some() || is_last {
            let (traces, parts) = viewer.traces(to);
            check(wanted, &traces)?;
            wants_more = each(&traces, &Slice { parts, is_first: false, bytes: 0 });
            drop(traces);
            viewer.mark_printed(to);
        }
        if is_last || !wants_more {
            break;
        }
        if !progressed {
            thread::sleep(PAUSE);
        }
    }
    viewer.detach();
    Ok(std::mem::take(&mut viewer.losses))
}

/// Folds counts of the events of a session that pass the filter, until it ends or `keep_going` returns `false`. `each`
/// receives the table so far after each poll. Streams may come and go, so `analysis` must not distinguish them by
/// index.
///
/// # Errors
/// Returns an error if the session can't be read.
pub fn live_count(
    address: &LiveAddress,
    analysis: &dyn AnyAnalysis,
    wanted: &Wanted,
    reading: &EventReading,
    keep_going: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Table),
) -> Result<Table, LiveError> {
    let mut viewer = Viewer::attach(address)?;
    let mut sum = analysis.begin(&Start::default());
    let (mut streams, mut losses) = (0, Losses::default());
    loop {
        let progressed = viewer.gather(keep_going)?;
        let is_last = viewer.has_ended() || !keep_going();
        let (traces, _) = viewer.traces(None);
        check(wanted, &traces)?;
        let counting = Counting::new(&traces, wanted, CountInterest::Streams, reading);
        let counting = counting.expect("streams are counted without spans of time");
        traces.event_losses().into_iter().for_each(|loss| losses.add(loss));
        let more = fold_counts(&traces, analysis, &counting, |ranges| ranges, &mut losses, |_| true);
        sum = analysis.merge(sum, more, &Threads::default());
        streams = streams.max(viewer.stream_count());
        drop(traces);
        viewer.mark_printed(None);
        let (selection, no_threads) = (Selection::default(), Threads::default());
        let whole = FinishContext::without_events(&selection, &no_threads, &NoSources);
        let copy = analysis.unpack(&analysis.pack(&sum)).expect("what was packed can be unpacked");
        let mut table = analysis.finish(vec![copy], &whole);
        set(&mut table, "streams", Value::Integer(streams));
        if is_last {
            viewer.detach();
            std::mem::take(&mut viewer.losses).into_list().into_iter().for_each(|loss| losses.add(loss));
            table.loss = losses.into_list();
            return Ok(table);
        }
        each(&table);
        if !progressed {
            thread::sleep(PAUSE);
        }
    }
}

/// Checks that events have the requested contexts, once there are streams.
fn check(wanted: &Wanted, traces: &Traces<'_>) -> Result<(), LiveError> {
    let has_streams = traces.events.iter().any(|trace| !trace.streams.is_empty());
    match wanted.missing_contexts(traces).filter(|_| has_streams) {
        Some(name) => Err(LiveError::MissingContext(name)),
        None => Ok(()),
    }
}

/// Replaces a figure of a table's summary.
fn set(table: &mut Table, name: &str, value: Value) {
    for (_, figure) in table.summary.iter_mut().filter(|(known, _)| *known == name) {
        *figure = value.clone();
    }
}
