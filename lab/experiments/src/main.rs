//! Experiments: `cargo run -p lab -- EXPERIMENT`. Each prints Markdown.

mod deltas;
mod ftrace;
mod kernel;
mod measure;
mod overhead;
mod pages;
mod parallel;
mod profiles;
mod resolution;
mod soak;
mod trf;

use std::process::ExitCode;

use workbench::Outcome;

const USAGE: &str =
    "usage: cargo run -p lab -- parallel [TRACE]   how analyses get faster with threads, and when \
                     they wait for storage
       cargo run -p lab -- resolution         how exactly times are known, by the packets that are on
       cargo run -p lab -- trf [sweeps | fit]   resolution against size, by the periods of packets; what the size is of
       cargo run -p lab -- overhead [programs [NAME…] | ftrace]   what tracing costs, in bytes and in time
       cargo run -p lab -- deltas             histograms of intervals, and sunbursts with and without a tracer
       cargo run -p lab -- kernel             what tracers add to system calls in the kernel, and interrupts off
       cargo run -p lab -- profiles           how much faster programs get by our profiles for compilers
       cargo run -p lab -- soak [MINUTES]     the memory of a server that is recorded natively into a ring";

fn main() -> ExitCode {
    workbench::main("lab", run)
}

fn run(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((name, rest)) if name == "parallel" => parallel::run(rest),
        Some((name, rest)) if name == "resolution" => resolution::run(rest),
        Some((name, rest)) if name == "trf" => trf::run(rest),
        Some((name, rest)) if name == "overhead" => overhead::run(rest),
        Some((name, rest)) if name == "deltas" => deltas::run(rest),
        Some((name, [])) if name == "kernel" => kernel::run(),
        Some((name, [])) if name == "profiles" => profiles::run(),
        Some((name, rest)) if name == "soak" => soak::run(rest),
        _ => Err(USAGE.into()),
    }
}
