//! The result of `hodo sync`, as a file that other commands read as an input.

use std::{fmt, path::PathBuf};

use hodo_clock::{TimeKnot, TimeMap};
use hodo_sync::Method;
use serde::{Deserialize, Serialize};

/// The version of the file's layout.
const VERSION: u32 = 1;
/// Marks an absent bound; widths are never negative.
const OPEN: i64 = -1;

/// Traces on one timeline: the content of `experiment.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synchronised {
    version: u32,
    method: Method,
    /// The inputs; times are in the clock of the first one marked as reference.
    #[serde(rename = "trace")]
    pub traces: Vec<SynchronisedTrace>,
}

/// An input on the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SynchronisedTrace {
    /// The path of the input.
    pub input: PathBuf,
    /// Whether its clock is the timeline's.
    pub reference: bool,
    /// Its own first time when it was synchronised, in nanoseconds; with `end_ns` it identifies the trace.
    pub begin_ns: i64,
    /// Its own last time when it was synchronised, in nanoseconds.
    pub end_ns: i64,
    /// Messages to or from this clock that bound it.
    pub messages: u64,
    /// Mean drift against the timeline, in parts per billion: positive if the clock is slow.
    pub drift_ppb: i64,
    /// Greatest minus least drift.
    pub wander_ppb: i64,
    /// Half the median width of the interval over all times of the trace, in nanoseconds.
    pub half_width_median_ns: Option<u64>,
    /// The curve. Empty for the reference and for unconnected inputs.
    pub knots: Vec<SynchronisedKnot>,
}

/// A knot of a curve, in nanoseconds; in the file, an array of these four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[i64; 4]", into = "[i64; 4]")]
pub struct SynchronisedKnot {
    /// The input's own time.
    pub own: i64,
    /// The timeline's time minus `own`.
    pub offset: i64,
    /// The maximum distance of the true time below the estimate; -1 if it is unknown.
    pub under: i64,
    /// The same above the estimate.
    pub over: i64,
}

impl From<[i64; 4]> for SynchronisedKnot {
    fn from([own, offset, under, over]: [i64; 4]) -> SynchronisedKnot {
        SynchronisedKnot { own, offset, under, over }
    }
}

impl From<SynchronisedKnot> for [i64; 4] {
    fn from(knot: SynchronisedKnot) -> [i64; 4] {
        [knot.own, knot.offset, knot.under, knot.over]
    }
}

/// Why a file is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SynchronisedError {
    /// It was written by another version of hodo.
    Version(u32),
    /// This knot of this input is out of order, or has an impossible width.
    Knot(String, usize),
}

impl fmt::Display for SynchronisedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SynchronisedError::Version(found) => {
                write!(
                    f,
                    "version {VERSION} expected, and this is {found}: write it again with `hodo sync -o`"
                )
            }
            SynchronisedError::Knot(input, number) => write!(
                f,
                "knot {number} of {input}: times in order expected, and widths of 0 or more (-1: unknown); write it again with `hodo sync -o`"
            ),
        }
    }
}

impl std::error::Error for SynchronisedError {}

impl Synchronised {
    /// Creates the result of a synchronisation by `method`.
    pub fn new(method: Method, traces: Vec<SynchronisedTrace>) -> Synchronised {
        Synchronised { version: VERSION, method, traces }
    }

    /// Validates the content of a file.
    ///
    /// # Errors
    /// Returns an error for another version, and for knots that are out of order or have impossible widths.
    pub fn check(&self) -> Result<(), SynchronisedError> {
        if self.version != VERSION {
            return Err(SynchronisedError::Version(self.version));
        }
        for trace in &self.traces {
            let mut before = None;
            for (number, &SynchronisedKnot { own, under, over, .. }) in trace.knots.iter().enumerate() {
                if under < OPEN || over < OPEN || before.is_some_and(|before| own <= before) {
                    return Err(SynchronisedError::Knot(trace.input.display().to_string(), number + 1));
                }
                before = Some(own);
            }
        }
        Ok(())
    }

