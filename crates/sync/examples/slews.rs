//! How many simulated slews the intervals survive: what docs/clocks.md says under "Limits".
//!
//!     cargo run --release -p hodo-sync --example slews

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use hodo_sync::Method;
use simulator::{Delay, Protocol, Wander, World};

/// Delays: name, the least there and back, and the mean above it, as shares of the scenario's delay.
const SHAPES: [(&str, [f64; 2], [f64; 2]); 5] = [
    ("plain", [1.0, 1.0], [0.5, 0.5]),
    ("by chance", [0.02, 0.02], [1.0, 1.0]),
    ("slow there", [1.0, 0.02], [0.5, 0.01]),
    ("slow back", [0.02, 1.0], [0.05, 0.05]),
    ("even", [1.0, 1.0], [0.01, 0.01]),
];
const DELAYS: [f64; 4] = [1e3, 40e3, 500e3, 5e6];
const PERIODS: [f64; 4] = [1e6, 10e6, 100e6, 1e9];
const PPM: [f64; 6] = [1.0, 5.0, 20.0, 50.0, 150.0, 500.0];
const SECONDS: [f64; 5] = [0.5, 2.0, 6.0, 20.0, 60.0];

fn main() {
    let (mut all, mut missed) = (0, 0);
    for shape in SHAPES {
        for delay in DELAYS {
            // Messages a millisecond apart are those of shared memory.
            for period in
                PERIODS.into_iter().filter(|&period| period >= delay * 8.0 && (period > 1e6 || delay < 2e3))
            {
                for (ppm, seconds) in PPM.into_iter().flat_map(|ppm| SECONDS.map(|seconds| (ppm, seconds))) {
                    all += 1;
                    missed += usize::from(misses(shape, delay, period, (ppm, seconds)));
                }
            }
        }
    }
    println!("{missed} of {all} slews have fewer than 99.9 % of their times covered");
}

fn misses(
    (name, least, mean): (&str, [f64; 2], [f64; 2]),
    delay: f64,
    period_ns: f64,
    (ppm, seconds): (f64, f64),
) -> bool {
    let length = if period_ns < 5e6 { 8.0 + f64::min(seconds, 20.0) * 1.5 } else { 20.0 + seconds * 1.5 };
    let mut world = World::new((ppm * 10.0 + seconds * 3.0 + delay) as u64, length);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(1_000_000_000, 10.0, Wander::None);
    let from = length * 1e9 * 0.3 + world.rng.f64() * 1e9;
    world.clocks[1] = world.clocks[1].clone().slewing(from, seconds * 1e9, ppm);
    let [there, back] =
        [0, 1].map(|way| Delay { least: least[way] * delay, mean: mean[way] * delay, rare: 0, tail: 0.0 });
    world.exchange(0, 1, Protocol { period_ns, burst: 1, first: there, there, back, hold_ns: 5_000.0 });
    let timeline = world.full_graph(1_000).solve(Method::Bounded);
    let covered = world.judge(&timeline, 20_000).coverage();
    if covered < 0.999 {
        println!(
            "{ppm} ppm for {seconds} s, delays of {} µs ({name}), messages {} ms apart: {:.2} %",
            delay / 1e3,
            period_ns / 1e6,
            covered * 100.0
        );
    }
    covered < 0.999
}
