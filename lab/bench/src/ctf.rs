//! `cargo bench-peers ctf [TRACE]`: speed and memory of reading software events, compared with babeltrace2, on one
//! thread and on two. `cargo bench-peers analyses [TRACE]`: the same for analyses of these events.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use workbench::{
    Outcome, command,
    release::{self, shipped},
    setup::{self, Need},
};

use super::{ARCHIVE, Tap, in_turn, millis, peak_memory, two_threads};

/// Runs of each.
const ROUNDS: usize = 5;
/// Alternating runs on one thread and on two: they are short, and a machine's speed drifts otherwise.
const SCALING_ROUNDS: usize = 31;
/// The most private memory, without chunks, in kB.
const MEMORY: u64 = 150_000;

/// A way to read a whole trace.
pub(super) struct Reading {
    what: &'static str,
    ours: fn(&Path, usize) -> Command,
    theirs: fn(&Path) -> Command,
    /// The required speed-up over the peer.
    goal: f64,
    /// Whether the speed-up of two threads has a goal, too.
    scales: bool,
}

/// The readings of `ctf`.
pub(super) const READINGS: &[Reading] = &[
    Reading { what: "count", ours: count, theirs: dummy, goal: 30.0, scales: true },
    Reading { what: "every field", ours: fields, theirs: dummy, goal: 12.0, scales: true },
    Reading { what: "text", ours: text, theirs: babeltrace, goal: 8.0, scales: false },
    Reading { what: "jsonl", ours: jsonl, theirs: babeltrace, goal: 5.0, scales: false },
];

/// The readings of `analyses`.
pub(super) const ANALYSES: &[Reading] = &[
    Reading { what: "count", ours: count, theirs: dummy, goal: 30.0, scales: true },
    Reading { what: "cpu", ours: cpu, theirs: dummy, goal: 20.0, scales: true },
    Reading { what: "io", ours: io, theirs: dummy, goal: 12.0, scales: true },
    Reading { what: "syscalls", ours: syscalls, theirs: dummy, goal: 12.0, scales: true },
    Reading { what: "all", ours: all, theirs: dummy, goal: 6.0, scales: true },
];

fn count(trace: &Path, threads: usize) -> Command {
    ours(&["report", "count"], trace, threads)
}

fn cpu(trace: &Path, threads: usize) -> Command {
    ours(&["report", "cpu"], trace, threads)
}

fn io(trace: &Path, threads: usize) -> Command {
    ours(&["report", "io"], trace, threads)
}

fn syscalls(trace: &Path, threads: usize) -> Command {
    ours(&["report", "syscalls"], trace, threads)
}

fn all(trace: &Path, threads: usize) -> Command {
    ours(&["report", "all"], trace, threads)
}

fn text(trace: &Path, threads: usize) -> Command {
    ours(&["script", "--events"], trace, threads)
}

fn jsonl(trace: &Path, threads: usize) -> Command {
    ours(&["script", "--events", "--format", "jsonl"], trace, threads)
}

fn ours(arguments: &[&str], trace: &Path, threads: usize) -> Command {
    let threads = threads.to_string();
    Command::new(shipped("hodo"))
        .tap(|command| command.args(arguments).args(["-q", "-j", &threads]).arg(trace))
}

/// The program that reads every field.
fn fields(trace: &Path, threads: usize) -> Command {
    Command::new(shipped("hodo-fields")).tap(|command| command.arg(trace).arg(threads.to_string()))
}

fn babeltrace(trace: &Path) -> Command {
    Command::new("babeltrace2").tap(|command| command.arg(trace))
}

/// Reads all fields, and writes nothing.
fn dummy(trace: &Path) -> Command {
    babeltrace(trace).tap(|command| command.args(["-o", "dummy"]))
}

pub(super) fn run(readings: &[Reading], traces: &[String]) -> Outcome {
    let trace = match traces {
        [] => command::root().join(ARCHIVE),
        [trace] => PathBuf::from(trace),
        _ => return Err("usage: cargo bench-peers ctf | analyses [TRACE]".into()),
    };
    setup::ensure(Need::Judge)?;
    release::build()?;
    let trace = judge::unpacked(&trace)?;
    forget(&trace)?;
    println!("{}, in memory as it was read from the disk, medians of {ROUNDS}", trace.display());
    readings.iter().try_for_each(|reading| measure(reading, &trace))?;
    println!("RssAnon is to be at most {} MB and two chunks a thread", MEMORY / 1000);
    Ok(())
}

/// Evicts a trace from the page cache. When it is read again, the cache keeps it in larger pages than after the
/// piecewise writes of unpacking: as other users have it.
fn forget(trace: &Path) -> Outcome {
    let mut find = Command::new("find");
    find.arg(trace).args(["-type", "f", "-exec", "sync", "{}", ";"]);
    command::run(find.args(["-exec", "dd", "if={}", "iflag=nocache", "count=0", "status=none", ";"]))
}

/// Reads a trace before a program does, so that all of it is in the page cache.
fn read(trace: &Path, program: Command) -> Command {
    let mut find = Command::new("find");
    find.arg(trace).args(["-type", "f", "-exec", "cat", "{}", "+"]).stdout(Stdio::null());
    // If reading fails, the program reports that.
    let _ = find.status();
    program
}

fn measure(reading: &Reading, trace: &Path) -> Outcome {
    let ours = |threads| read(trace, (reading.ours)(trace, threads));
    let [one, theirs] = in_turn(ROUNDS, [&|| ours(1), &|| read(trace, (reading.theirs)(trace))])?;
    println!(
        "  {:11} hodo {:7.0} ms   babeltrace2 {:7.0} ms   ratio {:5.1} ({})",
        reading.what,
        millis(one),
        millis(theirs),
        theirs.as_secs_f64() / one.as_secs_f64(),
        reading.goal,
    );
    if reading.scales {
        two_threads(SCALING_ROUNDS, &ours)?;
    }
    for threads in [1, 2] {
        let (peak, _) = peak_memory(&mut (reading.ours)(trace, threads))?;
        println!("    RssAnon at most {:.1} MB on {threads} threads", peak as f64 / 1e3);
    }
    Ok(())
}
