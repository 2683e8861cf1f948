//! `cargo bench-peers KIND …`: measures speed and memory, compared with other programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::main("bench", bench::run)
}
