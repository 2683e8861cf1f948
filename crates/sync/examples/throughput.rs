//! Measures how fast 10 million pairs are put on a timeline, and a reading is converted. Times are CPU times, as
//! /proc/self/schedstat gives them: other programs do not disturb them much.
//!
//!     cargo run --release -p hodo-sync --example throughput [PAIRS]

use std::{fs, hint::black_box, time::Duration};

use fastrand::Rng;
use hodo_sync::{Clock, ClockGraph, ClockId, Method, Pair};

/// Exchanges of two messages each, `spacing` ns apart, with a share of wrong matches.
fn pairs(count: u64, spacing: u64, wrong: f64) -> Vec<Pair> {
    let mut rng = Rng::with_seed(1);
    let slave = |time: u64| {
        let seconds = time as f64 / 1e9;
        (time as f64 + 5e9 + 3e4 * seconds + 2e3 * (seconds / 7.0).sin()) as u64
    };
    let delay = |rng: &mut Rng| 1_000 + (-20_000.0 * (1.0 - rng.f64()).ln()) as u64;
    (0..count)
        .map(|id| {
            let sent = 1_000_000_000 + id / 2 * spacing;
            let received = sent + delay(&mut rng);
            let (mut recv, send) =
                if id % 2 == 0 { (slave(received), sent) } else { (received, slave(sent)) };
            if rng.f64() < wrong {
                recv = recv.wrapping_add(rng.u64(0..40_000_000)).wrapping_sub(20_000_000);
            }
            let (send_clock, recv_clock) = (ClockId((id % 2) as u32), ClockId(1 - (id % 2) as u32));
            Pair { send_clock, send_ticks: send, recv_clock, recv_ticks: recv, id }
        })
        .collect()
}

fn graph() -> ClockGraph {
    let mut graph = ClockGraph::new();
    graph.add(Clock::new("master", 1_000_000_000));
    graph.add(Clock::new("slave", 1_000_000_000));
    graph
}

/// Time that this thread had a processor.
fn now() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

fn measure(name: &str, pairs: &[Pair]) {
    let start = now();
    let mut graph = graph();
    for &pair in pairs {
        graph.push(pair).expect("both clocks are in the graph");
    }
    let pushed = now() - start;
    let held = graph.messages_in_memory();
    let timeline = graph.solve(Method::Bounded);
    let solved = now() - start;
    let report = &timeline.report().edges[0];
    println!(
        "{name}: {} pairs in {:.2} s ({:.2} s while they come in, then {held} held); used {}, dropped {}, half-width {} ns",
        pairs.len(),
        solved.as_secs_f64(),
        pushed.as_secs_f64(),
        report.used,
        report.dropped,
        report.half_width_ns.unwrap_or(0),
    );
    let readings: Vec<u64> =
        pairs.iter().filter(|pair| pair.send_clock.0 == 1).map(|pair| pair.send_ticks).collect();
    let each = |start: Duration| (now() - start).as_nanos() as f64 / readings.len() as f64;
    let start = now();
    let mut cursor = timeline.cursor(ClockId(1));
    for &ticks in &readings {
        black_box(cursor.convert(ticks));
    }
    let in_order = each(start);
    let start = now();
    for &ticks in &readings {
        black_box(timeline.convert(ClockId(1), ticks));
    }
    println!("  conversion: {in_order:.1} ns in order, {:.1} ns by search", each(start));
}

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000_000);
    measure("dense (12 µs apart)", &pairs(count, 12_000, 0.0));
    measure("dense, 1 % wrong", &pairs(count, 12_000, 0.01));
    measure("sparse (10 ms apart)", &pairs(count, 10_000_000, 0.0));
    measure("sparse, 1 % wrong", &pairs(count, 10_000_000, 0.01));
    let mut rng = Rng::with_seed(2);
    let random = |id| Pair {
        send_clock: ClockId((id % 2) as u32),
        send_ticks: rng.u64(..),
        recv_clock: ClockId(1 - (id % 2) as u32),
        recv_ticks: rng.u64(..),
        id,
    };
    measure("random readings", &(0..count / 10).map(random).collect::<Vec<_>>());
}
