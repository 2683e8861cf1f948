//! Parses `--time`: perf's syntax, percentages of the trace, and times relative to its beginning.

use hodo_clock::{Nanos, OriginNanos, Tsc};

use super::wall::{WallTime, Zone};
use crate::{
    flow::trace::Trace,
    reading::Window,
    refusal::Refusal,
    traces::{Traces, cover},
};

/// A span of time as the user writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeSpan {
    /// `10%-20%` of the trace.
    Shares(f64, f64),
    /// `START,STOP`.
    Bounds(Bound, Bound),
    /// `START,STOP` of the wall clock; `None` is no limit.
    Wall(Option<WallTime>, Option<WallTime>),
}

/// One end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No limit.
    None,
    /// `+1.5`: nanoseconds from the beginning.
    Relative(u64),
    /// `1.5`: nanoseconds on the trace's clock.
    Absolute(i128),
}

impl TimeSpan {
    /// Parses `START,STOP` in seconds (either may be empty), `+START,+STOP` from the beginning, `FROM%-TO%`, or
    /// wall-clock times such as `10:38:00,10:38:01.5` or `2026-11-20 10:38,`.
    ///
    /// # Errors
    /// Returns a text with the expected syntax.
    pub fn parse(text: &str) -> Result<TimeSpan, String> {
        let wrong = || {
            "expected START,STOP in seconds, +START,+STOP from the beginning, 10%-20%, or 10:38:00,10:38:01 of the wall clock".to_owned()
        };
        if text.contains(':') {
            let (from, to) = text.split_once(',').ok_or_else(wrong)?;
            let bound = |text: &str| match text.trim() {
                "" => Some(None),
                text => WallTime::parse(text).map(Some),
            };
            let (from, to) = bound(from).zip(bound(to)).ok_or_else(wrong)?;
            return Ok(TimeSpan::Wall(from, to));
        }
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
            None => nanos(text).map(|nanos| Bound::Absolute(nanos.into())),
        };
        let (from, to) = text.split_once(',').ok_or_else(wrong)?;
        let (from, to) = bound(from).zip(bound(to)).ok_or_else(wrong)?;
        Ok(TimeSpan::Bounds(from, to))
    }

    /// Converts the span to a window in ticks of a control-flow trace.
    ///
    /// # Errors
    /// Returns a refusal if the trace has no times, or if the span ends before it begins, lies outside the trace, or is in
    /// wall-clock time, which [`Traces::resolve`] converts.
    pub fn of_flow(&self, flow: &Trace<'_>) -> Result<Window<Tsc>, Refusal> {
        let (Some((first, last)), Some(clock)) = (flow.span(), flow.recording.config.clock) else {
            return Err(Refusal("--time: the recording has no times".to_owned()));
        };
        let begin = clock.nanos(first);
        let tick = |bound: Bound| {
            let time = match bound {
                Bound::None => return None,
                Bound::Relative(nanos) => begin.0.saturating_add(nanos),
                Bound::Absolute(nanos) => u64::try_from(nanos.max(0)).unwrap_or(u64::MAX),
            };
            let tick = clock.ticks(Nanos(time));
            // On a clock that wraps, a time far after the end maps to a tick before zero.
            let wrapped = tick < last && time > clock.nanos(last).0;
            Some(if wrapped { Tsc(u64::MAX) } else { tick })
        };
        let window = match *self {
            TimeSpan::Bounds(from, to) => Window { from: tick(from), to: tick(to) },
            TimeSpan::Shares(from, to) => {
                let at_share = |share: f64| Tsc(first.0 + ((last.0 - first.0) as f64 * share) as u64);
                // The end is exclusive, so the window of the last percentage is open.
                Window { from: Some(at_share(from)), to: Some(at_share(to)).filter(|&to| to != last) }
            }
            TimeSpan::Wall(..) => return Err(no_wall_clock()),
        };
        if window.from.is_some_and(|from| window.ends_by(&from)) {
            return Err(Refusal("--time: the span ends before it begins".to_owned()));
        }
        if window.ends_by(&first) || window.begins_after(&last) {
            let (first, last) = (clock.nanos(first), clock.nanos(last));
            return Err(Refusal(format!(
                "--time: outside of the recording, which lasts from {first} s to {last} s"
            )));
        }
        Ok(window)
    }

    /// Converts the span to a window of event traces whose packets cover the time `covered`. A span outside it, or one that
    /// ends before it begins, is a window without events.
    ///
    /// # Errors
    /// Returns a refusal if the traces have no times, or if the span is in wall-clock time.
    pub fn of_events(
        &self,
        covered: Option<(OriginNanos, OriginNanos)>,
    ) -> Result<Window<OriginNanos>, Refusal> {
        let Some((first, last)) = covered else {
            return Err(Refusal("--time: the trace does not record when its packets begin".to_owned()));
        };
        let time = |bound| match bound {
            Bound::None => None,
            Bound::Relative(nanos) => Some(OriginNanos(first.0 + i128::from(nanos))),
            Bound::Absolute(nanos) => Some(OriginNanos(nanos)),
        };
        Ok(match *self {
            TimeSpan::Bounds(from, to) => Window { from: time(from), to: time(to) },
            TimeSpan::Shares(from, to) => {
                let at_share =
                    |share: f64| OriginNanos(first.0 + ((last.0 - first.0) as f64 * share) as i128);
                Window { from: Some(at_share(from)), to: Some(at_share(to)).filter(|&to| to < last) }
            }
            TimeSpan::Wall(..) => return Err(no_wall_clock()),
        })
    }

    /// As [`of_flow`](TimeSpan::of_flow) for a trace that shares a timeline with others: the window may lie outside it.
    fn of_one_flow(&self, flow: &Trace<'_>) -> Result<Window<Tsc>, Refusal> {
        let none = Window { from: Some(Tsc(u64::MAX)), to: Some(Tsc(u64::MAX)) };
        match (self.of_flow(flow), flow.span()) {
            (Err(_), Some(_)) if self.is_in_order() => Ok(none),
            (window, _) => window,
        }
    }

    /// Returns whether absolute bounds are in order.
    fn is_in_order(&self) -> bool {
        match self {
            TimeSpan::Bounds(Bound::Absolute(from), Bound::Absolute(to)) => from < to,
            _ => true,
        }
    }

    /// Resolves `+` and `%` on a timeline from `first` to `last`.
    fn over(&self, (first, last): (OriginNanos, OriginNanos)) -> TimeSpan {
        let absolute = |bound: Bound| match bound {
            Bound::Relative(nanos) => Bound::Absolute(first.0 + i128::from(nanos)),
            bound => bound,
        };
        match self {
            TimeSpan::Bounds(from, to) => TimeSpan::Bounds(absolute(*from), absolute(*to)),
            TimeSpan::Shares(from, to) => {
                let at_share = |share: f64| first.0 + ((last.0 - first.0) as f64 * share) as i128;
                let end = Some(at_share(*to)).filter(|&to| to < last.0).map_or(Bound::None, Bound::Absolute);
                TimeSpan::Bounds(Bound::Absolute(at_share(*from)), end)
            }
            TimeSpan::Wall(..) => self.clone(),
        }
    }
}

