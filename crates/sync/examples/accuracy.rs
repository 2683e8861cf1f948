//! The table of docs/clocks.md, from the simulator.
//!
//!     cargo run --release -p hodo-sync --example accuracy

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use hodo_sync::Method;
use simulator::{Protocol, Wander, World};

fn main() {
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
