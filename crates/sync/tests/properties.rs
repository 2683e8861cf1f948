//! Laws that hold for any input.

mod simulator;

use hodo_sync::{Clock, ClockGraph, ClockId, Method, Pair, Stamp, Timeline};
use proptest::prelude::*;
use simulator::{Delay, Protocol, Wander, World};

fn world(seed: u64, clocks: usize) -> World {
    let mut world = World::new(seed, 4.0);
    for clock in 0..clocks {
        let drift = if clock == 0 { 0.0 } else { world.rng.f64() * 100.0 - 50.0 };
        world.add(1_000_000_000, drift, Wander::Walk { ppm: 2.0, ppm_per_s: 0.8 });
    }
    let delay = Delay { least: 2_000.0, mean: 9_000.0, rare: 20, tail: 10.0 };
    let protocol =
        Protocol { period_ns: 50e6, burst: 2, first: delay, there: delay, back: delay, hold_ns: 900.0 };
    for slave in 1..clocks {
        world.exchange((slave - 1) / 2, slave, protocol);
    }
    if clocks > 4 {
        world.exchange(3, 4, protocol);
    }
    world
}

fn stamps(timeline: &Timeline, world: &World) -> Vec<(Stamp, Stamp)> {
    let pairs = world.messages.iter().map(|message| message.pair);
    pairs
        .map(|pair| {
            let sent = timeline.convert(pair.send_clock, pair.send_ticks);
            (sent, timeline.convert(pair.recv_clock, pair.recv_ticks))
        })
        .collect()
}