fn no_wall_clock() -> Refusal {
    Refusal("--time: no trace relates its clock to the wall clock; give seconds instead".to_owned())
}

impl Traces<'_> {
    /// Returns the first and last time over all traces.
    pub fn span(&self) -> Option<(OriginNanos, OriginNanos)> {
        let flows = self.flows.iter().filter_map(|flow| {
            let ((first, last), clock) = flow.span().zip(flow.recording.config.clock)?;
            let nanos = |tick| OriginNanos(clock.nanos(tick).0.into());
            Some((nanos(first), nanos(last)))
        });
        let spans = self.event_span().into_iter().chain(flows);
        spans.reduce(cover)
    }

    /// Returns whether several traces share the timeline, control flow among them. Spans of traces of events alone are
    /// resolved by [`TimeSpan::of_events`].
    fn are_several(&self) -> bool {
        self.unrelated.is_empty() && self.flows.len() + self.events.len() > 1 && !self.flows.is_empty()
    }

    /// Resolves a span to bounds on the timeline if several traces share it or it is in wall-clock time. For wall-clock
    /// times it also returns a note that names the time zone.
    ///
    /// # Errors
    /// Returns a refusal for wall-clock times if no trace relates its clock to the wall clock.
    pub fn resolve(&self, span: &TimeSpan) -> Result<(TimeSpan, Option<String>), Refusal> {
        let whole = self.span();
        let TimeSpan::Wall(from, to) = span else {
            let several = whole.filter(|_| self.are_several());
            return Ok((several.map_or(span.clone(), |whole| span.over(whole)), None));
        };
        let (Some(wall), Some((first, last))) = (self.wall, whole) else { return Err(no_wall_clock()) };
        let zone = Zone::of(self);
        let from = from.as_ref().map(|time| zone.nanos(time, first.0 - wall, last.0 - wall)).transpose()?;
        let begin = from.unwrap_or(first.0 - wall);
        let to = to.as_ref().map(|time| zone.nanos(time, begin, last.0 - wall)).transpose()?;
        let bound = |time: Option<i128>| time.map_or(Bound::None, |time| Bound::Absolute(time + wall));
        let span = TimeSpan::Bounds(bound(from), bound(to));
        match span.is_in_order() {
            true => Ok((span, Some(format!("--time: times are in {zone}")))),
            false => Err(Refusal("--time: the span ends before it begins".to_owned())),
        }
    }

    /// Converts a span to a window of the timeline of all traces.
    ///
    /// # Errors
    /// Those of [`resolve`](Traces::resolve); and a refusal if no trace has times.
    pub fn window(&self, span: &TimeSpan) -> Result<Window<OriginNanos>, Refusal> {
        let whole = self.span().ok_or_else(|| Refusal("--time: the inputs have no times".to_owned()))?;
        let time = |bound| match bound {
            Bound::Absolute(nanos) => Some(OriginNanos(nanos)),
            _ => None,
        };
        match self.resolve(span)?.0.over(whole) {
            TimeSpan::Bounds(from, to) => Ok(Window { from: time(from), to: time(to) }),
            _ => Err(no_wall_clock()),
        }
    }

    /// Converts a resolved span to a window in ticks for each control-flow trace.
    pub(super) fn windows(&self, span: Option<&TimeSpan>) -> Result<Vec<Window<Tsc>>, Refusal> {
        let window_of = |flow: &Trace<'_>| {
            let window = |span: &TimeSpan| match self.are_several() {
                true => span.of_one_flow(flow),
                false => span.of_flow(flow),
            };
            span.map_or(Ok(Window::ALL), window)
        };
        self.flows.iter().map(window_of).collect()
    }
}

/// Parses seconds with up to nine decimals and an optional unit (s, ms, us, ns) as exact nanoseconds.
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
