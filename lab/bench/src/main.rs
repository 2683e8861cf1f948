//! The program of this crate: see its library.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::main("bench", bench::run)
}
