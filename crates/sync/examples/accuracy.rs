//! The table of docs/clocks.md, from the simulator.
//!
//!     cargo run --release -p hodo-sync --example accuracy

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use hodo_sync::Method;
use simulator::{Protocol, Wander, World};

fn main() {
    two_clocks();
    ten_clocks();
}

/// One master, one slave, three protocols.
fn two_clocks() {
    let protocols = [
        ("interrupt + burst", Protocol::interrupt_and_burst()),
        ("polling", Protocol::polling()),
        ("interrupt", Protocol::interrupt()),
    ];
    println!("| messages | wander | method | error p50 | error p99 | inversions | half-width | covered |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, protocol) in protocols {
        for ppm in [0.0, 1.0, 5.0] {
            let wander = if ppm == 0.0 { Wander::None } else { Wander::Triangle { ppm, period_s: 20.0 } };
            let mut world = World::new(7, 60.0);
            world.add(1_000_000_000, 0.0, Wander::None);
            world.add(10_000_000, 37.0, wander);
            world.exchange(0, 1, protocol);
            let graph = world.full_graph(1_000);
            for method in [Method::Bounded, Method::Hull, Method::Regression] {
                let timeline = graph.solve(method);
                let verdict = world.judge(&timeline, 100_000);
                let bounds = match method {
                    Method::Regression => "– | –".to_owned(),
                    _ => format!("{} ns | {:.2} %", verdict.half_width(), verdict.coverage() * 100.0),
                };
                println!(
                    "| {name} | ±{ppm} ppm | {method:?} | {:.0} ns | {:.0} ns | {} of {} | {bounds} |",
                    verdict.error(50),
                    verdict.error(99),
                    verdict.inversions,
                    verdict.messages,
                );
            }
        }
    }
}

/// Graphs of ten clocks with wrong matches and a step, summed up.
fn ten_clocks() {
    let mut least_coverage = 1.0f64;
    // Wrong matches that were left out, all wrong matches, and right ones that were left out.
    let (mut found, mut wrong, mut right) = (0, 0, 0);
    let (mut messages, mut inversions, mut inversions_of_used) = (0, 0, 0);
    let (mut stepped_once, mut placed) = (0, 0);
    for seed in 100..130 {
        let mut world = World::ten_clocks(seed);
        let clock = 1 + (seed % 9) as usize;
        let step = 3e9 + world.rng.f64() * 24e9;
        let jump = if seed % 2 == 0 { 1e6 } else { -1e6 };
        world.clocks[clock] = world.clocks[clock].clone().stepping(step, jump);
        world.talk_over_three_hops();
        world.mismatch(0.01);
        let timeline = world.full_graph(1_000).solve(Method::Bounded);
        let verdict = world.judge(&timeline, 20_000);
        let matches = world.wrong_matches(&timeline);
        least_coverage = least_coverage.min(verdict.coverage());
        found += matches.found;
        wrong += matches.wrong;
        right += matches.right;
        messages += verdict.messages;
        inversions += verdict.inversions;
        inversions_of_used += timeline.report().edges.iter().map(|edge| edge.violations_after).sum::<u64>();
        let steps: Vec<usize> = timeline.report().clocks.iter().map(|clock| clock.steps.len()).collect();
        stepped_once += usize::from(steps.iter().sum::<usize>() == 1 && steps[clock] == 1);
        placed += usize::from(timeline.report().clocks[clock].steps.first().is_some_and(|found| {
            let nanos = |ticks: u64| ticks as f64 / world.clocks[clock].frequency_hz as f64 * 1e9;
            let (last, first) = (nanos(found.last_ticks), nanos(found.first_ticks));
            let [before, behind] = [step - 1.0, step].map(|time| nanos(world.clocks[clock].ticks(time)));
            last <= before && behind <= first && first - last - jump <= 20.5e6
        }));
    }
    println!(
        "\n30 graphs: least coverage {:.2} %; {found} of {wrong} wrong matches left out, and {right} of {messages} right ones; \
         {stepped_once} with the one step on its clock, {placed} placed within one exchange; {inversions} inversions, \
         {inversions_of_used} of them of messages that are used",
        least_coverage * 100.0
    );
}
