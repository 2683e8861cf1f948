//! Clocks that are slewed: their frequency changes at once, by more than crystals wander, and back again.

mod simulator;

use hodo_sync::{Method, Timeline};
use simulator::{Delay, Protocol, Wander, World, WrongMatches, slews};

/// A clock that runs `ppm` faster for some seconds, amid messages of about the delay `least`, in nanoseconds.
fn slewed(seed: u64, ppm: f64, seconds: f64, least: f64) -> World {
    let mut world = World::new(seed, 4.0 + seconds * 1.5);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 10.0, Wander::None);
    let from = 2e9 + world.rng.f64() * 1e9;
    world.clocks[1] = world.clocks[1].clone().slewing(from, seconds * 1e9, ppm);
    let delay = Delay { least, mean: least / 2.0, rare: 0, tail: 0.0 };
    let period_ns = if seconds > 10.0 { 50e6 } else { 10e6f64.max(least * 8.0) };
    let protocol =
        Protocol { period_ns, burst: 1, first: delay, there: delay, back: delay, hold_ns: 5_000.0 };
    world.exchange(0, 1, protocol);
    world
}

fn solve(world: &World) -> Timeline {
    world.full_graph(1_000).solve(Method::Bounded)
}

#[test]
fn intervals_hold_the_truth_and_no_message_is_dropped() {
    let mut wider = 0;
    for ppm in [1.0, 5.0, 50.0, 500.0] {
        for seconds in [0.5, 6.0, 60.0] {
            for least in [1e3, 40e3, 500e3, 5e6] {
                let name = format!("{ppm} ppm for {seconds} s, delays of {least} ns");
                let mut world = slewed((ppm + seconds * 1e3 + least) as u64, ppm, seconds, least);
                let timeline = solve(&world);
                let verdict = world.judge(&timeline, 10_000);
                assert!(verdict.coverage() >= 0.999, "{name}: {} % covered", verdict.coverage() * 100.0);
                let (edge, clock) = (&timeline.report().edges[0], &timeline.report().clocks[1]);
                assert_eq!((edge.dropped, edge.steps, clock.contradictions), (0, 0, 0), "{name}: {edge:?}");
                assert_eq!(verdict.inversions, 0, "{name}");
                wider += usize::from(clock.breaks_bounds);
            }
        }
    }
    // What delays of milliseconds hide breaks nothing that can be seen.
    assert!((20..48).contains(&wider), "{wider}");
}

/// Slews that the messages hardly show, of the grid of `cargo judge sync`: shorter than the time between messages, in one
/// direction only as the other is slow, or among delays that are mostly chance.
#[test]
fn intervals_hold_the_truth_where_messages_hardly_show_a_slew() {
    // Rate in ppm, seconds, delay in nanoseconds, shape, nanoseconds between messages.
    let slews = [
        (500.0, 0.5, 40e3, "plain", 1e9),
        (500.0, 2.0, 500e3, "plain", 1e9),
        (50.0, 0.5, 500e3, "by chance", 10e6),
        (500.0, 0.5, 500e3, "slow there", 1e9),
        (500.0, 2.0, 5e6, "slow there", 1e9),
        (500.0, 0.5, 500e3, "slow back", 1e9),
        (500.0, 0.5, 5e6, "slow back", 100e6),
    ];
    for wanted in slews {
        let is_wanted = |slew: &&slews::Slew| {
            (slew.ppm, slew.seconds, slew.delay_ns, slew.shape.name, slew.period_ns) == wanted
        };
        let all = slews::all();
        let slew = all.iter().find(is_wanted).unwrap();
        let mut world = slew.world(0);
        let timeline = solve(&world);
        let coverage = world.judge(&timeline, 20_000).coverage();
        assert!(coverage >= 0.999, "{slew}: {} % covered", coverage * 100.0);
        let clock = &timeline.report().clocks[1];
        assert!(clock.breaks_bounds, "{slew}: {clock:?}");
        // A clock with any slew may be slewed by 500 ppm, in addition to the assumed drift.
        assert!(clock.drift_bound_ppb >= 700_000, "{slew}: {clock:?}");
    }
}

