//! `cargo bench-peers KIND …`: measures speed and memory, beside other programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::main("bench", bench::run)
}
