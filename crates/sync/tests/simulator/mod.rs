//! A simulator of oscillators and message delays, which knows the true times.
//!
//! Time is true time in nanoseconds; a clock's reading is its phase, cut to whole ticks.

#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod slews;

use std::collections::BTreeSet;

use fastrand::Rng;
use hodo_sync::{Clock, ClockGraph, ClockId, Pair, Timeline};

/// How an oscillator's frequency changes.
#[derive(Clone, Copy, Debug)]
pub enum Wander {
    None,
    /// Up and down between ±`ppm` in `period_s`.
    Triangle {
        ppm: f64,
        period_s: f64,
    },
    /// Each half second it turns up or down at up to `ppm_per_s`, and stays within ±`ppm`.
    Walk {
        ppm: f64,
        ppm_per_s: f64,
    },
}

/// A clock and how it runs.
#[derive(Clone, Debug)]
pub struct Oscillator {
    pub frequency_hz: u64,
    start_ticks: f64,
    /// One for each [`PIECE_NS`].
    pieces: Vec<Piece>,
    steps: Vec<Step>,
    slews: Vec<Slew>,
}

/// A time of constant wander: the drift and the phase at its begin, and how fast the drift changes.
#[derive(Clone, Debug)]
struct Piece {
    drift: f64,
    phase: f64,
    turn: f64,
}

/// A jump at a true time, both in nanoseconds.
#[derive(Clone, Debug)]
struct Step {
    time: f64,
    jump: f64,
}

/// A further drift for some nanoseconds of true time, as NTP slews.
#[derive(Clone, Debug)]
struct Slew {
    from: f64,
    duration: f64,
    drift: f64,
}

const PIECE_NS: f64 = 0.5e9;

impl Oscillator {
    pub fn new(rng: &mut Rng, frequency_hz: u64, drift_ppm: f64, wander: Wander, seconds: f64) -> Oscillator {
        let (mut drift, mut phase, mut turned) = (0.0, 0.0, 0.0f64);
        let mut pieces = Vec::new();
        for index in 0..=(seconds * 1e9 / PIECE_NS) as usize + 1 {
            let turn = match wander {
                Wander::None => 0.0,
                Wander::Triangle { ppm, period_s } => {
                    let quarter = (index as f64 * PIECE_NS / 1e9 / period_s * 4.0) as u64 % 4;
                    let rate = 4.0 * ppm / period_s;
                    if quarter == 1 || quarter == 2 { -rate } else { rate }
                }
                Wander::Walk { ppm, ppm_per_s } => {
                    let turn = (rng.f64() * 2.0 - 1.0) * ppm_per_s;
                    if (turned + turn * PIECE_NS / 1e9).abs() > ppm { -turn } else { turn }
                }
            };
            pieces.push(Piece { drift: (drift_ppm + drift) * 1e-6, phase, turn: turn * 1e-15 });
            let length = PIECE_NS;
            phase += (drift_ppm + drift) * 1e-6 * length + turn * 1e-15 * length * length / 2.0;
            drift += turn * length / 1e9;
            turned += turn * length / 1e9;
        }
        Oscillator {
            frequency_hz,
            start_ticks: rng.f64() * 1e6,
            pieces,
            steps: Vec::new(),
            slews: Vec::new(),
        }
    }

    pub fn starting_at(mut self, ticks: f64) -> Oscillator {
        self.start_ticks = ticks;
        self
    }

    pub fn stepping(mut self, time_ns: f64, jump_ns: f64) -> Oscillator {
        self.steps.push(Step { time: time_ns, jump: jump_ns });
        self
    }

    /// Lets the clock run `ppm` faster for a while: its frequency changes at once, and back at once.
    pub fn slewing(mut self, time_ns: f64, duration_ns: f64, ppm: f64) -> Oscillator {
        self.slews.push(Slew { from: time_ns, duration: duration_ns, drift: ppm * 1e-6 });
        self
    }

    /// The clock's own nanoseconds since the start, at a true time; steps and slews included.
    pub fn nanos(&self, time: f64) -> f64 {
        let index = ((time / PIECE_NS).max(0.0) as usize).min(self.pieces.len() - 1);
        let Piece { drift, phase, turn } = self.pieces[index];
        let apart = time - index as f64 * PIECE_NS;
        let jumps: f64 = self.steps.iter().filter(|step| step.time <= time).map(|step| step.jump).sum();
        let slewed = |slew: &Slew| (time - slew.from).clamp(0.0, slew.duration) * slew.drift;
        let slewed: f64 = self.slews.iter().map(slewed).sum();
        time + phase + drift * apart + turn * apart * apart / 2.0 + jumps + slewed
    }

    pub fn ticks(&self, time: f64) -> u64 {
        (self.start_ticks + self.nanos(time) * self.frequency_hz as f64 / 1e9).floor().max(0.0) as u64
    }

