//! Synthetic graphs against their truth.

mod simulator;

use hodo_sync::{ClockId, DropCause, Method, Timeline};
use simulator::{Protocol, Wander, World, WrongMatches};

#[test]
fn ten_clocks_over_three_hops_with_wrong_matches_and_a_step() {
    for (seed, stepped, jump) in [(11, 5, 1e6), (109, 2, -1e6)] {
        judge_ten_clocks(seed, stepped, jump);
    }
}

fn judge_ten_clocks(seed: u64, stepped: usize, jump: f64) {
    let mut world = World::ten_clocks(seed);
    let step = 13.7e9;
    world.clocks[stepped] = world.clocks[stepped].clone().stepping(step, jump);
    world.talk_over_three_hops();
    world.mismatch(0.01);
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    let verdict = world.judge(&timeline, 20_000);
    assert!(verdict.coverage() >= 0.999, "{}", verdict.coverage());
    assert_eq!(verdict.inversions, 0);
    let WrongMatches { found, wrong, right } = world.wrong_matches(&timeline);
    assert!(wrong > 250 && found * 100 >= wrong * 99, "{found} of {wrong}");
    assert!(right * 500 <= world.messages.len(), "{right} right pairs dropped");
    for (clock, report) in timeline.report().clocks.iter().enumerate() {
        assert_eq!(report.steps.len(), usize::from(clock == stepped), "clock {clock}: {:?}", report.steps);
        assert_eq!(report.hops, Some(clock.div_ceil(3) as u32));
    }
    let reported = timeline.report().clocks[stepped].steps[0];
    assert!(reported.jump_low_ns as f64 <= jump && jump <= reported.jump_high_ns as f64, "{reported:?}");
    // Within one exchange: the step lies between two readings that are at most a period and the jump apart.
    let nanos = |ticks: u64| ticks as f64 / world.clocks[stepped].frequency_hz as f64 * 1e9;
    let [before, behind] = [step - 1.0, step].map(|time| nanos(world.clocks[stepped].ticks(time)));
    assert!(nanos(reported.last_ticks) <= before && behind <= nanos(reported.first_ticks), "{reported:?}");
    let gap = nanos(reported.first_ticks) - nanos(reported.last_ticks) - jump;
    assert!(gap <= 20.5e6, "{gap} ns");
}

#[test]
fn a_step_of_the_reference_clock_is_its_own() {
    let mut world = World::ten_clocks(5);
    world.clocks[0] = world.clocks[0].clone().stepping(10e9, 1e6);
    world.talk_over_three_hops();
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    let steps: Vec<usize> = timeline.report().clocks.iter().map(|clock| clock.steps.len()).collect();
    assert_eq!(steps, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(timeline.report().edges.iter().map(|edge| edge.violations_after).sum::<u64>(), 0);
    // Before the step the timeline is the reference's; behind it, the jump is taken out, as exactly as it is known.
    let (before, behind) = (5e9, 20e9);
    for clock in 1..10 {
        let stamp = |time: f64| timeline.convert(ClockId(clock), world.clocks[clock as usize].ticks(time));
        let truth = world.clocks[0].timeline(before);
        assert!((stamp(before).lower.0 as f64) <= truth && truth <= stamp(before).upper.0 as f64);
        let truth = world.clocks[0].timeline(behind) - 1e6;
        assert!((stamp(behind).estimate.0 as f64 - truth).abs() < 60_000.0);
    }
}

#[test]
fn a_step_too_small_for_the_drift_bound_is_found_beside_the_trend() {
    let mut world = World::new(3, 40.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 20.0, Wander::None);
    let step = 21.3e9;
    world.clocks[1] = world.clocks[1].clone().stepping(step, -20_000.0);
    world.exchange(0, 1, Protocol::polling());
    let timeline = world.full_graph(100).solve(Method::Bounded);
    let steps = &timeline.report().clocks[1].steps;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].jump_low_ns <= -20_000 && -20_000 <= steps[0].jump_high_ns, "{steps:?}");
    let last = steps[0].last_ticks as f64;
    let apart = last - world.clocks[1].ticks(step) as f64;
    assert!(apart.abs() < 11e6, "{apart} ns: {:?}", timeline.report().edges[0].dropped_pairs);
    let verdict = world.judge(&timeline, 10_000);
    assert!(verdict.coverage() >= 0.999, "{}", verdict.coverage());
}