    /// Returns the method of the synchronisation.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns the trace of this input, if it is on the timeline.
    pub(super) fn trace(&self, label: &str) -> Option<&SynchronisedTrace> {
        let mut traces = self.traces.iter();
        traces
            .find(|trace| trace.input.to_str() == Some(label) && (trace.reference || !trace.knots.is_empty()))
    }
}

impl SynchronisedTrace {
    /// Returns the map from its times to the timeline.
    pub(super) fn time_map(&self) -> TimeMap {
        if self.reference {
            return TimeMap::default();
        }
        let knot = |&SynchronisedKnot { own, offset, under, over }: &SynchronisedKnot| {
            let (own, estimate) = (i128::from(own), i128::from(own) + i128::from(offset));
            let side = |width: i64, sign: i128| (width != OPEN).then(|| estimate + sign * i128::from(width));
            TimeKnot { own, estimate, lower: side(under, -1), upper: side(over, 1) }
        };
        TimeMap::along(self.knots.iter().map(knot).collect())
    }

    /// Describes the synchronisation in words.
    pub(super) fn describe(&self, method: Method) -> String {
        if self.reference {
            return "the clock of the timeline".to_owned();
        }
        let half = match self.half_width_median_ns {
            Some(half) => format!("±{} µs at half of its times", micros(half)),
            None => "bounded on one side only".to_owned(),
        };
        format!(
            "synchronised by {} messages ({}): {half}, drift {:+.3} ppm",
            self.messages,
            method_name(method),
            self.drift_ppb as f64 / 1000.0
        )
    }
}

/// Converts knots to the file's representation.
pub(super) fn packed(knots: impl IntoIterator<Item = TimeKnot>) -> Vec<SynchronisedKnot> {
    let nanos = |value: i128| i64::try_from(value).ok();
    let pack = |knot: TimeKnot| {
        let width = |bound: Option<i128>| {
            bound.map_or(Some(OPEN), |bound| i64::try_from(bound.abs_diff(knot.estimate)).ok())
        };
        let offset = nanos(knot.estimate - knot.own)?;
        Some(SynchronisedKnot {
            own: nanos(knot.own)?,
            offset,
            under: width(knot.lower)?,
            over: width(knot.upper)?,
        })
    };
    knots.into_iter().filter_map(pack).collect()
}

/// Returns the name of a method in `--method`.
pub(super) fn method_name(method: Method) -> &'static str {
    match method {
        Method::Bounded => "bounds",
        Method::Hull => "hull",
        Method::Regression => "regression",
    }
}

/// Formats nanoseconds as microseconds with up to three decimals.
pub fn micros(nanos: u64) -> String {
    let text = format!("{}.{:03}", nanos / 1000, nanos % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use hodo_clock::OriginNanos;

    use super::*;

    #[test]
    fn knots_survive_the_file_and_bad_ones_are_named() {
        let knots = packed([
            TimeKnot { own: 10, estimate: 1_000, lower: Some(990), upper: None },
            TimeKnot { own: 20, estimate: 1_011, lower: Some(1_001), upper: None },
        ]);
        assert_eq!(knots, [[10, 990, 10, -1], [20, 991, 10, -1]].map(SynchronisedKnot::from));
        let trace = SynchronisedTrace {
            input: "b".into(),
            reference: false,
            begin_ns: 10,
            end_ns: 20,
            messages: 2,
            drift_ppb: 0,
            wander_ppb: 0,
            half_width_median_ns: None,
            knots,
        };
        let bounds = trace.time_map().bounds(OriginNanos(20));
        assert_eq!((bounds.estimate.0, bounds.lower, bounds.upper), (1_011, Some(OriginNanos(1_001)), None));
        let mut file = Synchronised::new(Method::Bounded, vec![trace]);
        assert_eq!(file.check(), Ok(()));
        file.traces[0].knots[1].own = 10;
        assert_eq!(file.check(), Err(SynchronisedError::Knot("b".to_owned(), 2)));
        file.version = 9;
        assert_eq!(file.check(), Err(SynchronisedError::Version(9)));
    }

    #[test]
    fn microseconds_are_short() {
        assert_eq!([micros(400), micros(12_000), micros(1_234_567)], ["0.4", "12", "1234.567"]);
    }
}
