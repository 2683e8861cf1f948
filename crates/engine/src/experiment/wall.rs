//! Parses wall-clock times of `--time` and converts them to timestamps.

use std::{env, fmt};

use jiff::{
    civil::{Date, DateTime, Time},
    tz::{Offset, TimeZone},
};

use crate::{refusal::Refusal, traces::Traces};

/// A time of day, with or without its date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallTime {
    date: Option<Date>,
    time: Time,
}

impl WallTime {
    /// Parses `HH:MM[:SS[.FRACTION]]`, optionally preceded by a date and a space or `T`.
    pub(super) fn parse(text: &str) -> Option<WallTime> {
        let (date, time) = match text.split_once([' ', 'T']) {
            Some((date, time)) => (Some(date.parse().ok()?), time),
            None => (None, text),
        };
        Some(WallTime { date, time: time.trim().parse().ok()? })
    }
}

/// The time zone of wall-clock times.
pub(super) struct Zone {
    zone: TimeZone,
    /// Where the zone comes from, for messages.
    source: &'static str,
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.zone.iana_name(), self.zone.to_fixed_offset()) {
            _ if self.zone == TimeZone::UTC => "UTC".to_owned(),
            (Some(name), _) => name.to_owned(),
            (None, Ok(offset)) => format!("UTC{offset}"),
            (None, Err(_)) => "local time".to_owned(),
        };
        write!(f, "{name} ({})", self.source)
    }
}

impl Zone {
    /// Returns the zone of `TZ`, else the zone in which a trace was created, else UTC.
    pub(super) fn of(traces: &Traces<'_>) -> Zone {
        if env::var_os("TZ").is_some_and(|zone| !zone.is_empty()) {
            return Zone { zone: TimeZone::system(), source: "by TZ" };
        }
        let made =
            traces.events.iter().find_map(|trace| trace.class.environment_text("trace_creation_datetime"));
        match made.and_then(offset) {
            Some(offset) => Zone { zone: offset.to_time_zone(), source: "as the trace says" },
            None => Zone { zone: TimeZone::UTC, source: "no trace and no TZ says another one" },
        }
    }

    /// Returns a time in nanoseconds since the Unix epoch. Without a date, it is the first occurrence at or after
    /// `begin` if that is not after `end`; otherwise it is on the day of `begin`.
    pub(super) fn nanos(&self, time: &WallTime, begin: i128, end: i128) -> Result<i128, Refusal> {
        let wrong = |error: jiff::Error| Refusal(format!("--time: {error}"));
        let on = |date: Date| {
            let zoned = DateTime::from_parts(date, time.time).to_zoned(self.zone.clone()).map_err(wrong)?;
            Ok::<i128, Refusal>(zoned.timestamp().as_nanosecond())
        };
        if let Some(date) = time.date {
            return on(date);
        }
        let day = jiff::Timestamp::from_nanosecond(begin).map_err(wrong)?.to_zoned(self.zone.clone()).date();
        let on_day = on(day)?;
        let next = on(day.tomorrow().map_err(wrong)?)?;
        Ok(if on_day < begin && next <= end { next } else { on_day })
    }
}

/// Parses the UTC offset at the end of LTTng's `20261120T103744+0000`.
fn offset(text: &str) -> Option<Offset> {
    // The sign comes after the date, which may itself contain `-`.
    let sign_index = text.rfind(['+', '-']).filter(|&index| index > "20261120".len())?;
    let (sign, digits) = text[sign_index..].split_at(1);
    let number: i32 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    let seconds = number / 100 * 3600 + number % 100 * 60;
    Offset::from_seconds(if sign == "-" { -seconds } else { seconds }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;
    const DAY: i128 = 86_400 * SECOND;

    #[test]
    fn a_time_without_a_date_is_on_a_day_of_the_trace() {
        let zone = Zone { zone: TimeZone::UTC, source: "" };
        let nanos = |text: &str, begin, end| zone.nanos(&WallTime::parse(text).unwrap(), begin, end).unwrap();
        assert_eq!(nanos("1970-01-02 00:00:01.5", 0, 1), DAY + 3 * SECOND / 2);
        assert_eq!(nanos("1970-01-02T00:01", 0, 1), DAY + 60 * SECOND);
        let late = 5 * DAY + 86_000 * SECOND;
        assert_eq!(nanos("23:59:00", late, late + 900 * SECOND), 5 * DAY + 86_340 * SECOND);
        // After midnight.
        assert_eq!(nanos("00:01:00", late, late + 900 * SECOND), 6 * DAY + 60 * SECOND);
        assert_eq!(nanos("00:01:00", late, late + SECOND), 5 * DAY + 60 * SECOND);
        assert!(WallTime::parse("25:00").is_none() && WallTime::parse("2026-13-01 10:00").is_none());
    }

    #[test]
    fn the_zone_is_that_of_the_traces_creation() {
        assert_eq!(offset("20261120T103744+0130").unwrap().seconds(), 5_400);
        assert_eq!(offset("20261120T103744-0800").unwrap().seconds(), -28_800);
        assert_eq!((offset("20261120T103744"), offset("2026-11-20")), (None, None));
        let zone = Zone {
            zone: offset("x20261120T103744-0800").unwrap().to_time_zone(),
            source: "as the trace says",
        };
        assert_eq!(zone.to_string(), "UTC-08 (as the trace says)");
        let time = WallTime::parse("1970-01-01 00:00").unwrap();
        assert_eq!(zone.nanos(&time, 0, 0), Ok(28_800 * SECOND));
    }
}