#[test]
fn a_slave_that_resets_continues_in_a_new_segment() {
    let mut world = World::new(8, 30.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 20.0, Wander::None);
    let clock = world.clocks[1].clone().starting_at(5e9);
    world.clocks[1] = clock.stepping(12e9, -17e9);
    world.exchange(0, 1, Protocol::polling());
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    assert_eq!(timeline.report().clocks[1].steps.len(), 1);
    follow(&world, &timeline);
    assert_eq!(timeline.report().edges[0].violations_after, 0);
}

/// A stream in its order: the cursor knows which of several times is meant.
fn follow(world: &World, timeline: &Timeline) {
    let mut cursor = timeline.cursor(ClockId(1));
    let (mut covered, mut narrow) = (0, 0);
    for index in 0..30_000u64 {
        let time = index as f64 * 1e6;
        let stamp = cursor.convert(world.clocks[1].ticks(time));
        let truth = world.clocks[0].timeline(time);
        covered += u32::from(stamp.lower.0 as f64 <= truth && truth <= stamp.upper.0 as f64);
        narrow += u32::from(stamp.half_width().is_some_and(|half| half < 2_000));
    }
    assert!(covered >= 29_970, "{covered}");
    assert!(narrow >= 29_900, "{narrow}");
}

#[test]
fn a_counter_of_32_bits_that_wraps_is_followed() {
    let mut world = World::new(9, 30.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 20.0, Wander::None);
    let wraps = (0..).map(|wrap| 2e9 + f64::from(wrap) * 4_294_967_296.0).take_while(|&wrap| wrap < 30e9);
    let mut clock = world.clocks[1].clone().starting_at(4_294_967_296.0 - 2e9);
    for wrap in wraps.clone() {
        clock = clock.stepping(wrap / (1.0 + 20e-6), -4_294_967_296.0);
    }
    world.clocks[1] = clock;
    world.exchange(0, 1, Protocol::polling());
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    assert_eq!(timeline.report().clocks[1].steps.len(), wraps.count());
    follow(&world, &timeline);
}

#[test]
fn late_pairs_are_named_and_bound_nothing() {
    let mut world = World::new(2, 20.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 5.0, Wander::None);
    world.exchange(0, 1, Protocol::polling());
    world.messages[100].pair.recv_ticks += 50_000_000;
    let id = world.messages[100].pair.id;
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    let dropped = &timeline.report().edges[0].dropped_pairs;
    assert!(
        dropped.iter().any(|dropped| dropped.id == id && dropped.cause == DropCause::Late),
        "{dropped:?}"
    );
}

#[test]
fn hull_and_bounded_agree_where_the_clock_is_linear() {
    for protocol in [Protocol::polling(), Protocol::interrupt_and_burst()] {
        let mut world = World::new(4, 60.0);
        world.add(1_000_000_000, 0.0, Wander::None);
        world.add(10_000_000, 37.0, Wander::None);
        world.exchange(0, 1, protocol);
        let graph = world.full_graph(1_000);
        let [bounded, hull] =
            [Method::Bounded, Method::Hull].map(|method| world.judge(&graph.solve(method), 20_000));
        for percent in [50, 99] {
            assert!(bounded.error(percent) <= hull.error(percent) * 1.05, "{percent}: {bounded:?}");
        }
        assert_eq!(bounded.coverage(), 1.0);
    }
}

#[test]
fn a_wandering_clock_is_followed_within_its_interval() {
    let mut world = World::new(7, 60.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(10_000_000, 37.0, Wander::Triangle { ppm: 5.0, period_s: 20.0 });
    world.exchange(0, 1, Protocol::interrupt_and_burst());
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    let verdict = world.judge(&timeline, 50_000);
    assert!(verdict.coverage() >= 0.999 && verdict.inversions == 0);
    assert!(verdict.error(99) <= 500.0, "{}", verdict.error(99));
    let clock = &timeline.report().clocks[1];
    assert!((clock.drift_ppb + 37_000).abs() < 2_000, "{}", clock.drift_ppb);
    assert!((7_000..14_000).contains(&clock.wander_ppb), "{}", clock.wander_ppb);
}
