//! `--time`, in perf's syntax.

use hodo_clock::{Nanos, OriginNanos, Tsc};
use hodo_engine::{FlowTrace, Window};

use crate::failure::Failure;

/// The ticks that `text` means in a recording: `START,STOP` in seconds (either may be empty),
/// `+START,+STOP` from the beginning, or `FROM%-TO%` of the whole.
pub fn parse(text: &str, experiment: &FlowTrace<'_>) -> Result<Window, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--time {text}: expected START,STOP in seconds, +START,+STOP from the beginning, or 10%-20%"
        ))
    };
    let clock = experiment.recording.config.clock;
    let (Some((first, last)), Some(clock)) = (experiment.span(), clock) else {
        return Err(Failure::usage("--time: the recording has no times"));
    };
    if let Some((from, to)) = text.split_once('-').filter(|_| text.contains('%')) {
        let part = |text: &str| {
            let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
            let share = (percent / 100.0).clamp(0.0, 1.0);
            Some(Tsc(first.0 + ((last.0 - first.0) as f64 * share) as u64))
        };
        let (from, to) = part(from).zip(part(to)).ok_or_else(wrong)?;
        // The last tick belongs to the last per cent.
        let to = if to == last { Tsc(u64::MAX) } else { to };
        return check(text, Window { from, to }, experiment);
    }
    let (from, to) = text.split_once(',').ok_or_else(wrong)?;
    let begin = clock.nanos(first);
    let instant = |text: &str, default: Tsc| {
        let time = match text.strip_prefix('+') {
            _ if text.is_empty() => return Some(default),
            Some(relative) => begin.0.saturating_add(nanos(relative)?),
            None => nanos(text)?,
        };
        let tick = clock.ticks(Nanos(time));
        // To a clock that wraps, a time far behind the end is one before its zero.
        let wrapped = tick < last && time > clock.nanos(last).0;
        Some(if wrapped { Tsc(u64::MAX) } else { tick })
    };
    let from = instant(from, Tsc(0)).ok_or_else(wrong)?;
    let to = instant(to, Tsc(u64::MAX)).ok_or_else(wrong)?;
    check(text, Window { from, to }, experiment)
}

/// The window, if it can hold anything.
fn check(text: &str, window: Window, experiment: &FlowTrace<'_>) -> Result<Window, Failure> {
    let (Some((first, last)), Some(clock)) = (experiment.span(), experiment.recording.config.clock) else {
        return Ok(window);
    };
    if window.from >= window.to {
        return Err(Failure::usage(format!("--time {text}: it ends before it begins")));
    }
    if window.to <= first || window.from > last {
        let (first, last) = (clock.nanos(first), clock.nanos(last));
        return Err(Failure::usage(format!(
            "--time {text}: outside of the recording, which lasts from {first} s to {last} s"
        )));
    }
    Ok(window)
}

/// Times from the first on, before the second; none is no limit.
pub type EventWindow = (Option<OriginNanos>, Option<OriginNanos>);

/// The times that `text` means in a trace of software events, whose packets begin and end so.
pub fn of_events(text: &str, span: Option<(OriginNanos, OriginNanos)>) -> Result<EventWindow, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--time {text}: expected START,STOP in seconds, +START,+STOP from the beginning, or 10%-20%"
        ))
    };
    let Some((first, last)) = span else {
        return Err(Failure::usage("--time: the trace does not say when its packets begin"));
    };
    if let Some((from, to)) = text.split_once('-').filter(|_| text.contains('%')) {
        let part = |text: &str| {
            let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
            let share = (percent / 100.0).clamp(0.0, 1.0);
            Some(OriginNanos(first.0 + ((last.0 - first.0) as f64 * share) as i128))
        };
        let (from, to) = part(from).zip(part(to)).ok_or_else(wrong)?;
        return Ok((Some(from), Some(to).filter(|&to| to < last)));
    }
    let (from, to) = text.split_once(',').ok_or_else(wrong)?;
    let instant = |text: &str| match text.strip_prefix('+') {
        _ if text.is_empty() => Some(None),
        Some(relative) => Some(Some(OriginNanos(first.0 + i128::from(nanos(relative)?)))),
        None => Some(Some(OriginNanos(nanos(text)?.into()))),
    };
    let (from, to) = instant(from).zip(instant(to)).ok_or_else(wrong)?;
    Ok((from, to))
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
}
