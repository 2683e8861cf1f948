//! Little, one-sided, repeated and extreme input.

use hodo_sync::{
    Clock, ClockGraph, ClockId, DropCause, Method, Pair, PairError, Stamp, Timeline, TimelineNanos,
};

const A: ClockId = ClockId(0);
const B: ClockId = ClockId(1);

fn graph() -> ClockGraph {
    let mut graph = ClockGraph::new();
    graph.add(Clock::new("a", 1_000_000_000));
    graph.add(Clock::new("b", 1_000_000_000));
    graph
}

fn pair(from: ClockId, sent: u64, received: u64) -> Pair {
    Pair {
        send_clock: from,
        send_ticks: sent,
        recv_clock: ClockId(1 - from.0),
        recv_ticks: received,
        id: sent,
    }
}

fn solve(pairs: &[Pair]) -> Timeline {
    let mut graph = graph();
    for &pair in pairs {
        graph.push(pair).unwrap();
    }
    graph.solve(Method::Bounded)
}

/// Writes the interval of a time: its lower bound, the estimate and its upper bound.
fn interval(lower: i64, estimate: i64, upper: i64) -> Stamp {
    let [lower, estimate, upper] = [lower, estimate, upper].map(TimelineNanos);
    Stamp { lower, estimate, upper }
}

#[test]
fn without_pairs_only_the_reference_is_known() {
    let timeline = solve(&[]);
    assert_eq!(timeline.convert(A, 1_000), interval(1_000, 1_000, 1_001));
    assert_eq!(timeline.convert(B, 1_000), interval(i64::MIN, 1_000, i64::MAX));
    assert_eq!(timeline.convert(B, 1_000).half_width(), None);
    assert_eq!(timeline.report().clocks[1].hops, None);
    assert_eq!(timeline.report().clocks[1].bounded, (false, false));
}

#[test]
fn one_pair_bounds_one_side() {
    let timeline = solve(&[pair(A, 1_000, 501_000)]);
    let stamp = timeline.convert(B, 501_000);
    assert!(stamp.lower.0 <= 1_000 && 990 <= stamp.lower.0 && stamp.upper.0 == i64::MAX, "{stamp:?}");
    assert!(stamp.estimate.0 >= 1_000);
    assert_eq!(timeline.report().clocks[1].bounded, (true, false));
    assert_eq!(timeline.report().edges[0].half_width_ns, None);
    // One second later, the interval is wider by 200 ppm of drift and by the wander of two clocks.
    let later = timeline.convert(B, 1_000_501_000);
    assert!((999_790_000..1_000_001_000).contains(&later.lower.0), "{later:?}");
}

#[test]
fn one_direction_only_bounds_that_side_however_many_pairs() {
    let pairs: Vec<Pair> = (1..500).map(|i| pair(B, i * 1_000_000 + 77, i * 1_000_000)).collect();
    let timeline = solve(&pairs);
    assert_eq!(timeline.report().clocks[1].bounded, (false, true));
    let stamp = timeline.convert(B, 250_000_077);
    assert!(stamp.lower.0 == i64::MIN && (250_000_000..250_000_020).contains(&stamp.upper.0), "{stamp:?}");
    for method in [Method::Hull, Method::Regression] {
        let mut graph = graph();
        pairs.iter().for_each(|&pair| graph.push(pair).unwrap());
        assert_eq!(graph.solve(method).convert(B, 5).half_width(), None);
    }
}

#[test]
fn one_exchange_gives_the_interval_of_the_paper() {
    let timeline = solve(&[pair(A, 1_000_000, 501_000), pair(B, 502_000, 1_003_000)]);
    // 3 µs of round trip less 1 µs of hold: ±1 µs, and a tick.
    let stamp = timeline.convert(B, 501_500);
    assert!((1_000..=1_010).contains(&stamp.half_width().unwrap()), "{stamp:?}");
    assert!((stamp.estimate.0 - 1_001_500).abs() <= 5, "{stamp:?}");
}

#[test]
fn equal_timestamps_contradict_or_agree_but_never_panic() {
    let timeline = solve(&[pair(A, 100, 100); 50]);
    assert_eq!(timeline.report().edges[0].dropped, 0);
    let stuck: Vec<Pair> =
        (0..1_000).flat_map(|i| [pair(A, i * 1_000, 7), pair(B, 7, i * 1_000 + 500)]).collect();
    let timeline = solve(&stuck);
    let edge = &timeline.report().edges[0];
    assert!(edge.dropped > 900 && edge.used + edge.implied + edge.dropped == 2_000, "{edge:?}");
    assert!(edge.dropped_pairs.iter().all(|dropped| dropped.cause == DropCause::Contradicts));
    assert_eq!((edge.contradicting(), edge.dropped_because(DropCause::Late)), (edge.dropped, 0));
}