    /// Nanoseconds since tick 0: what a timeline with this clock as reference shows.
    pub fn timeline(&self, time: f64) -> f64 {
        self.start_ticks * 1e9 / self.frequency_hz as f64 + self.nanos(time)
    }
}

/// How long messages take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    pub least: f64,
    /// Mean of the exponentially distributed time that is added to `least`.
    pub mean: f64,
    /// One in this many is `tail` times as long.
    pub rare: u32,
    pub tail: f64,
}

impl Delay {
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let added = -self.mean * (1.0 - rng.f64()).ln();
        let heavy = self.rare > 0 && rng.u32(0..self.rare) == 0;
        // A Pareto tail of index 1.5 where it is heavy.
        let tail = if heavy { self.tail * self.mean * (1.0 - rng.f64()).powf(-1.0 / 1.5) } else { 0.0 };
        self.least + added + tail.min(1e9)
    }
}

/// How two clocks exchange messages.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    pub period_ns: f64,
    /// Exchanges a period; the first starts with `first`, the rest with `there`.
    pub burst: u32,
    pub first: Delay,
    pub there: Delay,
    pub back: Delay,
    /// Between a slave's receiving and its sending.
    pub hold_ns: f64,
}

impl Protocol {
    /// Round trips of 1.2 µs at least, 1.5 µs mostly.
    pub fn polling() -> Protocol {
        let delay = Delay { least: 480.0, mean: 130.0, rare: 200, tail: 20.0 };
        Protocol { period_ns: 10e6, burst: 1, first: delay, there: delay, back: delay, hold_ns: 150.0 }
    }

    /// An interrupt (26 µs at least, 81 µs mostly) and four polled exchanges in its handler.
    pub fn interrupt_and_burst() -> Protocol {
        let there = Delay { least: 800.0, mean: 180.0, rare: 200, tail: 20.0 };
        let back = Delay { least: 550.0, mean: 130.0, rare: 200, tail: 20.0 };
        Protocol { burst: 5, first: Protocol::interrupt().first, there, back, ..Protocol::polling() }
    }

    /// One interrupt an exchange.
    pub fn interrupt() -> Protocol {
        let first = Delay { least: 25_000.0, mean: 55_000.0, rare: 100, tail: 5.0 };
        Protocol { first, there: first, ..Protocol::polling() }
    }
}

/// A message with the truth.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub pair: Pair,
    pub sent: f64,
    pub received: f64,
    pub wrong: bool,
}

/// Clocks and messages.
pub struct World {
    pub clocks: Vec<Oscillator>,
    pub messages: Vec<Message>,
    pub seconds: f64,
    pub rng: Rng,
}

impl World {
    pub fn new(seed: u64, seconds: f64) -> World {
        World { clocks: Vec::new(), messages: Vec::new(), seconds, rng: Rng::with_seed(seed) }
    }

    pub fn add(&mut self, frequency_hz: u64, drift_ppm: f64, wander: Wander) -> usize {
        let clock = Oscillator::new(&mut self.rng, frequency_hz, drift_ppm, wander, self.seconds);
        self.clocks.push(clock);
        self.clocks.len() - 1
    }

    fn message(&mut self, from: usize, to: usize, sent: f64, received: f64) {
        let pair = Pair {
            send_clock: ClockId(from as u32),
            send_ticks: self.clocks[from].ticks(sent),
            recv_clock: ClockId(to as u32),
            recv_ticks: self.clocks[to].ticks(received),
            id: self.messages.len() as u64,
        };
        self.messages.push(Message { pair, sent, received, wrong: false });
    }

    /// Lets two clocks exchange messages to the end of time.
    pub fn exchange(&mut self, master: usize, slave: usize, protocol: Protocol) {
        let mut start = self.rng.f64() * protocol.period_ns;
        while start < self.seconds * 1e9 - 1e6 {
            let mut time = start;
            for index in 0..protocol.burst {
                let there = if index == 0 { protocol.first } else { protocol.there };
                let received = time + there.draw(&mut self.rng);
                let sent = received + protocol.hold_ns;
                let back = sent + protocol.back.draw(&mut self.rng);
                self.message(master, slave, time, received);
                self.message(slave, master, sent, back);
                time = back + 300.0;
            }
            start = (start + protocol.period_ns).max(time);
        }
    }

    /// Gives a share of the messages the receiver's reading of another message of the same kind near by.
    pub fn mismatch(&mut self, share: f64) {
        let truth = self.messages.clone();
        for index in 0..truth.len() {
            if self.rng.f64() >= share {
                continue;
            }
            let way = |message: &Message| (message.pair.send_clock, message.pair.recv_clock);
            let near = (index.saturating_sub(100)..(index + 100).min(truth.len())).filter(|&other| {
                way(&truth[other]) == way(&truth[index])
                    && (truth[other].received - truth[index].received).abs() > 5e6
            });
            let near: Vec<usize> = near.collect();
            if let Some(&other) = self.rng.choice(&near) {
                self.messages[index].pair.recv_ticks = truth[other].pair.recv_ticks;
                self.messages[index].wrong = true;
            }
        }
    }

