//! The pictures of docs/clocks.md, from the simulator.
//!
//!     cargo run --release -p hodo-sync --example pictures

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use std::{fmt::Write, fs, io, path::Path};

use hodo_sync::{ClockId, Method, Timeline};
use simulator::{Protocol, Wander, World};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 60.0;

/// A plot of microseconds over seconds.
struct Plot {
    seconds: (f64, f64),
    micros: (f64, f64),
    svg: String,
}

impl Plot {
    fn new(seconds: (f64, f64), micros: (f64, f64), title: &str) -> Plot {
        let mut plot = Plot { seconds, micros, svg: String::new() };
        let _ = write!(
            plot.svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<text x="{MARGIN}" y="20" font-size="14">{title}</text>
"##
        );
        for part in 0..=4 {
            let micro = micros.0 + (micros.1 - micros.0) * f64::from(part) / 4.0;
            let (x, y) = plot.place(seconds.0, micro);
            let _ = writeln!(
                plot.svg,
                r##"<path d="M{x:.1} {y:.1}H{:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{micro:.1} µs</text>"##,
                WIDTH - 40.0,
                x - 6.0,
                y + 4.0,
            );
            let second = seconds.0 + (seconds.1 - seconds.0) * f64::from(part) / 4.0;
            let (x, y) = plot.place(second, micros.0);
            let _ = writeln!(
                plot.svg,
                r##"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{second:.2} s</text>"##,
                y + 20.0
            );
        }
        plot
    }

    fn place(&self, second: f64, micro: f64) -> (f64, f64) {
        let share = |value: f64, (low, high): (f64, f64)| ((value - low) / (high - low)).clamp(0.0, 1.0);
        let x = MARGIN + share(second, self.seconds) * (WIDTH - MARGIN - 40.0);
        (x, 30.0 + (1.0 - share(micro, self.micros)) * (HEIGHT - 70.0))
    }

    fn line(&mut self, points: &[(f64, f64)], colour: &str, name: &str, row: f64) {
        let mut path = String::new();
        for (index, &(second, micro)) in points.iter().enumerate() {
            let (x, y) = self.place(second, micro);
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        let _ =
            writeln!(self.svg, r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>"##);
        let y = 44.0 + row * 16.0;
        let _ = writeln!(self.svg, r##"<text x="{}" y="{y}" fill="{colour}">{name}</text>"##, MARGIN + 10.0);
    }

    fn band(&mut self, low: &[(f64, f64)], high: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, &(second, micro)) in low.iter().chain(high.iter().rev()).enumerate() {
            let (x, y) = self.place(second, micro);
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        let _ = writeln!(self.svg, r##"<path d="{path}Z" fill="#9ecae1" fill-opacity="0.5"/>"##);
    }

    fn point(&mut self, second: f64, micro: f64, colour: &str) {
        let (x, y) = self.place(second, micro);
        let _ = writeln!(self.svg, r##"<circle cx="{x:.1}" cy="{y:.1}" r="2" fill="{colour}"/>"##);
    }

    fn save(mut self, name: &str) -> io::Result<()> {
        self.svg.push_str("</svg>\n");
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        fs::write(docs.join(name), self.svg)
    }
}

/// Lower bound, estimate and upper bound minus the truth, in microseconds over seconds.
fn errors(world: &World, timeline: &Timeline, seconds: (f64, f64)) -> [Vec<(f64, f64)>; 3] {
    let mut lines = [Vec::new(), Vec::new(), Vec::new()];
    for index in 0..=240 {
        let second = seconds.0 + (seconds.1 - seconds.0) * f64::from(index) / 240.0;
        let time = (second * 1e9).min(world.seconds * 1e9 - 1e6);
        let stamp = timeline.convert(ClockId(1), world.clocks[1].ticks(time));
        let truth = world.clocks[0].timeline(time);
        for (line, value) in lines.iter_mut().zip([stamp.lower, stamp.estimate, stamp.upper]) {
            line.push((second, (value.0 as f64 - truth) / 1_000.0));
        }
    }
    lines
}

fn world(period_ns: f64) -> World {
    let mut world = World::new(7, 60.0);
    world.add(1_000_000_000, 0.0, Wander::None);
    world.add(10_000_000, 37.0, Wander::Triangle { ppm: 5.0, period_s: 20.0 });
    world.exchange(0, 1, Protocol { period_ns, ..Protocol::interrupt_and_burst() });
    world
}

fn main() -> io::Result<()> {
    let wandering = world(10e6);
    let graph = wandering.full_graph(1_000);
    let all = (0.0, 60.0);
    let [low, estimate, high] = errors(&wandering, &graph.solve(Method::Bounded), all);
    let [_, hull, _] = errors(&wandering, &graph.solve(Method::Hull), all);
    let mut plot =
        Plot::new(all, (-16.0, 24.0), "Error over time: interrupt + burst, ±5 ppm of wander in 20 s");
    plot.band(&low, &high);
    plot.line(&hull, "#d62728", "hull: one line", 0.0);
    plot.line(&estimate, "#1f77b4", "bounded, with its interval", 1.0);
    plot.save("clocks-error.svg")?;

    let sparse = world(500e6);
    let timeline = sparse.full_graph(1_000).solve(Method::Bounded);
    let part = (20.0, 24.0);
    let [low, estimate, high] = errors(&sparse, &timeline, part);
    let mut plot =
        Plot::new(part, (-2.0, 2.0), "Two exchanges a second: what messages allow, relative to the truth");
    plot.band(&low, &high);
    plot.line(&estimate, "#1f77b4", "estimate, with its interval", 0.0);
    for message in sparse.messages.iter().filter(|message| (part.0..part.1).contains(&(message.sent / 1e9))) {
        let delay = (message.received - message.sent) / 1_000.0;
        // A message to the slave bounds the error from below, a message from it from above.
        if message.pair.send_clock == ClockId(0) {
            plot.point(message.received / 1e9, -delay, "#2ca02c");
        } else {
            plot.point(message.sent / 1e9, delay, "#ff7f0e");
        }
    }
    plot.line(&[], "#2ca02c", "master → slave: not before", 1.0);
    plot.line(&[], "#ff7f0e", "slave → master: not after", 2.0);
    plot.save("clocks-bounds.svg")
}
