//! Speed and memory of recording and reading: `cargo bench-peers pt` for Intel PT, `ctf` for software events,
//! `analyses` for analyses of these, `sql` for questions,
//! `etm` for Arm's trace. Compared programs run alternately, with the file in the page cache.

mod ctf;
mod decoders;
mod etm;
pub mod plot;
mod pt;
mod sql;
mod workloads;

use std::{
    cmp::Ordering,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use workbench::{Outcome, command};

/// The trace of the goals of events: 18 million of a kernel.
const ARCHIVE: &str = "../shared/data/ctf/lttng2.13-kernel6.1-4cpu-18M.tar.zst";
/// The required speed-up of two threads.
const TWO_THREADS: f64 = 1.85;

/// Runs all measurements.
pub fn run(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((kind, names)) if kind == "pt" => pt::run(names),
        Some((kind, folders)) if kind == "etm" => etm::run(folders),
        Some((kind, traces)) if kind == "ctf" => ctf::run(ctf::READINGS, traces),
        Some((kind, traces)) if kind == "analyses" => ctf::run(ctf::ANALYSES, traces),
        Some((kind, traces)) if kind == "sql" => sql::run(traces),
        _ => Err("usage: cargo bench-peers pt [NAME…] | ctf [TRACE] | analyses [TRACE] | sql [TRACE] | etm FOLDER…".into()),
    }
}

/// The most private memory of a program in kB, and its run time; its output is dropped.
fn peak_memory(command: &mut Command) -> Outcome<(u64, Duration)> {
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        peak = peak.max(own_memory(&status).unwrap_or(0));
        thread::sleep(Duration::from_millis(5));
    }
    match child.wait()?.success() {
        true => Ok((peak, begin.elapsed())),
        false => Err(format!("`{}` failed", command::line(command)).into()),
    }
}

/// A process's memory without mapped files, in kB.
fn own_memory(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The duration of a command.
#[derive(Clone, Copy)]
struct Took {
    elapsed: Duration,
    /// User and system time of all its threads.
    processor: Duration,
}

/// Runs a command, and drops its output.
fn took(command: &mut Command) -> Outcome<Took> {
    let (begin, before) = (Instant::now(), children_time()?);
    command::quietly(command.stdout(Stdio::null()))?;
    Ok(Took { elapsed: begin.elapsed(), processor: children_time()? - before })
}

/// The user and system time of a command, without its output.
///
/// # Errors
/// It can't be started, or fails.
pub fn processor_time(command: &mut Command) -> Outcome<Duration> {
    Ok(took(command)?.processor)
}

/// User and system time of the ended child processes.
fn children_time() -> Outcome<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = [usage.user_time(), usage.system_time()].map(|time| time.num_microseconds());
    Ok(Duration::from_micros(micros.iter().sum::<i64>().try_into()?))
}

/// The median time of each command, started alternately, without output.
fn in_turn<const N: usize>(rounds: usize, commands: [&dyn Fn() -> Command; N]) -> Outcome<[Duration; N]> {
    let elapsed = |times: Vec<Took>| median(times.iter().map(|took| took.elapsed).collect());
    Ok(times_in_turn(rounds, commands)?.map(elapsed))
}

/// The times of each command, started alternately, without output.
fn times_in_turn<const N: usize>(
    rounds: usize,
    commands: [&dyn Fn() -> Command; N],
) -> Outcome<[Vec<Took>; N]> {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (times, command) in times.iter_mut().zip(commands) {
            times.push(took(&mut command())?);
        }
    }
    Ok(times)
}

/// Prints the speed-up of two threads, and the part of the run during which only one of them works.
fn two_threads(rounds: usize, ours: &dyn Fn(usize) -> Command) -> Outcome {
    let times = times_in_turn(rounds, [&|| ours(1), &|| ours(2), &|| twice(&ours(1))])?;
    let seconds =
        times.each_ref().map(|times| times.iter().map(|took| took.elapsed.as_secs_f64()).collect::<Vec<_>>());
    let [one, two, apart] = &seconds;
    // Each is compared with its neighbour, as the machine's speed drifts.
    let ratio = |others: &[f64]| median(one.iter().zip(others).map(|(one, other)| one / other).collect());
    // While one thread works alone the other one waits, which takes no CPU time.
    let alone = times[1].iter().zip(one).map(|(two, one)| {
        let waited = 2.0 * two.elapsed.as_secs_f64() - two.processor.as_secs_f64();
        waited.max(0.0) / one
    });
    println!(
        "    two threads {:.0} ms of {:.0}: {:.2} times as fast ({TWO_THREADS}), {:.1} % on one thread alone, medians \
         of {rounds}; the machine gives two processes that share nothing {:.2}",
        median(two.clone()) * 1e3,
        median(one.clone()) * 1e3,
        ratio(two),
        median(alone.collect()) * 100.0,
        2.0 * ratio(apart),
    );
    Ok(())
}

/// The same command twice at once.
fn twice(command: &Command) -> Command {
    Command::new("sh").tap(|shell| {
        shell.args(["-c", "\"$@\" & \"$@\" && wait", "sh"]);
        shell.arg(command.get_program()).args(command.get_args())
    })
}

/// The median of an odd number of values.
fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    values[values.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Builds a command in one expression.
trait Tap {
    fn tap(self, change: impl FnOnce(&mut Command) -> &mut Command) -> Command;
}

impl Tap for Command {
    fn tap(mut self, change: impl FnOnce(&mut Command) -> &mut Command) -> Command {
        change(&mut self);
        self
    }
}