    /// Ten clocks of several frequencies that drift and wander.
    pub fn ten_clocks(seed: u64) -> World {
        let mut world = World::new(seed, 30.0);
        let frequencies = [1_000_000_000, 2_300_000_000, 25_000_000, 1_000_000_000, 3_000_000_000];
        for clock in 0..10 {
            let drift = world.rng.f64() * 120.0 - 60.0;
            let wander = Wander::Walk { ppm: 3.0, ppm_per_s: 0.8 };
            world.add(frequencies[clock % 5], if clock == 0 { 0.0 } else { drift }, wander);
        }
        world
    }

    /// Clock 0 talks to 1, 2, 3; these to 4, 5, 6; these to 7, 8, 9; and 4 to 5: an exchange each 20 ms.
    pub fn talk_over_three_hops(&mut self) {
        let delay = Delay { least: 8_000.0, mean: 12_000.0, rare: 50, tail: 10.0 };
        let protocol =
            Protocol { period_ns: 20e6, burst: 1, first: delay, there: delay, back: delay, hold_ns: 5_000.0 };
        for slave in 1..10usize {
            self.exchange(slave.saturating_sub(3), slave, protocol);
        }
        self.exchange(4, 5, protocol);
    }

    /// Counts the wrong matches, and what a timeline dropped.
    pub fn wrong_matches(&self, timeline: &Timeline) -> WrongMatches {
        let edges = &timeline.report().edges;
        let dropped: BTreeSet<u64> =
            edges.iter().flat_map(|edge| &edge.dropped_pairs).map(|dropped| dropped.id).collect();
        let wrong = || self.messages.iter().filter(|message| message.wrong);
        let found = wrong().filter(|message| dropped.contains(&message.pair.id)).count();
        WrongMatches { found, wrong: wrong().count(), right: dropped.len() - found }
    }

    /// A graph of these clocks with bounds of 100 ppm and `wander_ppb_per_s`, without messages.
    pub fn graph(&self, wander_ppb_per_s: u64) -> ClockGraph {
        let mut graph = ClockGraph::new();
        for (index, clock) in self.clocks.iter().enumerate() {
            let clock = Clock::new(format!("clock {index}"), clock.frequency_hz);
            graph.add(clock.with_bounds(100_000, wander_ppb_per_s));
        }
        graph
    }

    /// The same with all messages.
    pub fn full_graph(&self, wander_ppb_per_s: u64) -> ClockGraph {
        let mut graph = self.graph(wander_ppb_per_s);
        for message in &self.messages {
            graph.push(message.pair).unwrap();
        }
        graph
    }

    /// How a timeline compares with the truth, at `events` random moments of each clock but the reference.
    pub fn judge(&mut self, timeline: &Timeline, events: usize) -> Verdict {
        let mut verdict = Verdict::default();
        for clock in 1..self.clocks.len() {
            for _ in 0..events {
                let time = self.rng.f64() * self.seconds * 1e9;
                let stamp = timeline.convert(ClockId(clock as u32), self.clocks[clock].ticks(time));
                verdict.add(self.clocks[0].timeline(time), stamp);
            }
        }
        for message in self.messages.iter().filter(|message| !message.wrong) {
            let pair = message.pair;
            let sent = timeline.convert(pair.send_clock, pair.send_ticks).estimate;
            let received = timeline.convert(pair.recv_clock, pair.recv_ticks).estimate;
            verdict.messages += 1;
            verdict.inversions += usize::from(received < sent);
        }
        verdict.errors.sort_by(f64::total_cmp);
        verdict.half_widths.sort_unstable();
        verdict
    }
}

/// How many matches are wrong, and how many of these a timeline recognises.
#[derive(Clone, Copy, Debug)]
pub struct WrongMatches {
    /// Wrong matches that the timeline dropped.
    pub found: usize,
    /// All wrong matches.
    pub wrong: usize,
    /// Right matches that the timeline dropped.
    pub right: usize,
}

/// Errors against the truth, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub errors: Vec<f64>,
    pub half_widths: Vec<u64>,
    pub covered: usize,
    pub inversions: usize,
    pub messages: usize,
}

impl Verdict {
    fn add(&mut self, truth: f64, stamp: hodo_sync::Stamp) {
        self.errors.push((stamp.estimate.0 as f64 - truth).abs());
        self.half_widths.push(stamp.half_width().unwrap_or(u64::MAX));
        self.covered += usize::from(stamp.lower.0 as f64 <= truth && truth <= stamp.upper.0 as f64);
    }

    pub fn coverage(&self) -> f64 {
        self.covered as f64 / self.errors.len() as f64
    }

    pub fn error(&self, percent: usize) -> f64 {
        self.errors[(self.errors.len() * percent / 100).min(self.errors.len() - 1)]
    }

    pub fn half_width(&self) -> u64 {
        self.half_widths[self.half_widths.len() / 2]
    }
}