/// The same messages, without a slew.
#[test]
fn bounds_stay_as_assumed_where_nothing_is_slewed() {
    for slew in slews::all().into_iter().filter(|slew| slew.ppm == 500.0 && slew.seconds == 2.0) {
        let steady = slews::Slew { ppm: 0.0, ..slew };
        let clock = solve(&steady.world(0)).report().clocks[1].clone();
        let bounds = (clock.drift_bound_ppb / 1_000, clock.wander_bound_ppb_per_s);
        assert_eq!((clock.breaks_bounds, bounds), (false, (200, Some(2_000))), "{steady}");
    }
}

#[test]
fn what_was_assumed_and_what_is_used_is_reported() {
    let clock = |ppm: f64| solve(&slewed(1, ppm, 6.0, 1e3)).report().clocks[1].clone();
    let steady = clock(0.0);
    assert_eq!((steady.breaks_bounds, steady.wander_bound_ppb_per_s), (false, Some(2_000)));
    let slewed = clock(50.0);
    assert_eq!((slewed.breaks_bounds, slewed.wander_bound_ppb_per_s), (true, None));
    assert!(slewed.drift_bound_ppb > steady.drift_bound_ppb, "{slewed:?}");
    let fast = clock(500.0);
    assert!(fast.drift_bound_ppb >= 2 * 510_000, "{fast:?}");
}

/// Wrong pairs and slews: the wide bounds explain only the slews.
#[test]
fn wrong_matches_are_dropped_beside_a_slew() {
    let mut world = slewed(3, 480.0, 6.0, 40e3);
    world.mismatch(0.01);
    let timeline = solve(&world);
    let WrongMatches { found, wrong, right } = world.wrong_matches(&timeline);
    assert!(wrong > 10 && found == wrong && right <= 2, "{found} of {wrong}, and {right} right ones");
    assert!(world.judge(&timeline, 10_000).coverage() >= 0.999);
}

/// Where messages are seconds apart, nothing shows whether the frequency changed between: only drift is bounded there, unless
/// the bound of wander is known to hold.
#[test]
fn wander_is_relied_on_where_messages_would_refute_it() {
    let mut world = World::new(5, 60.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 10.0, Wander::None);
    let slewing = world.clocks[1].clone();
    let delay = Delay { least: 40e3, mean: 20e3, rare: 0, tail: 0.0 };
    let protocol =
        Protocol { period_ns: 1e9, burst: 1, first: delay, there: delay, back: delay, hold_ns: 5_000.0 };
    world.clocks[1] = slewing.slewing(30e9, 2e9, 50.0);
    world.exchange(0, 1, protocol);
    let timeline = solve(&world);
    assert!(world.judge(&timeline, 10_000).coverage() >= 0.999);
    let widths = |timeline: &Timeline| {
        timeline.half_widths(hodo_sync::ClockId(1), 2_000_000_000, 58_000_000_000).unwrap()
    };
    let careful = widths(&timeline);
    let mut graph = hodo_sync::ClockGraph::new();
    for _ in 0..2 {
        graph.add(hodo_sync::Clock::new("clock", 1_000_000_000).with_known_wander());
    }
    world.messages.iter().for_each(|message| graph.push(message.pair).unwrap());
    let trusting = widths(&graph.solve(Method::Bounded));
    assert!(
        trusting.median_ns < careful.median_ns && trusting.max_ns < careful.max_ns,
        "{trusting:?} {careful:?}"
    );
}

/// The widths are those of any time, not of messages alone.
#[test]
fn half_widths_are_of_all_times() {
    let world = slewed(1, 0.0, 0.5, 40e3);
    let timeline = solve(&world);
    let clock = hodo_sync::ClockId(1);
    let last = world.clocks[1].ticks(20e9);
    let widths = timeline.half_widths(clock, 0, last).unwrap();
    let mut all: Vec<u64> = (0..20_000)
        .map(|time| timeline.convert(clock, time * (last / 20_000)).half_width().unwrap())
        .collect();
    all.sort_unstable();
    let (median, max) = (all[all.len() / 2], all[all.len() - 1]);
    assert!(widths.median_ns.abs_diff(median) * 1_000 < median, "{widths:?}, sampled {median}");
    assert!(widths.max_ns >= max && (widths.max_ns - max) * 1_000 < max, "{widths:?}, sampled {max}");
    assert!(max > 20 * all[all.len() / 100], "the ends are far from messages: {max}");
}
