//! Experiments: `cargo run -p lab -- EXPERIMENT`. Each prints Markdown.

mod pages;
mod parallel;
mod resolution;

use std::process::ExitCode;

use workbench::Outcome;

const USAGE: &str =
    "usage: cargo run -p lab -- parallel [TRACE]   how analyses get faster with threads, and when \
                     they wait for storage
       cargo run -p lab -- resolution         how exactly times are known, by the packets that are on";

fn main() -> ExitCode {
    workbench::main("lab", run)
}

fn run(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((name, rest)) if name == "parallel" => parallel::run(rest),
        Some((name, rest)) if name == "resolution" => resolution::run(rest),
        _ => Err(USAGE.into()),
    }
}
