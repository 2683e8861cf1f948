//! The timeline converts readings of any clock to times with an interval.

use serde::{Deserialize, Serialize};

use crate::{
    clocks::{ClockId, Method},
    curve::{Curve, CurvePiece, Offsets, Sides},
    report::Report,
    units::{LIMIT, Scale, ceil_nanos, floor_nanos},
};

/// Nanoseconds of the timeline: since tick 0 of the reference clock, at its nominal frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimelineNanos(pub i64);

/// The time of an event, with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The best estimate. It never runs backwards on a clock, and no message is received before it was sent.
    pub estimate: TimelineNanos,
    /// Lower bound; [`i64::MIN`] if unknown.
    pub lower: TimelineNanos,
    /// Upper bound; [`i64::MAX`] if unknown.
    pub upper: TimelineNanos,
}

impl Stamp {
    /// Returns whether this certainly happened before `other`. False in both directions if the intervals overlap.
    pub fn surely_before(&self, other: &Stamp) -> bool {
        self.upper < other.lower
    }

    /// Returns half the length of the interval in nanoseconds, rounded up; `None` if a bound is unknown.
    pub fn half_width(&self) -> Option<u64> {
        let bounded = self.lower.0 != i64::MIN && self.upper.0 != i64::MAX;
        bounded.then(|| self.upper.0.abs_diff(self.lower.0).div_ceil(2))
    }
}

/// Half the widths of intervals over a span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfWidths {
    /// For half of the time, half the width is at most this.
    pub median_ns: u64,
    /// The widest.
    pub max_ns: u64,
}

/// A time in units, before rounding to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) low: Option<i128>,
    pub(crate) estimate: i128,
    pub(crate) high: Option<i128>,
}

impl Instant {
    fn stamp(self) -> Stamp {
        Stamp {
            estimate: TimelineNanos(floor_nanos(self.estimate)),
            lower: TimelineNanos(self.low.map_or(i64::MIN, floor_nanos)),
            upper: TimelineNanos(self.high.map_or(i64::MAX, ceil_nanos)),
        }
    }

    /// Returns an interval that holds both times, for readings that may lie on either side of a step.
    fn or(self, other: Instant) -> Instant {
        Instant {
            low: self.low.zip(other.low).map(|(a, b)| a.min(b)),
            estimate: self.estimate,
            high: self.high.zip(other.high).map(|(a, b)| a.max(b)),
        }
    }

    /// Replaces the estimate, and widens the interval to hold it.
    fn with_estimate(self, estimate: i128) -> Instant {
        Instant {
            low: self.low.map(|low| low.min(estimate)),
            estimate,
            high: self.high.map(|high| high.max(estimate)),
        }
    }
}

/// A clock between two of its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockSegment {
    /// The reading where the curve's x is 0, in units.
    #[serde(with = "wide")]
    pub(crate) origin: i128,
    /// Timeline minus clock where the curve is 0, in units.
    #[serde(with = "wide")]
    pub(crate) base: i128,
    /// `None` if no message bounds this segment.
    pub(crate) curve: Option<Curve>,
    /// First and last reading that may belong to this segment, in ticks.
    #[serde(with = "wide")]
    pub(crate) from: u64,
    #[serde(with = "wide")]
    pub(crate) to: u64,
    /// First and last reading that most likely belong to it.
    #[serde(with = "wide")]
    pub(crate) begins: u64,
    #[serde(with = "wide")]
    pub(crate) ends: u64,
}

impl ClockSegment {
    /// Returns the x on the curve of a reading in units.
    pub(crate) fn x(&self, units: i128) -> i64 {
        (units - self.origin).clamp(i128::from(-LIMIT), i128::from(LIMIT)) as i64
    }

    fn instant(&self, units: i128, sides: Sides, offsets: Offsets) -> Instant {
        let base = units + self.base;
        Instant {
            low: sides.low.then(|| base + i128::from(offsets.low)),
            estimate: base + i128::from(offsets.estimate),
            high: sides.high.then(|| base + i128::from(offsets.high)),
        }
    }

    /// Returns the time of a reading in units.
    pub(crate) fn time(&self, units: i128) -> Instant {
        match &self.curve {
            Some(curve) => self.instant(units, curve.sides(), curve.at(self.x(units))),
            None => Instant { low: None, estimate: units + self.base, high: None },
        }
    }
}

