//! Formats events as lines of text, in the manner of babeltrace2.

use std::io::Write;

use hodo_clock::{OriginNanos, TimeBounds};
use hodo_engine::micros;
use hodo_formats::events::{Event, Lost, Trouble, schema::Scope};
use hodo_model::{
    digits::{decimal, nine},
    event::TextFields,
};

use super::names::StreamNames;

/// Nanoseconds in a second and in a day.
const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Writes times of day (UTC); formats the seconds only when they change.
#[derive(Clone, Debug)]
pub(super) struct TimeOfDay {
    /// The second that `text` shows.
    second: OriginNanos,
    /// The time at the begin of this second.
    text: [u8; 21],
}

impl TimeOfDay {
    pub(super) fn new() -> TimeOfDay {
        TimeOfDay { second: OriginNanos(0), text: *b"[00:00:00.000000000] " }
    }

    /// Writes the time of day in brackets, or question marks if it is unknown.
    #[inline]
    pub(super) fn write(&mut self, time: Option<OriginNanos>, out: &mut Vec<u8>) {
        let Some(time) = time else { return out.extend_from_slice(b"[??:??:??.?????????] ") };
        let mut nanos = time.0 - self.second.0;
        if !(0..SECOND).contains(&nanos) {
            nanos = time.0.rem_euclid(SECOND);
            self.second = OriginNanos(time.0 - nanos);
            let clock_time = clock_time((time.0.rem_euclid(DAY) / SECOND) as u32);
            self.text[1..][..clock_time.len()].copy_from_slice(&clock_time);
        }
        out.extend_from_slice(&self.text);
        put_nanos(nanos as u32, b"] ".len(), out);
    }
}

/// Overwrites the nine digits that end `after` bytes before the end. The text is copied first: a copy of digits that have
/// just been stored would wait until the stores have ended.
#[inline]
fn put_nanos(nanos: u32, after: usize, out: &mut [u8]) {
    let end = out.len() - after;
    out[end - 9..end].copy_from_slice(&nine(nanos));
}

/// Formats hours, minutes and seconds, with the point after them.
fn clock_time(seconds: u32) -> [u8; 9] {
    let [hours, minutes, seconds] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let mut text = *b"00:00:00.";
    for (number, position) in [(hours, 0), (minutes, 3), (seconds, 6)] {
        (text[position], text[position + 1]) = (b'0' + (number / 10) as u8, b'0' + (number % 10) as u8);
    }
    text
}

/// Writes `(+seconds.nanoseconds)` since the previous line.
pub(super) fn since(before: Option<OriginNanos>, time: Option<OriginNanos>, out: &mut Vec<u8>) {
    let (Some(before), Some(time)) = (before, time) else {
        return out.extend_from_slice(b"(+?.?????????)");
    };
    let nanos = time.0 - before.0;
    // Dividing 128 bits takes long.
    if (0..SECOND).contains(&nanos) {
        out.extend_from_slice(b"(+0.000000000)");
        return put_nanos(nanos as u32, b")".len(), out);
    }
    out.extend_from_slice(if nanos < 0 { b"(-" } else { b"(+" });
    decimal((nanos / SECOND).unsigned_abs() as u64, out);
    out.extend_from_slice(b".000000000)");
    put_nanos((nanos % SECOND).unsigned_abs() as u32, b")".len(), out);
}

/// Writes `±0.4 µs ` before an event whose time is not exact; an unbounded side is `∞`.
pub(super) fn uncertainty(bounds: &TimeBounds, out: &mut Vec<u8>) {
    let half = bounds.half_width().map(|half| format!("±{} µs ", micros(half)));
    match (half, bounds.lower, bounds.upper) {
        (Some(_), ..) if bounds.lower == bounds.upper => {}
        (Some(half), ..) => out.extend_from_slice(half.as_bytes()),
        (None, Some(_), _) => out.extend_from_slice("+∞ ".as_bytes()),
        (None, _, Some(_)) => out.extend_from_slice("-∞ ".as_bytes()),
        (None, None, None) => out.extend_from_slice("±∞ ".as_bytes()),
    }
}

/// The scopes of an event, in display order.
const SCOPES: [Scope; 3] = [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];

/// Writes the context of a packet as its events show it; nothing if all its fields are internal to the decoder.
pub(super) fn packet(event: &Event<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
    let mut fields = TextFields::new(out);
    event.emit(Scope::PacketContext, &mut fields)?;
    if fields.has_any() {
        out.splice(0..0, *b" {");
        out.extend_from_slice(b" }");
    }
    Ok(())
}

/// Writes what follows the time: host and name, contexts and fields.
pub(super) fn event(
    names: &StreamNames,
    packet: &[u8],
    event: &Event<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Trouble> {
    out.extend_from_slice(names.text[event.parts.class as usize].as_bytes());
    out.extend_from_slice(packet);
    let mut first = packet.is_empty();
    for scope in SCOPES {
        if event.has(scope) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            out.extend_from_slice(b" {");
            event.emit(scope, &mut TextFields::new(out))?;
            out.extend_from_slice(b" }");
        }
    }
    out.push(b'\n');
    Ok(())
}

/// Writes a line for lost events or packets.
pub(super) fn lost(stream: &str, lost: &Lost, out: &mut Vec<u8>) {
    let what = if lost.packets { "packet" } else { "event" };
    let plural = if lost.count == 1 { "" } else { "s" };
    let _ = match lost.count {
        0 => write!(out, "# an unknown number of {what}s lost in {stream}"),
        count => write!(out, "# {count} {what}{plural} lost in {stream}"),
    };
    let mut time = |word: &str, time: Option<OriginNanos>| {
        if time.is_some() {
            out.extend_from_slice(word.as_bytes());
            let mut text = Vec::new();
            TimeOfDay::new().write(time, &mut text);
            // Without `[` and `] `.
            out.extend_from_slice(&text[1..text.len() - 2]);
        }
    };
    time(" after ", lost.after);
    time(" before ", lost.before);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_time_of_day_does_not_depend_on_the_one_before(times: Vec<(i64, u32)>) {
            let mut clock = TimeOfDay::new();
            for time in times.iter().flat_map(|&(time, step)| [i128::from(time), i128::from(time) + i128::from(step)]) {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                clock.write(Some(OriginNanos(time)), &mut one);
                TimeOfDay::new().write(Some(OriginNanos(time)), &mut other);
                prop_assert_eq!(&one, &other);
                let day = time.rem_euclid(DAY);
                let (seconds, nanos) = (day / SECOND, day % SECOND);
                let expected =
                    format!("[{:02}:{:02}:{:02}.{nanos:09}] ", seconds / 3600, seconds / 60 % 60, seconds % 60);
                prop_assert_eq!(String::from_utf8(one).unwrap(), expected);
            }
        }
    }

    #[test]
    fn times_since_are_signed_and_may_be_long() {
        let shown = |before, time| {
            let mut out = Vec::new();
            since(Some(OriginNanos(before)), Some(OriginNanos(time)), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(5, 1_000_000_006), "(+1.000000001)");
        assert_eq!(shown(1, 0), "(-0.000000001)");
        assert_eq!(shown(0, 1 << 70), "(+1180591620717.411303424)");
    }
}