/// B stands still for 3 of 10 seconds.
#[test]
fn a_clock_that_stops_continues_in_a_new_segment() {
    let reading = |time: u64| match time {
        ..4_000_000_000 => time,
        4_000_000_000..7_000_000_000 => 4_000_000_000,
        _ => time - 3_000_000_000,
    };
    let exchange = |i: u64| {
        let time = i * 10_000_000 + 1_234;
        [pair(A, time, reading(time + 900)), pair(B, reading(time + 1_000), time + 1_900)]
    };
    let timeline = solve(&(0..1_000).flat_map(exchange).collect::<Vec<_>>());
    let steps = &timeline.report().clocks[1].steps;
    assert!(!steps.is_empty(), "{steps:?}");
    for time in [1_000_000_000, 3_900_000_000, 7_500_000_000, 9_900_000_000u64] {
        let stamp = timeline.convert(B, reading(time));
        assert!(stamp.lower.0 <= time as i64 && time as i64 <= stamp.upper.0, "{time}: {stamp:?}, {steps:?}");
    }
    assert_eq!(timeline.report().edges[0].violations_after, 0);
}

#[test]
fn extreme_readings_are_accepted_and_named() {
    let mut pairs: Vec<Pair> = (0..100)
        .flat_map(|i| {
            [pair(A, i * 1_000_000, i * 1_000_000 + 500), pair(B, i * 1_000_000 + 600, i * 1_000_000 + 900)]
        })
        .collect();
    pairs.push(pair(A, u64::MAX, u64::MAX));
    pairs.push(pair(B, 0, u64::MAX));
    pairs.push(pair(A, u64::MAX, 0));
    let timeline = solve(&pairs);
    let edge = &timeline.report().edges[0];
    assert_eq!(edge.dropped, 3, "{edge:?}");
    assert!(edge.dropped_pairs.iter().any(|dropped| dropped.cause == DropCause::OutOfRange));
    assert_eq!(timeline.convert(A, u64::MAX).estimate, TimelineNanos(i64::MAX));
    let far = timeline.convert(B, u64::MAX);
    assert!(far.lower <= far.estimate && far.estimate <= far.upper);
}

#[test]
fn pairs_of_unknown_or_equal_clocks_are_refused() {
    let mut graph = graph();
    let unknown = Pair { send_clock: ClockId(7), ..pair(A, 1, 2) };
    assert_eq!(graph.push(unknown), Err(PairError::UnknownClock(ClockId(7))));
    let same = Pair { recv_clock: A, ..pair(A, 1, 2) };
    assert_eq!(graph.push(same), Err(PairError::SameClock(A)));
    assert_eq!(PairError::SameClock(A).to_string(), "clock 0 sends to itself; a pair needs two clocks");
}

#[test]
fn clocks_that_nothing_connects_stay_unknown() {
    let mut graph = graph();
    let c = graph.add(Clock::new("c", 1_000_000_000));
    let d = graph.add(Clock::new("d", 1_000_000_000));
    graph.push(Pair { send_clock: c, send_ticks: 1, recv_clock: d, recv_ticks: 2, id: 0 }).unwrap();
    let timeline = graph.solve(Method::Bounded);
    assert_eq!(timeline.convert(d, 2).half_width(), None);
    assert_eq!(
        timeline.report().clocks.iter().map(|clock| clock.hops).collect::<Vec<_>>(),
        [Some(0), None, None, None]
    );
}

/// Two events have no order if the intervals of their times overlap.
#[test]
fn order_is_certain_only_where_intervals_lie_apart() {
    let timeline = solve(&[pair(A, 1_000_000, 501_000), pair(B, 502_000, 1_003_000)]);
    let b = timeline.convert(B, 501_500);
    let [early, near, late] = [1_000_000, 1_001_500, 1_003_000].map(|ticks| timeline.convert(A, ticks));
    assert!(early.surely_before(&b) && b.surely_before(&late));
    assert!(!near.surely_before(&b) && !b.surely_before(&near));
}