/// A clock on the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockLine {
    pub(crate) scale: Scale,
    /// At least one segment, in order of time.
    pub(crate) segments: Vec<ClockSegment>,
}

impl ClockLine {
    /// Returns the first segment from `start` on that may hold `ticks`, else the nearest.
    fn segment(&self, ticks: u64, start: usize) -> usize {
        let apart =
            |segment: &ClockSegment| segment.from.saturating_sub(ticks).max(ticks.saturating_sub(segment.to));
        (start..self.segments.len()).min_by_key(|&index| apart(&self.segments[index])).unwrap_or(0)
    }

    /// Returns the time of a reading without context from earlier readings.
    pub(crate) fn time(&self, ticks: u64) -> Instant {
        let units = self.scale.units(ticks);
        if let [segment] = self.segments.as_slice() {
            return segment.time(units);
        }
        self.time_from(units, ticks, self.segment(ticks, 0))
    }

    /// Returns the time of a reading that lies in segment `first` or a later one.
    fn time_from(&self, units: i128, ticks: u64, first: usize) -> Instant {
        let behind = self.segments[first + 1..].iter();
        let possible = behind.filter(|segment| segment.from <= ticks && ticks <= segment.to);
        let time =
            possible.fold(self.segments[first].time(units), |time, segment| time.or(segment.time(units)));
        time.with_estimate(self.estimate(units, ticks, first))
    }

    /// Returns the estimate near steps. It never runs backwards: between the last reading before a forward step and
    /// the first one after it, time stands still.
    fn estimate(&self, units: i128, ticks: u64, first: usize) -> i128 {
        for (segment, next) in self.segments[first..].iter().zip(&self.segments[first + 1..]) {
            let repeats = next.begins <= segment.ends;
            let stays = if repeats { ticks <= segment.to } else { ticks <= segment.ends };
            if stays {
                return segment.time(units).estimate;
            }
            if !repeats && ticks < next.begins {
                let end = segment.time(self.scale.units(segment.ends)).estimate;
                return next.time(units).estimate.max(segment.time(units).estimate.min(end));
            }
        }
        self.segments[self.segments.len() - 1].time(units).estimate
    }
}

/// All clocks of a graph on the time of the reference clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    pub(crate) method: Method,
    pub(crate) clocks: Vec<ClockLine>,
    pub(crate) report: Report,
}

impl Timeline {
    /// Returns the method that computed this timeline.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns the messages used and dropped, and the quality of the result.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Converts the reading `ticks` of a clock.
    ///
    /// A clock that stepped back showed some readings twice: the interval then holds both times, and the estimate is
    /// the first of them. A [`Cursor`] distinguishes the two.
    ///
    /// # Panics
    ///
    /// If the graph has no such clock.
    pub fn convert(&self, clock: ClockId, ticks: u64) -> Stamp {
        self.clocks[clock.0 as usize].time(ticks).stamp()
    }

    /// Returns readings of a clock from `first` to `last` with their times, sorted by reading. Between consecutive
    /// readings, the estimate and the bounds are linear. Near backward steps, the times are those of
    /// [`Timeline::convert`].
    ///
    /// # Panics
    ///
    /// If the graph has no such clock.
    pub fn knots(&self, clock: ClockId, first: u64, last: u64) -> Vec<(u64, Stamp)> {
        let line = &self.clocks[clock.0 as usize];
        let mut readings = vec![first, last];
        let mut add = |ticks: u64| {
            let around = [ticks.saturating_sub(1), ticks, ticks.saturating_add(1)];
            readings.extend(around.into_iter().filter(|ticks| (first..=last).contains(ticks)));
        };
        for segment in &line.segments {
            [segment.from, segment.to, segment.begins, segment.ends].into_iter().for_each(&mut add);
            let curve = segment.curve.iter().flat_map(Curve::places);
            curve.for_each(|x| add(line.scale.ticks(segment.origin + i128::from(x))));
        }
        readings.sort_unstable();
        readings.dedup();
        readings.into_iter().map(|ticks| (ticks, line.time(ticks).stamp())).collect()
    }

