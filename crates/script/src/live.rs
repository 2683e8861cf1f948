//! Writes the events of a live session as they arrive.

use std::io::Write;

use hodo_engine::{
    EventReading,
    events::{LiveAddress, LiveError, Wanted, live_slices},
};

use crate::{Format, Outcome, events::Script};

/// Writes the events of a session that pass the filter as they arrive, until the session ends, `limit` lines are
/// written, or `keep_going` returns `false`; the events received by then are still written.
///
/// # Errors
/// Returns an error if the session can't be read.
pub fn live_script(
    address: &LiveAddress,
    wanted: &Wanted,
    format: Format,
    reading: &EventReading,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
    keep_going: &dyn Fn() -> bool,
) -> Result<Outcome, LiveError> {
    let mut script = Script::new(format, limit, out);
    let losses = live_slices(address, wanted, keep_going, &mut |traces, slice| {
        script.slices(traces, wanted, reading, std::slice::from_ref(slice), |_| true);
        script.flush();
        script.want_more()
    })?;
    losses.into_list().into_iter().for_each(|loss| script.losses.add(loss));
    Ok(script.outcome())
}
