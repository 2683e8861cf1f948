//! Generates the states of many threads, the same in each run. Durations are exponentially distributed.

use fastrand::Rng;

/// Number of states that are generated together, so that any part of the history can be generated separately.
const GROUP: u64 = 64;
/// Mean duration of a state, in nanoseconds.
const MEAN: u64 = 100_000;

/// A state.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) lane: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) value: u64,
    pub(crate) cpu: u64,
}

/// Returns the number of groups per lane for a history of at least `rows` states.
pub(crate) fn groups(rows: u64, lanes: u32) -> u64 {
    rows.div_ceil(GROUP * u64::from(lanes)).max(1)
}

/// Returns the first instant after all states.
pub(crate) fn end(groups: u64) -> u64 {
    groups * GROUP * MEAN
}

/// Passes the states of a group of a lane to `to`, in order.
pub(crate) fn group(lane: u32, group: u64, to: &mut impl FnMut(State)) {
    let mut rng = Rng::with_seed((u64::from(lane) << 32) ^ group);
    let draw = |rng: &mut Rng| -(1.0 - rng.f64()).ln();
    let durations: [f64; GROUP as usize] = std::array::from_fn(|_| draw(&mut rng));
    let whole: f64 = durations.iter().sum();
    let (first, width) = (group * GROUP * MEAN, GROUP * MEAN);
    let (mut begin, mut sum) = (first, 0.0);
    for (index, duration) in durations.iter().enumerate() {
        sum += duration;
        let last = index + 1 == durations.len();
        let end = if last { first + width } else { first + (sum / whole * width as f64) as u64 };
        to(State { lane, begin, end, value: rng.u64(0..5), cpu: rng.u64(0..8) });
        begin = end;
    }
}
