//! Compares a timeline with the true times.

use hodo_sync::{ClockId, Method, Pair, Timeline, TimelineNanos};

use crate::events::Recorded;

/// Promised share of events whose interval contains the true time.
pub(crate) const COVERED: f64 = 0.999;
const BURST: &str = "interrupt + burst";
const BURST_ERROR_NS: u64 = 500;
const BURST_HALF_WIDTH_NS: u64 = 600;
/// Greatest ratio of our error to that of the hull method for a clock of constant drift.
const WORSE_THAN_HULL: f64 = 1.05;

/// Errors, interval widths and inversions of the slaves' events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// Absolute errors of the estimates in nanoseconds, sorted.
    errors: Vec<u64>,
    half_widths: Vec<u64>,
    covered: usize,
    /// Number of messages received before they were sent, plus number of times that a clock runs backwards.
    inversions: usize,
    messages: usize,
}

impl Verdict {
    pub(crate) fn of(recorded: &Recorded, pairs: &[Pair], timeline: &Timeline) -> Verdict {
        let mut verdict = Verdict::default();
        // The master's clock is the timeline.
        for (number, clock) in recorded.clocks.iter().enumerate().skip(1) {
            let mut cursor = timeline.cursor(ClockId(number as u32));
            let mut before = TimelineNanos(i64::MIN);
            for event in &clock.events {
                let stamp = cursor.convert(event.ticks);
                verdict.inversions += usize::from(stamp.estimate < before);
                before = stamp.estimate;
                let Some(truth) = event.truth.map(|truth| truth as i64) else { continue };
                verdict.errors.push(stamp.estimate.0.abs_diff(truth));
                verdict.covered += usize::from((stamp.lower.0..=stamp.upper.0).contains(&truth));
                verdict.half_widths.extend(stamp.half_width());
            }
        }
        for pair in pairs {
            let sent = timeline.convert(pair.send_clock, pair.send_ticks).estimate;
            let received = timeline.convert(pair.recv_clock, pair.recv_ticks).estimate;
            verdict.inversions += usize::from(received < sent);
        }
        verdict.messages = pairs.len();
        verdict.errors.sort_unstable();
        verdict.half_widths.sort_unstable();
        verdict
    }

    /// Shows how a recording with slewed clocks fares; returns what it violates.
    pub(crate) fn of_slew(&self, protocol: &str, wander: u32, ppm: u64) -> Option<String> {
        let half_width = percentile(&self.half_widths, 50).unwrap_or(u64::MAX);
        let covered = self.coverage() * 100.0;
        println!(
            "{protocol}, ±{wander} ppm, slewed by {ppm} ppm: half-width {half_width} ns, {covered:.2} % covered"
        );
        (self.coverage() < COVERED).then(|| {
            format!("{protocol}, ±{wander} ppm, slewed by {ppm} ppm: {covered:.3} % of the intervals hold the truth")
        })
    }

    fn coverage(&self) -> f64 {
        self.covered as f64 / self.errors.len().max(1) as f64
    }
}

/// Returns a percentile of a sorted list.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) protocol: &'static str,
    pub(crate) wander: u32,
    pub(crate) method: Method,
    pub(crate) verdict: Verdict,
    pub(crate) round_trips: Vec<u64>,
}

impl Row {
    pub(crate) fn head() {
        println!(
            "| messages | wander | round trip least, p50 | method | events | error p50 | error p99 | inversions | \
             half-width | covered |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
    }

    pub(crate) fn show(&self) {
        let nanos = |value: Option<u64>| value.map_or("–".to_owned(), |value| format!("{value} ns"));
        let Verdict { errors, half_widths, inversions, messages, .. } = &self.verdict;
        let covered = match self.method {
            Method::Regression => "–".to_owned(),
            _ => format!("{:.2} %", self.verdict.coverage() * 100.0),
        };
        println!(
            "| {} | ±{} ppm | {}, {} | {:?} | {} | {} | {} | {inversions} of {messages} | {} | {covered} |",
            self.protocol,
            self.wander,
            nanos(self.round_trips.first().copied()),
            nanos(percentile(&self.round_trips, 50)),
            self.method,
            errors.len(),
            nanos(percentile(errors, 50)),
            nanos(percentile(errors, 99)),
            nanos(percentile(half_widths, 50)),
        );
    }
}

/// Returns a sentence for each promise that the rows of one recording violate.
pub(crate) fn broken(rows: &[Row]) -> Vec<String> {
    let row_of = |method: Method| rows.iter().find(|row| row.method == method);
    let Some(bounded) = row_of(Method::Bounded) else {
        return vec!["no row of the bounded method".to_owned()];
    };
    let (verdict, mut broken) = (&bounded.verdict, Vec::new());
    let error = percentile(&verdict.errors, 99).unwrap_or(u64::MAX);
    let half_width = percentile(&verdict.half_widths, 50).unwrap_or(u64::MAX);
    let mut require = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{}, ±{} ppm: {what}", bounded.protocol, bounded.wander));
        }
    };
    let coverage = verdict.coverage();
    require(coverage >= COVERED, format!("{:.3} % of the intervals hold the truth", coverage * 100.0));
    require(verdict.inversions == 0, format!("{} inversions", verdict.inversions));
    if bounded.protocol == BURST && bounded.wander == 5 {
        require(error <= BURST_ERROR_NS, format!("p99 error {error} ns, wanted {BURST_ERROR_NS} ns"));
        let wanted = BURST_HALF_WIDTH_NS;
        require(half_width <= wanted, format!("median half-width {half_width} ns, wanted {wanted} ns"));
    }
    if bounded.wander == 0 {
        let hull = row_of(Method::Hull).and_then(|hull| percentile(&hull.verdict.errors, 99)).unwrap_or(0);
        // The resolution of the clock is one nanosecond.
        let most = (hull as f64 * WORSE_THAN_HULL) as u64 + 1;
        require(error <= most, format!("p99 error {error} ns, the hull's is {hull} ns"));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: Method, errors: &[u64], half_width: u64) -> Row {
        let verdict = Verdict {
            errors: errors.to_vec(),
            half_widths: vec![half_width],
            covered: errors.len(),
            ..Verdict::default()
        };
        Row { protocol: BURST, wander: 5, method, verdict, round_trips: vec![1] }
    }

    #[test]
    fn a_broken_promise_is_reported() {
        assert!(broken(&[row(Method::Bounded, &[100, 500], 600)]).is_empty());
        assert_eq!(broken(&[row(Method::Bounded, &[100, 501], 600)]).len(), 1);
        assert_eq!(broken(&[row(Method::Bounded, &[100, 500], 601)]).len(), 1);
        let mut uncovered = row(Method::Bounded, &[100, 500], 600);
        (uncovered.verdict.covered, uncovered.verdict.inversions) = (1, 1);
        assert_eq!(broken(&[uncovered]).len(), 2);
        let linear = |bounded: u64, hull: u64| {
            let mut rows = [row(Method::Bounded, &[bounded], 1), row(Method::Hull, &[hull], 1)];
            rows.iter_mut().for_each(|row| row.wander = 0);
            broken(&rows).len()
        };
        assert_eq!((linear(106, 100), linear(107, 100)), (0, 1));
    }

    #[test]
    fn percentiles_are_of_what_there_is() {
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&[1, 2, 3], 99), Some(3));
        assert_eq!(percentile(&[1, 2, 3], 50), Some(2));
    }
}
