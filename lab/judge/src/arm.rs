//! `cargo judge arm`: encodes what an emulator ran as Arm's trace units would, and compares our decoding with the emulator's
//! account and with OpenCSD's. `bin/arm` does the work.

use std::{path::Path, process::Command};

use super::USAGE;
use crate::{Outcome, command, setup, workloads};

/// Sources of the lab, compiled for AArch64 without shared libraries, and their arguments.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("fib", &["15"]),
    ("threads", &[]),
    ("tail_calls", &[]),
    ("seven_calls", &[]),
    ("habits", &[]),
    ("slowpath", &[]),
    ("ticks", &[]),
];

/// Judges these programs, or all, and the classes of instructions.
pub(super) fn run(names: &[String]) -> Outcome {
    if names.iter().any(|name| PROGRAMS.iter().all(|(program, _)| program != name)) {
        return Err(USAGE.into());
    }
    setup::arm()?;
    command::run(&mut command::cargo(&["build", "--release", "-p", "judge", "--bin", "hodo-arm"]))?;
    let folder = command::target().join("judge/arm");
    std::fs::create_dir_all(&folder)?;
    let judge = |program: &Path, arguments: &[&str]| {
        let mut judge = Command::new(command::target().join("release/hodo-arm"));
        command::run(judge.arg("--folder").arg(folder.join("snapshots")).arg(program).args(arguments))
    };
    judge(Path::new("classes"), &[])?;
    for (name, arguments) in PROGRAMS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let program = folder.join(name);
            let mut compile = Command::new("aarch64-linux-gnu-gcc");
            compile.args(["-O2", "-static", "-pthread", "-o"]).arg(&program);
            command::quietly(compile.arg(workloads::source(&format!("{name}.c"))).arg("-lm"))?;
            println!("{name}");
            judge(&program, arguments)?;
        }
    }
    Ok(())
}