    /// Returns half the widths of the intervals of all readings of a clock from `first` to `last`. `None` if one has no
    /// lower or no upper bound.
    ///
    /// # Panics
    ///
    /// If the graph has no such clock.
    pub fn half_widths(&self, clock: ClockId, first: u64, last: u64) -> Option<HalfWidths> {
        let knots = self.knots(clock, first, last);
        let widths = knots.iter().map(|(ticks, stamp)| Some((*ticks, stamp.half_width()?)));
        let widths: Vec<(u64, u64)> = widths.collect::<Option<_>>()?;
        let max_ns = widths.iter().map(|&(_, width)| width).max()?;
        // The time in which half the width is at most `limit`. Between knots the width is linear.
        let within = |limit: u64| -> f64 {
            let pieces = widths.windows(2).map(|pair| {
                let ((from, width), (to, next_width)) = (pair[0], pair[1]);
                let (low, high) = (width.min(next_width), width.max(next_width));
                let share = (limit + 1).saturating_sub(low) as f64 / (high - low + 1) as f64;
                (to - from) as f64 * share.min(1.0)
            });
            pieces.sum()
        };
        let half = within(max_ns) / 2.0;
        let (mut low, mut high) = (0, max_ns);
        while low < high {
            let middle = low + (high - low) / 2;
            if within(middle) >= half { high = middle } else { low = middle + 1 }
        }
        Some(HalfWidths { median_ns: low, max_ns })
    }

    /// Returns a cursor that converts the readings of one event stream in order.
    ///
    /// # Panics
    ///
    /// If the graph has no such clock.
    pub fn cursor(&self, clock: ClockId) -> Cursor<'_> {
        Cursor { clock: &self.clocks[clock.0 as usize], segment: 0, last_ticks: 0, piece: CurvePiece::NONE }
    }
}

/// Converts readings of one clock in order. It caches the current piece of the curve, because the next reading mostly
/// lies on it. Readings may run backwards a little, which costs a search.
///
/// It follows the clock over its steps: a reading that does not run backwards, and lies before the end of the last
/// reading's segment, belongs to that segment.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    clock: &'a ClockLine,
    segment: usize,
    last_ticks: u64,
    piece: CurvePiece,
}

impl Cursor<'_> {
    /// Converts the reading `ticks`.
    pub fn convert(&mut self, ticks: u64) -> Stamp {
        let units = self.clock.scale.units(ticks);
        let segment = &self.clock.segments[self.segment];
        let single = self.clock.segments.len() == 1;
        if !single {
            let runs_back = ticks < std::mem::replace(&mut self.last_ticks, ticks);
            if runs_back || ticks > segment.ends || ticks < segment.from {
                return self.follow(units, ticks, runs_back);
            }
        }
        let x = segment.x(units);
        if x < self.piece.knot.x || self.piece.end <= x {
            let Some(curve) = &segment.curve else { return segment.time(units).stamp() };
            let Some(piece) = curve.piece_around(self.piece.number, x) else {
                return segment.time(units).stamp();
            };
            self.piece = piece;
        }
        let offsets = self.piece.knot.at(x);
        segment.instant(units, self.piece.sides, offsets).stamp()
    }

    /// Converts a reading that runs backwards or lies near a step.
    fn follow(&mut self, units: i128, ticks: u64, runs_back: bool) -> Stamp {
        let may_hold = |segment: &ClockSegment| segment.from <= ticks && ticks <= segment.to;
        let next = self.clock.segments.get(self.segment + 1);
        let current = &self.clock.segments[self.segment];
        let segment = if runs_back && next.is_some_and(may_hold) {
            self.segment + 1
        } else if may_hold(current) {
            self.segment
        } else {
            self.clock.segment(ticks, self.segment)
        };
        if segment != self.segment {
            (self.segment, self.piece) = (segment, CurvePiece::NONE);
        }
        let time = self.clock.segments[segment].time(units);
        if ticks <= self.clock.segments[segment].ends {
            return time.stamp();
        }
        self.clock.time_from(units, ticks, segment).stamp()
    }
}

/// Serialises integers beyond 63 bits as decimal strings, because TOML integers are limited to 64 bits signed.
mod wide {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