#[test]
fn a_cursor_may_run_back_and_beyond_both_ends() {
    let exchange = |i: u64| {
        [pair(A, i * 1_000_000, i * 1_000_000 + 500), pair(B, i * 1_000_000 + 600, i * 1_000_000 + 900)]
    };
    let timeline = solve(&(0..300).flat_map(exchange).collect::<Vec<_>>());
    let mut cursor = timeline.cursor(B);
    for ticks in [0, u64::MAX / 2, 5, 299_000_000, u64::MAX, 150_000_000, 150_000_001, 149_000_000, 0] {
        assert_eq!(cursor.convert(ticks), timeline.convert(B, ticks), "{ticks}");
    }
}

#[test]
fn a_timeline_survives_serialisation() {
    let timeline = solve(&[pair(A, u64::MAX - 10_000, 501_000), pair(B, 502_000, u64::MAX - 7_000)]);
    let text = serde_json::to_string(&timeline).unwrap();
    assert_eq!(serde_json::from_str::<Timeline>(&text).unwrap(), timeline);
    let text = toml::to_string(&timeline).unwrap();
    assert_eq!(toml::from_str::<Timeline>(&text).unwrap(), timeline);
}

/// Blocks of 65,536 pairs are settled as they come: memory follows the envelope, and the result stays right.
#[test]
fn a_long_edge_keeps_its_envelope() {
    let mut graph = graph();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut delay = move || 1_000 + rng.u64(0..20_000);
    for i in 0..200_000u64 {
        let sent = i * 20_000;
        graph.push(pair(A, sent, sent + delay() + 5_000_000)).unwrap();
        graph.push(pair(B, sent + 5_000_000, sent + delay())).unwrap();
    }
    assert!(graph.messages_in_memory() < 70_000, "{}", graph.messages_in_memory());
    let timeline = graph.solve(Method::Bounded);
    let edge = &timeline.report().edges[0];
    assert_eq!((edge.pairs, edge.pairs_to_b), (400_000, 200_000));
    assert_eq!(edge.used + edge.implied + edge.dropped, edge.pairs);
    for i in (0..200_000u64).step_by(101) {
        let stamp = timeline.convert(B, i * 20_000 + 5_000_000);
        let truth = i as i64 * 20_000;
        assert!(stamp.lower.0 <= truth && truth <= stamp.upper.0, "{stamp:?}");
        assert!(stamp.half_width().unwrap() < 1_200, "{stamp:?}");
    }
}

/// A step inside a settled block is still found at the end.
#[test]
fn a_step_in_a_settled_block_is_found() {
    let mut graph = graph();
    for i in 0..100_000u64 {
        let sent = i * 20_000;
        let jump = if i < 10_000 { 0 } else { 1_000_000 };
        graph.push(pair(A, sent, sent + 1_500 + jump)).unwrap();
        graph.push(pair(B, sent + 2_000 + jump, sent + 3_300)).unwrap();
    }
    let timeline = graph.solve(Method::Bounded);
    let steps = &timeline.report().clocks[1].steps;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].last_ticks <= 200_000_000 && 200_900_000 <= steps[0].first_ticks, "{steps:?}");
    assert!(steps[0].first_ticks - steps[0].last_ticks < 1_060_000, "{steps:?}");
    assert!(timeline.report().edges[0].dropped <= 2);
}

#[test]
fn lines_between_knots_are_the_conversion() {
    let mut pairs = Vec::new();
    for second in 0..40u64 {
        // B is 30 ppm slow, and wanders.
        let (sent, slow) = (second * 1_000_000_000 + 5_000, second * 30_000 + second * second * 200);
        pairs.push(pair(A, sent, sent - slow + 700_000));
        pairs.push(pair(B, sent - slow + 800_000, sent + 200_000));
    }
    let timeline = solve(&pairs);
    let (first, last) = (0, 45_000_000_000);
    let knots = timeline.knots(B, first, last);
    assert!(knots.len() > 10 && knots[0].0 == first && knots[knots.len() - 1].0 == last);
    for window in knots.windows(2) {
        let ((from, begin), (to, end)) = (window[0], window[1]);
        let middle = from + (to - from) / 2;
        let stamp = timeline.convert(B, middle);
        for value in [|s: &Stamp| s.lower.0, |s: &Stamp| s.estimate.0, |s: &Stamp| s.upper.0] {
            let rise = i128::from(value(&end) - value(&begin)) * i128::from(middle - from);
            let on_line = value(&begin) + (rise / i128::from(to - from)) as i64;
            assert!(on_line.abs_diff(value(&stamp)) <= 2, "{middle}: {on_line} {}", value(&stamp));
        }
    }
}
