//! `cargo judge arm`: encodes what an emulator ran as Arm's trace units would, and compares our decoding with the emulator's
//! account and with OpenCSD's. `lab/arm` does the work.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::USAGE;
use crate::{Outcome, command, setup, workloads};

/// Sources of the lab, compiled for AArch64 without shared libraries, `thumb` for AArch32, and their arguments.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("thumb", &[]),
    ("fib", &["15"]),
    ("threads", &[]),
    ("tail_calls", &[]),
    ("seven_calls", &[]),
    ("habits", &[]),
    ("slowpath", &[]),
    ("ticks", &[]),
];

/// Judges these programs, or all, and the classes of instructions; with `--snapshot`, folders that others wrote.
pub(super) fn run(names: &[String]) -> Outcome {
    if let [snapshot, places @ ..] = names
        && snapshot == "--snapshot"
    {
        return start(Path::new("snapshot"), &places.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if names.iter().any(|name| PROGRAMS.iter().all(|(program, _)| program != name)) {
        return Err(USAGE.into());
    }
    start(Path::new("classes"), &[])?;
    let folder = folder();
    for (name, arguments) in PROGRAMS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let program = folder.join(name);
            let is_thumb = *name == "thumb";
            let mut compile =
                Command::new(if is_thumb { "arm-linux-gnueabihf-gcc" } else { "aarch64-linux-gnu-gcc" });
            if is_thumb {
                compile.args(["-mthumb", "-nostdlib", "-fno-inline"]);
            }
            compile.args(["-O2", "-static", "-pthread", "-o"]).arg(&program);
            command::quietly(compile.arg(workloads::source(&format!("{name}.c"))).arg("-lm"))?;
            println!("{name}");
            start(&program, arguments)?;
        }
    }
    Ok(())
}

fn folder() -> PathBuf {
    command::target().join("judge/arm")
}

/// Runs `lab/arm` for a program, or for one of its commands.
fn start(program: &Path, arguments: &[&str]) -> Outcome {
    setup::arm()?;
    command::run(&mut command::cargo(&["build", "--release", "-p", "arm-judge"]))?;
    std::fs::create_dir_all(folder())?;
    let mut judge = Command::new(command::target().join("release/hodo-arm"));
    command::run(judge.arg("--folder").arg(folder().join("snapshots")).arg(program).args(arguments))
}
