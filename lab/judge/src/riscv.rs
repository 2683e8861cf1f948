//! `cargo judge riscv`: RISC-V's instruction trace of programs that QEMU runs. `lab/riscv` does the work.

use crate::{
    Outcome, command,
    setup::{self, Need},
};

/// Runs with the names of programs and modes; the error contains the number of differences.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let mut cargo = command::cargo(&["run", "--release", "-p", "riscv-judge", "--"]);
    command::run(cargo.args(names))
}
