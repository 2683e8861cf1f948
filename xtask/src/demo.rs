//! `cargo xtask demo`: records two small programs and shows what `hodo` says about them. It ends with what stands out.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome, command, demo_board,
    setup::{self, Need},
    workloads,
};

/// Times for each short call; the default has one each 4,096 jumps.
const EXACT_TIME: [&str; 2] = ["--time-every", "16"];

/// Runs the demo.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    match arguments {
        [] => {}
        [board] if board == "board" => return demo_board::run(),
        _ => return Err("usage: cargo xtask demo [board]".into()),
    }
    setup::ensure(Need::Demo)?;
    build_hodo()?;
    let folder = command::target().join("demo");
    fs::create_dir_all(&folder)?;
    println!("\n━━ 1. A service answers requests. Is there one that waits too long?\n");
    let slow = record(workloads::compile("slowpath.c", &[], &folder)?, &EXACT_TIME)?;
    show(&["report", "functions", "--limit", "6"], &slow)?;
    println!(
        "\nThe profile is of the average. These are all executions of one function, and the slow ones beside it:\n"
    );
    show(&["latency", "--function", "handle_request", "--compare", "--limit", "8"], &slow)?;
    println!("\n━━ 2. Four threads share the work. Does each have its share?\n");
    let uneven = record(workloads::compile("threads.c", &["-pthread"], &folder)?, &[])?;
    show(&["report", "threads"], &uneven)?;
    println!("\n━━ What stands out\n");
    show(&["explain"], &slow)?;
    show(&["explain"], &uneven)
}

/// Builds `hodo` in the profile that is ready soonest. Demos read small recordings.
pub(crate) fn build_hodo() -> Outcome {
    command::run(&mut command::cargo(&["build", "--profile", "quick", "-p", "hodo"]))
}

/// The `hodo` of the demos.
pub(crate) fn hodo() -> PathBuf {
    command::target().join("quick/hodo")
}

/// Records a program into its folder, and prints the command.
fn record(program: PathBuf, options: &[&str]) -> Outcome<PathBuf> {
    let recording = program.with_extension("perf.data");
    println!("$ hodo record {}-o {} -- {}\n", join(options), short(&recording), short(&program));
    let mut command = Command::new(hodo());
    command.arg("record").args(options).arg("-o").arg(&recording).arg("--").arg(&program);
    command::quietly(&mut command)?;
    println!();
    Ok(recording)
}

/// Prints a command and its output, as in a terminal.
fn show(arguments: &[&str], recording: &Path) -> Outcome {
    let path = short(recording);
    println!("$ hodo {}{path}\n", join(arguments));
    command::quietly(Command::new(hodo()).args(arguments).arg(path).current_dir(command::root()))
}

/// The words, with a space after each.
fn join(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word} ")).collect()
}

/// A path as typed in the root of the repository.
fn short(path: &Path) -> String {
    path.strip_prefix(command::root()).unwrap_or(path).display().to_string()
}