/// Returns whether bounds differ by at most `rounding` nanoseconds, or by a tenth of the interval: polygons of many
/// corners are simplified outwards, in other units to other corners. More than a nanosecond is rare: one case of 3,000.
fn are_alike(one: Stamp, other: Stamp, rounding: i64) -> bool {
    let most = rounding.max((one.upper.0 - one.lower.0) / 10);
    (one.lower.0 - other.lower.0).abs() <= most && (one.upper.0 - other.upper.0).abs() <= most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn times_are_causal_monotone_and_inside_their_intervals(seed: u64, clocks in 2usize..8) {
        let mut world = world(seed, clocks);
        let timeline = world.full_graph(1_000).solve(Method::Bounded);
        for (sent, received) in stamps(&timeline, &world) {
            prop_assert!(sent.estimate <= received.estimate);
            for stamp in [sent, received] {
                prop_assert!(stamp.lower <= stamp.estimate && stamp.estimate <= stamp.upper);
            }
        }
        let verdict = world.judge(&timeline, 500);
        prop_assert_eq!(verdict.coverage(), 1.0);
        for clock in 0..clocks {
            let mut cursor = timeline.cursor(ClockId(clock as u32));
            let mut before: Option<Stamp> = None;
            for index in 0..3_000u32 {
                let ticks = world.clocks[clock].ticks(f64::from(index) * 2e6 - 1e9);
                let stamp = cursor.convert(ticks);
                prop_assert_eq!(stamp, timeline.convert(ClockId(clock as u32), ticks));
                if let Some(before) = before {
                    prop_assert!(before.estimate <= stamp.estimate);
                }
                before = Some(stamp);
            }
        }
    }

    /// Where the clock is linear, the hull is as good as any line: the estimate is no worse, whatever the delays are,
    /// and intervals still contain the truth.
    #[test]
    fn a_linear_clock_is_as_exact_as_by_the_hull(
        seed: u64, drift in -50.0f64..50.0, there in 500.0f64..80_000.0, back in 500.0f64..80_000.0,
    ) {
        let mut world = World::new(seed, 6.0);
        world.add(1_000_000_000, 0.0, Wander::None);
        world.add(10_000_000, drift, Wander::None);
        let delay = |least: f64| Delay { least, mean: least / 2.0, rare: 50, tail: 10.0 };
        let (first, back) = (delay(there), delay(back));
        world.exchange(0, 1, Protocol { first, there: first, back, ..Protocol::interrupt() });
        let [bounded, hull] = [Method::Bounded, Method::Hull].map(|method| {
            let timeline = world.full_graph(1_000).solve(method);
            world.rng = fastrand::Rng::with_seed(seed);
            world.judge(&timeline, 1_000)
        });
        prop_assert_eq!(bounded.coverage(), 1.0);
        for percent in [50, 99] {
            let (own, other) = (bounded.error(percent), hull.error(percent));
            prop_assert!(own <= other * 1.05 + 2.0, "p{}: {} ns, by the hull {} ns", percent, own, other);
        }
    }

    /// Later readings of all clocks move the timeline, and nothing else.
    #[test]
    fn a_shift_of_all_readings_shifts_the_result(seed: u64, shift in 0u64..1 << 60) {
        let world = world(seed, 3);
        let timeline = world.full_graph(1_000).solve(Method::Bounded);
        let mut graph = world.graph(1_000);
        for message in &world.messages {
            let pair = message.pair;
            graph.push(Pair {
                send_ticks: pair.send_ticks + shift, recv_ticks: pair.recv_ticks + shift, ..pair
            }).unwrap();
        }
        let shifted = graph.solve(Method::Bounded);
        for message in &world.messages {
            let (clock, ticks) = (message.pair.recv_clock, message.pair.recv_ticks);
            let (one, other) = (timeline.convert(clock, ticks), shifted.convert(clock, ticks + shift));
            for (a, b) in [(one.estimate, other.estimate), (one.lower, other.lower), (one.upper, other.upper)] {
                prop_assert_eq!(a.0 + shift as i64, b.0);
            }
        }
    }

    /// The same readings in other units: a clock of four times the frequency counts four times as far.
    #[test]
    fn a_scaled_clock_gives_the_same_times(seed: u64) {
        let world = world(seed, 3);
        let timeline = world.full_graph(1_000).solve(Method::Bounded);
        let mut graph = ClockGraph::new();
        for index in 0..3 {
            let frequency = if index == 1 { 4_000_000_000 } else { 1_000_000_000 };
            graph.add(Clock::new(index.to_string(), frequency).with_bounds(100_000, 1_000));
        }
        let scaled = |clock: ClockId, ticks: u64| if clock.0 == 1 { ticks * 4 } else { ticks };
        for message in &world.messages {
            let pair = message.pair;
            graph.push(Pair {
                send_ticks: scaled(pair.send_clock, pair.send_ticks),
                recv_ticks: scaled(pair.recv_clock, pair.recv_ticks),
                ..pair
            }).unwrap();
        }
        let fine = graph.solve(Method::Bounded);
        for message in &world.messages {
            let (clock, ticks) = (message.pair.recv_clock, message.pair.recv_ticks);
            let (one, other) = (timeline.convert(clock, ticks), fine.convert(clock, scaled(clock, ticks)));
            // A tick is four times as short, so intervals may be narrower by that.
            prop_assert!((one.estimate.0 - other.estimate.0).abs() <= 3);
            prop_assert!(are_alike(one, other, 4));
        }
    }

    /// Which clock is numbered first changes nothing that matters.
    #[test]
    fn roles_may_be_reversed(seed: u64) {
        let world = world(seed, 2);
        let timeline = world.full_graph(1_000).solve(Method::Bounded);
        let mut graph = world.graph(1_000);
        let swapped = |clock: ClockId| ClockId(1 - clock.0);
        graph.set_reference(ClockId(1)).unwrap();
        for message in &world.messages {
            let pair = message.pair;
            graph.push(Pair {
                send_clock: swapped(pair.send_clock), recv_clock: swapped(pair.recv_clock), ..pair
            }).unwrap();
        }
        let reversed = graph.solve(Method::Bounded);
        for message in &world.messages {
            let (clock, ticks) = (message.pair.recv_clock, message.pair.recv_ticks);
            let (one, other) = (timeline.convert(clock, ticks), reversed.convert(swapped(clock), ticks));
            prop_assert!((one.estimate.0 - other.estimate.0).abs() <= 1);
            // Bounds are rounded outwards, once on the way from the clock that is numbered first to the other one.
            prop_assert!(are_alike(one, other, 1));
        }
    }

    /// Pairs in any order and in any number of portions.
    #[test]
    fn any_order_gives_the_same_result(seed: u64, order: u64) {
        let world = world(seed, 5);
        let timeline = world.full_graph(1_000).solve(Method::Bounded);
        let mut pairs: Vec<Pair> = world.messages.iter().map(|message| message.pair).collect();
        fastrand::Rng::with_seed(order).shuffle(&mut pairs);
        let mut graph = world.graph(1_000);
        for portion in pairs.chunks(1 + order as usize % 97) {
            for &pair in portion {
                graph.push(pair).unwrap();
            }
            graph.messages_in_memory();
        }
        let shuffled = graph.solve(Method::Bounded);
        prop_assert_eq!(stamps(&timeline, &world), stamps(&shuffled, &world));
    }

    /// Whatever readings come: no panic, and intervals hold their estimates.
    #[test]
    fn any_pairs_are_accepted(
        pairs in prop::collection::vec((0u32..4, 0u32..4, any::<u64>(), any::<u64>(), 0u32..64), 0..200),
        frequencies in prop::collection::vec(any::<u64>(), 4),
    ) {
        let mut graph = ClockGraph::new();
        for (index, &frequency) in frequencies.iter().enumerate() {
            graph.add(Clock::new(index.to_string(), frequency));
        }
        for (id, &(from, to, sent, received, shift)) in (0..).zip(&pairs) {
            let pair = Pair {
                send_clock: ClockId(from), send_ticks: sent >> shift,
                recv_clock: ClockId(to), recv_ticks: received >> shift, id,
            };
            prop_assert_eq!(graph.push(pair).is_ok(), from != to);
        }
        for method in [Method::Bounded, Method::Hull, Method::Regression] {
            let timeline = graph.solve(method);
            for clock in 0..4 {
                for ticks in [0, 1, 1 << 40, u64::MAX] {
                    let stamp = timeline.convert(ClockId(clock), ticks);
                    prop_assert!(stamp.lower <= stamp.estimate && stamp.estimate <= stamp.upper);
                    let stamp = timeline.cursor(ClockId(clock)).convert(ticks);
                    prop_assert!(stamp.lower <= stamp.estimate && stamp.estimate <= stamp.upper);
                }
            }
        }
    }
}
