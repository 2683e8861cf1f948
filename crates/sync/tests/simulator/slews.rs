//! A grid of slewed clocks: how fast and how long they are slewed, amid messages of several delays and distances.

use std::fmt;

use super::{Delay, Protocol, Wander, World};

/// How the delays of both directions are related.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub name: &'static str,
    /// Least delays there and back, as shares of the slew's delay.
    least: [f64; 2],
    /// Mean delays above the least, as shares of it.
    mean: [f64; 2],
}

const SHAPES: [Shape; 5] = [
    Shape { name: "plain", least: [1.0, 1.0], mean: [0.5, 0.5] },
    Shape { name: "by chance", least: [0.02, 0.02], mean: [1.0, 1.0] },
    Shape { name: "slow there", least: [1.0, 0.02], mean: [0.5, 0.01] },
    Shape { name: "slow back", least: [0.02, 1.0], mean: [0.05, 0.05] },
    Shape { name: "even", least: [1.0, 1.0], mean: [0.01, 0.01] },
];
const DELAYS_NS: [f64; 4] = [1e3, 40e3, 500e3, 5e6];
const PERIODS_NS: [f64; 4] = [1e6, 10e6, 100e6, 1e9];
const PPM: [f64; 6] = [1.0, 5.0, 20.0, 50.0, 150.0, 500.0];
const SECONDS: [f64; 5] = [0.5, 2.0, 6.0, 20.0, 60.0];

/// A clock that runs `ppm` faster for some seconds, and the messages with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slew {
    pub shape: Shape,
    pub delay_ns: f64,
    pub period_ns: f64,
    pub ppm: f64,
    pub seconds: f64,
}

impl fmt::Display for Slew {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slew { shape, delay_ns, period_ns, ppm, seconds } = self;
        write!(
            out,
            "{ppm} ppm for {seconds} s, delays of {} µs ({}), messages {} ms apart",
            delay_ns / 1e3,
            shape.name,
            period_ns / 1e6
        )
    }
}

/// The whole grid.
pub fn all() -> Vec<Slew> {
    let mut all = Vec::new();
    for shape in SHAPES {
        for delay_ns in DELAYS_NS {
            for period_ns in PERIODS_NS.into_iter().filter(|&period_ns| is_usual(period_ns, delay_ns)) {
                for (ppm, seconds) in PPM.into_iter().flat_map(|ppm| SECONDS.map(|seconds| (ppm, seconds))) {
                    all.push(Slew { shape, delay_ns, period_ns, ppm, seconds });
                }
            }
        }
    }
    all
}

/// Messages a millisecond apart are those of shared memory.
fn is_usual(period_ns: f64, delay_ns: f64) -> bool {
    period_ns >= delay_ns * 8.0 && (period_ns > 1e6 || delay_ns < 2e3)
}

impl Slew {
    /// The world of a slew: clock 1 is slewed. Each seed draws other delays and begins the slew at another time.
    pub fn world(&self, seed: u64) -> World {
        let Slew { shape, delay_ns, period_ns, ppm, seconds } = *self;
        let length = if period_ns < 5e6 { 8.0 + seconds.min(20.0) * 1.5 } else { 20.0 + seconds * 1.5 };
        let drawn = (ppm * 10.0 + seconds * 3.0 + delay_ns) as u64 + seed * 1_000_003;
        let mut world = World::new(drawn, length);
        world.add(1_000_000_000, 0.0, Wander::None);
        world.add(1_000_000_000, 10.0, Wander::None);
        let from = length * 1e9 * 0.3 + world.rng.f64() * 1e9;
        world.clocks[1] = world.clocks[1].clone().slewing(from, seconds * 1e9, ppm);
        let [there, back] = [0, 1].map(|way| Delay {
            least: shape.least[way] * delay_ns,
            mean: shape.mean[way] * delay_ns,
            rare: 0,
            tail: 0.0,
        });
        world.exchange(0, 1, Protocol { period_ns, burst: 1, first: there, there, back, hold_ns: 5_000.0 });
        world
    }
}
