//! `cargo xtask bench pt`: how fast a program is recorded, how fast the recording is read, and in how
//! much memory. With recordings: how fast these are decoded beside the decoders of others. Both programs of a
//! comparison run in turn, with the file in the page cache.
//! `cargo xtask bench ctf`, `analyses`: the same of software events, and of what is computed from them.

mod ctf;
mod decoders;

use std::{
    cmp::Ordering,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Outcome, command, judge, lab,
    release::{self, shipped},
    setup::{self, Need},
};

/// Runs of each; an odd number, so that there is a median.
const ROUNDS: usize = 3;

/// The number whose recursive Fibonacci takes more than a billion instructions.
const LONG: &str = "38";

/// One that perf prints every instruction of in bearable time.
const SHORT: &str = "32";

/// Runs all measurements.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((kind, [])) if kind == "pt" => pt(),
        Some((kind, recordings)) if kind == "pt" => decoders::run(recordings),
        Some((kind, traces)) if kind == "ctf" => ctf::run(ctf::READINGS, traces),
        Some((kind, traces)) if kind == "analyses" => ctf::run(ctf::ANALYSES, traces),
        _ => Err("usage: cargo xtask bench pt [RECORDING…] | ctf [TRACE] | analyses [TRACE]".into()),
    }
}

fn pt() -> Outcome {
    setup::ensure(Need::Judge)?;
    release::build()?;
    let folder = command::target().join("bench");
    let program = lab::compile("fib.c", &[], &folder)?;
    let program = program.to_string_lossy();
    let (long, short) = (folder.join("long.perf.data"), folder.join("short.perf.data"));
    recording(&program, &long)?;
    memory(&long)?;
    command::quietly(record(&program, SHORT, &short).stdout(Stdio::null()))?;
    decoding(&short)
}

fn recording(program: &str, recording: &Path) -> Outcome {
    let [native, recorded] = in_turn(
        ROUNDS,
        [&|| Command::new(program).tap(|command| command.arg(LONG)), &|| record(program, LONG, recording)],
    )?;
    let instructions = judge::instructions(recording)?;
    println!("recording: fib {LONG}, {instructions} instructions, medians of {ROUNDS}");
    println!("  native   {:8.0} ms", millis(native));
    println!(
        "  recorded {:8.0} ms = {:.1}× native, {:.0} million instructions a second",
        millis(recorded),
        recorded.as_secs_f64() / native.as_secs_f64(),
        instructions as f64 / recorded.as_secs_f64() / 1e6,
    );
    Ok(())
}

fn decoding(recording: &Path) -> Outcome {
    let bytes = fs::metadata(recording)?.len() as f64 / 1e6;
    println!("reading {} instructions, {bytes:.1} MB, medians of {ROUNDS}", judge::instructions(recording)?);
    let pairs: [(&str, &[&str], &[&str]); 2] = [
        ("the whole flow", &["report", "functions", "-q"], &["script", "--itrace=e", "-i"]),
        (
            "every instruction",
            &["script", "--insns", "--fields", "ip"],
            &["script", "--itrace=i0ns", "-F", "ip", "-i"],
        ),
    ];
    for (what, ours, theirs) in pairs {
        let [our, their] = in_turn(
            ROUNDS,
            [&|| Command::new(shipped("hodo")).tap(|command| command.args(ours).arg(recording)), &|| {
                Command::new("perf").tap(|command| command.args(theirs).arg(recording))
            }],
        )?;
        println!(
            "  {what:18} hodo {:8.0} ms ({:.1} MB/s)   perf {:8.0} ms ({:.1} MB/s)   ratio {:.1}",
            millis(our),
            bytes / our.as_secs_f64(),
            millis(their),
            bytes / their.as_secs_f64(),
            their.as_secs_f64() / our.as_secs_f64(),
        );
    }
    Ok(())
}

fn memory(recording: &Path) -> Outcome {
    let instructions = judge::instructions(recording)?;
    let mut report = Command::new(shipped("hodo"))
        .tap(|command| command.args(["report", "functions", "-q"]).arg(recording));
    let (peak, time) = peak_memory(&mut report)?;
    println!(
        "memory: `hodo report functions` on {instructions} instructions, {:.1} MB",
        fs::metadata(recording)?.len() as f64 / 1e6
    );
    println!("  RssAnon at most {:.1} MB, {:.1} s", peak as f64 / 1e3, time.as_secs_f64());
    Ok(())
}

/// The most memory of its own that a program takes, in kB, and how long it runs; without its output.
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

/// A process's memory apart from mapped files, in kB.
fn own_memory(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn record(program: &str, argument: &str, recording: &Path) -> Command {
    Command::new(shipped("hodo")).tap(|command| {
        command
            .args(["record", "--engine", "emulate", "-q", "-o"])
            .arg(recording)
            .args(["--", program, argument])
    })
}

/// The median time of each command, started in turn, without their output.
fn in_turn<const N: usize>(rounds: usize, commands: [&dyn Fn() -> Command; N]) -> Outcome<[Duration; N]> {
    Ok(times_in_turn(rounds, commands)?.map(median))
}

/// The times of each command, started in turn, without their output.
fn times_in_turn<const N: usize>(
    rounds: usize,
    commands: [&dyn Fn() -> Command; N],
) -> Outcome<[Vec<Duration>; N]> {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (times, command) in times.iter_mut().zip(commands) {
            let begin = Instant::now();
            command::quietly(command().stdout(Stdio::null()))?;
            times.push(begin.elapsed());
        }
    }
    Ok(times)
}

/// The one in the middle, of an odd number.
fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    values[values.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Building a command in one expression.
trait Tap {
    fn tap(self, change: impl FnOnce(&mut Command) -> &mut Command) -> Command;
}

impl Tap for Command {
    fn tap(mut self, change: impl FnOnce(&mut Command) -> &mut Command) -> Command {
        change(&mut self);
        self
    }
}
