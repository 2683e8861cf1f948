//! `cargo judge KIND …`: decodes, and compares with programs that we did not write.

use std::process::ExitCode;

fn main() -> ExitCode {
    workbench::main("judge", judge::run)
}
