//! `--time`: perf's syntax, shares of the whole, and times from the beginning.

use hodo_clock::{Nanos, OriginNanos, Tsc};

use crate::{FlowTrace, Refusal, Window};

/// A span of time as people write it.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeSpan {
    /// `10%-20%` of the whole.
    Shares(f64, f64),
    /// `START,STOP`.
    Bounds(Bound, Bound),
}

/// One end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing was given: no limit.
    None,
    /// `+1.5`: nanoseconds from the beginning.
    Relative(u64),
    /// `1.5`: nanoseconds on the clock.
    Absolute(u64),
}

/// Times from the first on, before the second; `None` is no limit.
pub type EventWindow = (Option<OriginNanos>, Option<OriginNanos>);

impl TimeSpan {
    /// Reads `START,STOP` in seconds (either may be empty), `+START,+STOP` from the beginning, or `FROM%-TO%`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<TimeSpan, String> {
        let wrong =
            || "expected START,STOP in seconds, +START,+STOP from the beginning, or 10%-20%".to_owned();
        if let Some((from, to)) = text.split_once('-').filter(|_| text.contains('%')) {
            let share = |text: &str| {
                let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
                Some((percent / 100.0).clamp(0.0, 1.0))
            };
            let (from, to) = share(from).zip(share(to)).ok_or_else(wrong)?;
            return Ok(TimeSpan::Shares(from, to));
        }
        let bound = |text: &str| match text.strip_prefix('+') {
            _ if text.is_empty() => Some(Bound::None),
            Some(relative) => nanos(relative).map(Bound::Relative),
            None => nanos(text).map(Bound::Absolute),
        };
        let (from, to) = text.split_once(',').ok_or_else(wrong)?;
        let (from, to) = bound(from).zip(bound(to)).ok_or_else(wrong)?;
        Ok(TimeSpan::Bounds(from, to))
    }

    /// The ticks that are meant in a trace of control flow.
    ///
    /// # Errors
    /// A trace without times, or that has none of these.
    pub fn of_flow(&self, flow: &FlowTrace<'_>) -> Result<Window, Refusal> {
        let (Some((first, last)), Some(clock)) = (flow.span(), flow.recording.config.clock) else {
            return Err(Refusal("--time: the recording has no times".to_owned()));
        };
        let begin = clock.nanos(first);
        let tick = |bound: Bound, default: Tsc| {
            let time = match bound {
                Bound::None => return default,
                Bound::Relative(nanos) => begin.0.saturating_add(nanos),
                Bound::Absolute(nanos) => nanos,
            };
            let tick = clock.ticks(Nanos(time));
            // To a clock that wraps, a time far behind the end is one before its zero.
            let wrapped = tick < last && time > clock.nanos(last).0;
            if wrapped { Tsc(u64::MAX) } else { tick }
        };
        let window = match *self {
            TimeSpan::Bounds(from, to) => Window { from: tick(from, Tsc(0)), to: tick(to, Tsc(u64::MAX)) },
            TimeSpan::Shares(from, to) => {
                let part = |share: f64| Tsc(first.0 + ((last.0 - first.0) as f64 * share) as u64);
                // The last tick belongs to the last per cent.
                let to = Some(part(to)).filter(|&to| to != last).unwrap_or(Tsc(u64::MAX));
                Window { from: part(from), to }
            }
        };
        if window.from >= window.to {
            return Err(Refusal("--time: it ends before it begins".to_owned()));
        }
        if window.to <= first || window.from > last {
            let (first, last) = (clock.nanos(first), clock.nanos(last));
            return Err(Refusal(format!(
                "--time: outside of the recording, which lasts from {first} s to {last} s"
            )));
        }
        Ok(window)
    }

    /// The times that are meant in traces of events whose packets begin and end so.
    ///
    /// # Errors
    /// Traces without times.
    pub fn of_events(&self, span: Option<(OriginNanos, OriginNanos)>) -> Result<EventWindow, Refusal> {
        let Some((first, last)) = span else {
            return Err(Refusal("--time: the trace does not say when its packets begin".to_owned()));
        };
        let time = |bound| match bound {
            Bound::None => None,
            Bound::Relative(nanos) => Some(OriginNanos(first.0 + i128::from(nanos))),
            Bound::Absolute(nanos) => Some(OriginNanos(nanos.into())),
        };
        Ok(match *self {
            TimeSpan::Bounds(from, to) => (time(from), time(to)),
            TimeSpan::Shares(from, to) => {
                let part = |share: f64| OriginNanos(first.0 + ((last.0 - first.0) as f64 * share) as i128);
                (Some(part(from)), Some(part(to)).filter(|&to| to < last))
            }
        })
    }
}

/// Seconds with up to nine decimals, and an optional unit (s, ms, us, ns), as exact nanoseconds.
pub fn nanos(text: &str) -> Option<u64> {
    let units = [("ms", 6), ("us", 3), ("ns", 0), ("s", 9)];
    let unit = units.iter().find_map(|&(unit, digits)| Some((text.strip_suffix(unit)?, digits)));
    let (number, digits) = unit.unwrap_or((text, 9));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > digits || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let padded = format!("{fraction:0<digits$}");
    let fraction = if padded.is_empty() { 0 } else { padded.parse::<u64>().ok()? };
    whole.parse::<u64>().ok()?.checked_mul(10u64.pow(digits as u32))?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(nanos("1.5"), Some(1_500_000_000));
        assert_eq!(nanos("18446744.000000001s"), Some(18_446_744_000_000_001));
        assert_eq!(nanos("3ms"), Some(3_000_000));
        assert_eq!(nanos("2.25us"), Some(2_250));
        assert_eq!(nanos("7ns"), Some(7));
        assert_eq!(nanos("1.0000000001"), None);
        assert_eq!(nanos("x"), None);
        assert_eq!(nanos("1.5ns"), None);
    }

    #[test]
    fn spans_are_read_as_perf_reads_them() {
        let bounds = |from, to| Ok(TimeSpan::Bounds(from, to));
        assert_eq!(
            TimeSpan::parse("1,2"),
            bounds(Bound::Absolute(1_000_000_000), Bound::Absolute(2_000_000_000))
        );
        assert_eq!(TimeSpan::parse("+1ms,"), bounds(Bound::Relative(1_000_000), Bound::None));
        assert_eq!(TimeSpan::parse("10%-20%"), Ok(TimeSpan::Shares(0.1, 0.2)));
        assert!(TimeSpan::parse("10").is_err());
        assert!(TimeSpan::parse("1,x").is_err());
    }
}
