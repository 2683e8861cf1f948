//! Plots the offset of a clock over time in a terminal.

use std::io::{self, Write};

use hodo_clock::{OriginNanos, TimeKnot, TimeMap};

/// Columns and rows of a plot.
const WIDTH: usize = 64;
const HEIGHT: usize = 11;

/// Offset and bounds at one time, minus the straight line through the ends of the estimate, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    estimate: f64,
    lower: Option<f64>,
    upper: Option<f64>,
}

/// Plots the offset of a clock against the timeline: `·` between the bounds, `●` for the estimate.
pub fn offset(name: &str, knots: &[TimeKnot], out: &mut dyn Write) -> io::Result<()> {
    let (Some(first), Some(last)) = (knots.first(), knots.last()) else { return Ok(()) };
    let span = (last.own - first.own).max(1);
    let offset = |knot: &TimeKnot| (knot.estimate - knot.own) as f64;
    let slope = (offset(last) - offset(first)) / span as f64;
    let samples = samples(knots, offset(first), slope);
    let (low, high) = range(&samples);
    let seconds = offset(first) / 1e9;
    writeln!(out, "offset of {name} less {seconds:+.9} s and {:+.3} ppm, in µs", slope * 1e6)?;
    let step = (high - low) / (HEIGHT - 1) as f64;
    let row_of = |value: f64| ((high - value) / step).round().clamp(0.0, (HEIGHT - 1) as f64) as usize;
    for row in 0..HEIGHT {
        let mark = |sample: &ClockSample| {
            let top = sample.upper.map_or(0, row_of);
            let bottom = sample.lower.map_or(HEIGHT - 1, row_of);
            if row == row_of(sample.estimate) {
                '●'
            } else if (top..=bottom).contains(&row) {
                '·'
            } else {
                ' '
            }
        };
        let line: String = samples.iter().map(mark).collect();
        let value = (high - step * row as f64) / 1e3;
        writeln!(out, "{value:>12.3} │{}", line.trim_end())?;
    }
    let label = format!("{:.3} s", span as f64 / 1e9);
    writeln!(out, "{:>12} └{}", "", "─".repeat(WIDTH))?;
    writeln!(out, "{:>14}0 s{label:>width$}", "", width = WIDTH - 3)
}

fn samples(knots: &[TimeKnot], begin: f64, slope: f64) -> Vec<ClockSample> {
    let map = TimeMap::along(knots.to_vec());
    let (first, span) = (knots[0].own, knots[knots.len() - 1].own - knots[0].own);
    let sample = |column: usize| {
        let own = first + span * column as i128 / (WIDTH - 1) as i128;
        let bounds = map.bounds(OriginNanos(own));
        let line = begin + slope * (own - first) as f64;
        let less = |time: OriginNanos| (time.0 - own) as f64 - line;
        ClockSample {
            estimate: less(bounds.estimate),
            lower: bounds.lower.map(less),
            upper: bounds.upper.map(less),
        }
    };
    (0..WIDTH).map(sample).collect()
}

/// Returns the range of values to show. It extends at most two median widths beyond the median bounds, because bounds
/// far from messages are wide.
fn range(samples: &[ClockSample]) -> (f64, f64) {
    let sorted = |value: fn(&ClockSample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let lower = sorted(|sample| sample.lower.unwrap_or(sample.estimate));
    let upper = sorted(|sample| sample.upper.unwrap_or(sample.estimate));
    let (low, high) = (lower[lower.len() / 2], upper[upper.len() / 2]);
    let most = 2.0 * (high - low).max(1.0);
    let estimates = sorted(|sample| sample.estimate);
    let low = lower[0].max(low - most).min(estimates[0]);
    let high = upper[upper.len() - 1].min(high + most).max(estimates[estimates.len() - 1]);
    (low, high.max(low + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_estimate_between_its_bounds() {
        let knot = |own: i128, offset: i128, width: i128| {
            let estimate = own + offset;
            TimeKnot { own, estimate, lower: Some(estimate - width), upper: Some(estimate + width) }
        };
        let knots = [knot(0, 1_000, 400), knot(500_000_000, 3_000, 400), knot(1_000_000_000, 1_000, 400)];
        let mut out = Vec::new();
        offset("b", &knots, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("offset of b less +0.000001000 s and +0.000 ppm, in µs\n"), "{text}");
        assert_eq!(text.matches('●').count(), WIDTH, "{text}");
        let rows: Vec<&str> = text.lines().collect();
        // The estimate rises to 2 µs between two middle columns; the bounds extend 0.4 µs further.
        assert!(rows[1].contains("2.369 │") && !rows[1].contains('●') && rows[1].contains('·'), "{text}");
        assert!(rows[HEIGHT].contains("-0.400 │·"), "{text}");
        assert!(text.ends_with("1.000 s\n"), "{text}");
    }
}
