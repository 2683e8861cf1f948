//! `cargo judge arm`: encodes what an emulator ran as Arm's trace units would, and compares our decoding with the emulator's
//! account and with OpenCSD's. `lab/arm` does the work.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::USAGE;
use crate::{Outcome, command, setup, workloads};

/// A source of the lab, compiled for AArch64, `thumb` for AArch32.
struct Program {
    name: &'static str,
    source: &'static str,
    is_static: bool,
    arguments: &'static [&'static str],
}

const fn linked_statically(name: &'static str, source: &'static str) -> Program {
    Program { name, source, is_static: true, arguments: &[] }
}

const fn linked_dynamically(name: &'static str, source: &'static str) -> Program {
    Program { name, source, is_static: false, arguments: &[] }
}

const PROGRAMS: &[Program] = &[
    linked_statically("thumb", "thumb.c"),
    Program { arguments: &["15"], ..linked_statically("fib", "fib.c") },
    linked_statically("threads", "threads.c"),
    linked_statically("eight_threads", "eight_threads.c"),
    linked_statically("tail_calls", "tail_calls.c"),
    linked_statically("seven_calls", "seven_calls.c"),
    linked_statically("habits", "habits.c"),
    linked_statically("slowpath", "slowpath.c"),
    linked_statically("signals", "signals.c"),
    Program { arguments: &["40"], ..linked_statically("ticks", "ticks.c") },
    linked_statically("throws", "throws.cpp"),
    linked_statically("made_code", "made_code.c"),
    Program { arguments: &["15"], ..linked_dynamically("fib-dynamic", "fib.c") },
    linked_dynamically("threads-dynamic", "threads.c"),
    linked_dynamically("seven_calls-dynamic", "seven_calls.c"),
    Program { arguments: &["40"], ..linked_dynamically("ticks-dynamic", "ticks.c") },
    linked_dynamically("throws-dynamic", "throws.cpp"),
];

/// The name of a machine's kernel, with its first process.
const MACHINE: &str = "machine";
/// The name of a board's Cortex-M, and its program.
const BOARD: &str = "board";
const SLAVE: &str = "slave-cortex-m3.elf";
const FIRST_PROCESS: Program = linked_statically("first_process", "first_process.c");

/// Judges these programs, or all with a machine's kernel, and the classes of instructions; with `--snapshot`, folders that others wrote.
pub(super) fn run(names: &[String]) -> Outcome {
    if let [snapshot, places @ ..] = names
        && snapshot == "--snapshot"
    {
        return start(Path::new("snapshot"), &places.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let is_wanted = |known: &str| names.is_empty() || names.iter().any(|name| name == known);
    if names
        .iter()
        .any(|name| name != MACHINE && name != BOARD && PROGRAMS.iter().all(|program| program.name != name))
    {
        return Err(USAGE.into());
    }
    start(Path::new("classes"), &[])?;
    for program in PROGRAMS {
        if is_wanted(program.name) {
            let compiled = compile(program)?;
            println!("{}", program.name);
            start(&compiled, program.arguments)?;
        }
    }
    if is_wanted(MACHINE) {
        println!("{MACHINE}");
        let first_process = compile(&FIRST_PROCESS)?;
        start(Path::new(MACHINE), &[&first_process.to_string_lossy()])?;
    }
    if is_wanted(BOARD) {
        println!("{BOARD}");
        board()?;
    }
    Ok(())
}

/// Records a board with a Cortex-M, and judges its hardware trace.
fn board() -> Outcome {
    let program = workbench::board::ensure()?.join(SLAVE);
    command::run(&mut command::cargo(&["build", "--release", "-p", "hodo", "-p", "hodo-emulator"]))?;
    let recording = folder().join(BOARD);
    _ = std::fs::remove_dir_all(&recording);
    let mut record = Command::new(command::hodo());
    record.args([
        "record",
        "-q",
        "--engine",
        "board",
        "--board",
        "slaves=0,cortex-m3=1,time=5s,trace=hardware",
    ]);
    command::run(record.arg(&recording))?;
    let trace = recording.join("slave-0/hardware/trace.data");
    start(Path::new(BOARD), &[&trace.to_string_lossy(), &program.to_string_lossy()])
}

fn compile(program: &Program) -> Outcome<PathBuf> {
    let to = folder().join(program.name);
    let is_thumb = program.name == "thumb";
    let mut compile = Command::new(match program.source.ends_with(".cpp") {
        _ if is_thumb => "arm-linux-gnueabihf-gcc",
        true => "aarch64-linux-gnu-g++",
        false => "aarch64-linux-gnu-gcc",
    });
    if program.is_static {
        compile.arg("-static");
    }
    compile.args(["-O2", "-pthread", "-o"]).arg(&to).arg(workloads::source(program.source));
    // It needs no library, and Debian's compiler comes without one.
    compile.args(if is_thumb { &["-mthumb", "-nostdlib", "-fno-inline"][..] } else { &["-lm"] });
    command::quietly(&mut compile)?;
    Ok(to)
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
