//! `cargo judge KIND …`: decodes, and compares with foreign programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::main("judge", judge::run)
}
