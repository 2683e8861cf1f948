//! The program `hodo`.

use std::process::ExitCode;

fn main() -> ExitCode {
    hodo::run(&std::env::args_os().collect::<Vec<_>>())
}
