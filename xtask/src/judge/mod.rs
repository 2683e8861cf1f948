//! `cargo xtask judge pt`: what we decode, instruction by instruction, against perf's decoder, and our
//! totals against the emulated processor's own count.
//!
//! ```text
//! program ──► hodo record ──► recording ─┬─► hodo script --insns ─┐ per thread
//!                                        ├─► perf script --itrace ─┴─► equal, or the first difference
//!                                        ├─► hodo report functions ─┐
//!                                        └─► hodo info: truth ──────┴─► equal, or both numbers
//! ```

mod cases;
mod difference;
mod programs;
mod streams;
mod totals;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use programs::{PROGRAMS, Program, Ready};
use streams::{Streams, read_hodo, read_perf};

use crate::{
    Outcome, command,
    setup::{self, Need},
};

const USAGE: &str = "usage: cargo xtask judge pt [--list] [--only NAME]… [-e EVENT]
       cargo xtask judge cases [NAME]…";

/// What the command line asks for.
#[derive(Default)]
struct Wish {
    only: Vec<String>,
    event: Option<String>,
    list: bool,
}

/// Judges every program, or those that are named; the error counts the ones that differ.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    if let Some((_, names)) = arguments.split_first().filter(|(first, _)| *first == "cases") {
        return cases::run(names);
    }
    let wish = parse(arguments)?;
    if wish.list {
        for program in PROGRAMS {
            println!("{:14} {}", program.name, program.what);
        }
        return Ok(());
    }
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge");
    println!("{HEADING}");
    let (mut judged, mut slow_downs) = (0, Vec::new());
    let mut failed: Vec<&str> = Vec::new();
    for program in
        PROGRAMS.iter().filter(|p| wish.only.is_empty() || wish.only.iter().any(|name| name == p.name))
    {
        judged += 1;
        match judge(program, wish.event.as_deref(), &folder.join(program.name)) {
            Ok(row) => {
                println!("{row}");
                slow_downs.push(row.slow_down());
                if !row.complaints.is_empty() {
                    failed.push(program.name);
                }
            }
            Err(error) => {
                println!("{:14} {error}", program.name);
                failed.push(program.name);
            }
        }
    }
    slow_downs.sort_by(f64::total_cmp);
    let median = slow_downs.get(slow_downs.len() / 2).copied().unwrap_or(0.0);
    println!(
        "\n{} of {judged} equal; median slow-down of the recorded program {median:.1}×",
        judged - failed.len()
    );
    if failed.is_empty() && judged > 0 {
        Ok(())
    } else {
        Err(format!("not equal: {}", failed.join(", ")).into())
    }
}

/// The instructions that the emulated processor counted in a recording.
pub(crate) fn instructions(recording: &Path) -> Outcome<u64> {
    Ok(totals::truth(recording)?.values().map(|truth| truth.instructions).sum())
}

fn parse(arguments: &[String]) -> Outcome<Wish> {
    let mut arguments = arguments.iter().map(String::as_str);
    if arguments.next() != Some("pt") {
        return Err(USAGE.into());
    }
    let mut wish = Wish::default();
    while let Some(argument) = arguments.next() {
        match argument {
            "--list" => wish.list = true,
            "--only" => wish.only.push(arguments.next().ok_or(USAGE)?.to_owned()),
            "-e" => wish.event = Some(arguments.next().ok_or(USAGE)?.to_owned()),
            _ => return Err(USAGE.into()),
        }
    }
    match wish.only.iter().find(|name| PROGRAMS.iter().all(|program| program.name != **name)) {
        Some(name) => Err(format!("no program `{name}`; `--list` names them").into()),
        None => Ok(wish),
    }
}

const HEADING: &str =
    "program           instructions        calls threads  native  recorded slow-down  recording  result";

/// What was found out about one program.
struct Row {
    name: &'static str,
    instructions: u64,
    calls: u64,
    threads: usize,
    native: Duration,
    recorded: Duration,
    bytes: u64,
    /// What is not equal; empty if all is.
    complaints: Vec<String>,
}

impl Row {
    fn slow_down(&self) -> f64 {
        self.recorded.as_secs_f64() / self.native.as_secs_f64()
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:14} {:15} {:12} {:7} {:5.0} ms {:6.0} ms {:8.1}× {:7.1} MB  {}",
            self.name,
            self.instructions,
            self.calls,
            self.threads,
            self.native.as_secs_f64() * 1e3,
            self.recorded.as_secs_f64() * 1e3,
            self.slow_down(),
            self.bytes as f64 / 1e6,
            if self.complaints.is_empty() { "equal" } else { "DIFFERENT" },
        )?;
        self.complaints.iter().try_for_each(|complaint| write!(f, "\n{complaint}"))
    }
}

fn judge(program: &Program, event: Option<&str>, folder: &Path) -> Outcome<Row> {
    fs::create_dir_all(folder)?;
    let ready = (program.prepare)(folder)?;
    let native = native(&ready, folder)?;
    let recording = folder.join("recording.perf.data");
    let recorded = record(&ready, event, folder, &recording)?;
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| read_perf(&recording, None).map_err(|error| error.to_string()));
        let ours = read_hodo(&recording, None);
        Ok::<_, Box<dyn std::error::Error>>((
            ours?,
            theirs.join().map_err(|_| "reading perf's output failed")??,
        ))
    })?;
    let mut complaints = compare(&recording, &ours, &theirs)?;
    let truth = totals::truth(&recording)?;
    complaints.extend(totals::compare(&recording, &truth, &ours)?);
    Ok(Row {
        name: program.name,
        instructions: ours.threads.values().map(|thread| thread.instructions).sum(),
        calls: truth.values().map(|truth| truth.calls).sum(),
        threads: ours.threads.len(),
        native,
        recorded,
        bytes: fs::metadata(&recording)?.len(),
        complaints,
    })
}

/// The median of three runs without us.
fn native(ready: &Ready, folder: &Path) -> Outcome<Duration> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut command = Command::new(&ready.command[0]);
        command.args(&ready.command[1..]);
        times.push(timed(&mut command, folder)?);
    }
    times.sort();
    Ok(times[1])
}

fn record(ready: &Ready, event: Option<&str>, folder: &Path, recording: &Path) -> Outcome<Duration> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "--engine", "emulate", "-q", "-o"]).arg(recording);
    if let Some(event) = event {
        hodo.args(["-e", event]);
    }
    timed(hodo.arg("--").args(&ready.command), folder)
}

/// Runs it in the folder, without its output, and says how long it took.
fn timed(command: &mut Command, folder: &Path) -> Outcome<Duration> {
    let begin = Instant::now();
    command::quietly(command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()))?;
    Ok(begin.elapsed())
}

/// The threads that differ, each with its first difference.
fn compare(recording: &Path, ours: &Streams, theirs: &Streams) -> Outcome<Vec<String>> {
    let mut complaints = Vec::new();
    for (who, streams) in [("hodo", ours), ("perf", theirs)] {
        if let Some(first) = streams.notices.first() {
            complaints
                .push(format!("  {who} reports {} interruptions, first: {first}", streams.notice_count));
        }
    }
    let mut tids: Vec<u32> = ours.threads.keys().chain(theirs.threads.keys()).copied().collect();
    tids.sort();
    tids.dedup();
    for tid in tids {
        let (our, their) = (ours.threads.get(&tid), theirs.threads.get(&tid));
        if our != their {
            complaints.push(difference::explain(recording, tid, our, their)?);
        }
    }
    Ok(complaints)
}
