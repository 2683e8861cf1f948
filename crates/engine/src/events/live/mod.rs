//! Sessions that are being recorded, read from LTTng's relay daemon.
//!
//! ```text
//! relay daemon ──Client──► packets, beacons ──Viewer──► streams, each known up to a time
//!                                                          │ up to the least of these times
//!                                          text, JSON ◄──Merge           counts ◄── each packet as it comes
//! ```
//!
//! A stream's packets tell of all that came before they end, and beacons of streams in which nothing happens do so
//! too. What comes before the least of these times is shown in order; only what a stream tells that is new by then
//! can come late, and is shown then: nothing is left out, and nothing comes twice.

mod address;
mod client;
mod stream;
mod viewer;

use std::{io::Write, thread, time::Duration};

use hodo_formats::ctf::lttng_live::Session;
use hodo_model::{
    AnyAnalysis, CountInterest, FinishContext, NoSources, Selection, Start, Table, Value, kernel::Threads,
};

pub use address::LiveAddress;
pub use client::LiveError;

use super::{Counting, EventFormat, EventReading, Wanted, fold_counts, slices::Slice, write::Script};
use crate::{Losses, script::Outcome};
use client::Client;
use viewer::Viewer;

/// How long to wait where nothing was new.
const PAUSE: Duration = Duration::from_millis(100);

/// The sessions that a relay daemon has.
///
/// # Errors
/// A daemon that can't be asked.
pub fn live_sessions(address: &LiveAddress) -> Result<Vec<Session>, LiveError> {
    Client::connect(address)?.sessions()
}

/// Writes the wanted events of a session as they come, until the session ends, `limit` lines are written, or
/// `go_on` says that somebody has enough; what is there then is still written.
///
/// # Errors
/// A session that can't be read.
pub fn live_script(
    address: &LiveAddress,
    wanted: &Wanted,
    format: EventFormat,
    reading: &EventReading,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    go_on: &dyn Fn() -> bool,
) -> Result<Outcome, LiveError> {
    let mut viewer = Viewer::attach(address)?;
    let mut script = Script::new(format, limit, out);
    loop {
        let progressed = viewer.gather(go_on)?;
        let is_last = viewer.has_ended() || !go_on();
        let to = viewer.horizon().filter(|_| !is_last);
        if to.is_some() || is_last {
            let (traces, parts) = viewer.traces(to);
            check(wanted, &traces)?;
            script.slices(&traces, wanted, reading, &[Slice { parts, is_first: false, bytes: 0 }], |_| true);
            drop(traces);
            viewer.shown(to);
            script.flush();
        }
        if is_last || !script.want_more() {
            break;
        }
        if !progressed {
            thread::sleep(PAUSE);
        }
    }
    viewer.detach();
    std::mem::take(&mut viewer.losses).into_list().into_iter().for_each(|loss| script.losses.add(loss));
    Ok(script.outcome())
}

/// Folds counts of the wanted events of a session, until it ends or `go_on` returns false. `each` gets the table so
/// far, now and then. Streams may come and go, so `analysis` must not tell them apart by their indices.
///
/// # Errors
/// A session that can't be read.
pub fn live_count(
    address: &LiveAddress,
    analysis: &dyn AnyAnalysis,
    wanted: &Wanted,
    reading: &EventReading,
    go_on: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Table),
) -> Result<Table, LiveError> {
    let mut viewer = Viewer::attach(address)?;
    let mut sum = analysis.begin(&Start::default());
    let (mut streams, mut losses) = (0, Losses::default());
    loop {
        let progressed = viewer.gather(go_on)?;
        let is_last = viewer.has_ended() || !go_on();
        let (traces, _) = viewer.traces(None);
        check(wanted, &traces)?;
        let counting = Counting::new(&traces, wanted, CountInterest::Streams, reading);
        let counting = counting.expect("streams are counted without spans of time");
        traces.loss().into_iter().for_each(|loss| losses.add(loss));
        let more = fold_counts(&traces, analysis, &counting, |runs| runs, &mut losses, |_| true);
        sum = analysis.merge(sum, more, &Threads::default());
        streams = streams.max(viewer.stream_count());
        drop(traces);
        viewer.shown(None);
        let (selection, nobody) = (Selection::default(), Threads::default());
        let whole = FinishContext::without_events(&selection, &nobody, &NoSources);
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

/// Refuses contexts that are asked for and that no event has, once there are streams.
fn check(wanted: &Wanted, traces: &super::EventTraces<'_>) -> Result<(), LiveError> {
    let has_streams = traces.traces.iter().any(|trace| !trace.streams.is_empty());
    match wanted.missing_contexts(traces).filter(|_| has_streams) {
        Some(name) => Err(LiveError::MissingContext(name)),
        None => Ok(()),
    }
}

fn set(table: &mut Table, name: &str, value: Value) {
    table
        .summary
        .iter_mut()
        .filter(|(known, _)| *known == name)
        .for_each(|(_, known)| *known = value.clone());
}
