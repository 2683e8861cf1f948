//! `cargo xtask bench pt RECORDING…`: how fast the trace of recordings is decoded, beside the decoders of others
//! on the same bytes, in processor time of one thread.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::Tap;
use crate::{
    Outcome, command, judge,
    release::{self, shipped},
    setup::{self, Need},
};

/// Runs of each; an odd number, so that there is a median.
const ROUNDS: usize = 5;

/// Something to decode, and who does it beside us.
struct Contest {
    ours: &'static str,
    theirs: &'static str,
    mode: &'static str,
    /// How many times faster than they we are to be at first sight, and at second.
    goals: [f64; 2],
    /// What they do less than we, or more.
    difference: &'static str,
}

#[rustfmt::skip]
const CONTESTS: [Contest; 8] = [
    Contest { ours: "packets", theirs: "libipt", mode: "packets", goals: [4.0, 4.0], difference: "" },
    Contest { ours: "packets", theirs: "iptr", mode: "iptr-packets", goals: [1.0, 1.0], difference: "no IP is joined" },
    Contest { ours: "functions", theirs: "libipt", mode: "blocks", goals: [8.0, 20.0], difference: "blocks alone: no function, no call stack, no time" },
    Contest { ours: "functions", theirs: "iptr", mode: "iptr-edges", goals: [0.0, 0.0], difference: "a map of edges, no return compression, branches are lost" },
    Contest { ours: "functions", theirs: "ptcov", mode: "ptcov", goals: [0.0, 0.0], difference: "a map of edges" },
    Contest { ours: "calls", theirs: "libipt", mode: "blocks", goals: [6.0, 6.0], difference: "blocks alone: no call stack, no time" },
    Contest { ours: "lines", theirs: "libipt", mode: "blocks", goals: [0.0, 0.0], difference: "blocks alone, while we write each call as a line of JSON" },
    Contest { ours: "instructions", theirs: "libipt", mode: "insns", goals: [10.0, 10.0], difference: "" },
];

/// What a harness prints.
#[derive(Clone, Copy)]
struct Measured {
    bytes: u64,
    cold_ns: u64,
    hot_ns: u64,
    errors: u64,
}

/// The harnesses around the decoders.
struct Harnesses {
    libipt: PathBuf,
    peers: PathBuf,
    ours: PathBuf,
}

impl Harnesses {
    fn build(folder: &Path) -> Outcome<Harnesses> {
        fs::create_dir_all(folder)?;
        release::build()?;
        let manifest = ["build", "--release", "--manifest-path", "lab/peers/Cargo.toml", "--target-dir"];
        let peers = folder.join("peers");
        command::run(command::cargo(&manifest).arg(&peers))?;
        let libipt = folder.join("peer-libipt");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&libipt);
        command::quietly(gcc.arg(command::root().join("lab/peers/libipt.c")).arg("-lipt"))?;
        Ok(Harnesses { libipt, peers: peers.join("release/peers"), ours: shipped("hodo-speed") })
    }
}

/// Compares the decoders on recordings of one thread each.
pub(super) fn run(recordings: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let harnesses = Harnesses::build(&command::target().join("bench"))?;
    for recording in recordings {
        let recording = Path::new(recording);
        let arguments = judge::arguments(recording)?;
        let [(_, Some(arguments))] = &arguments.into_iter().collect::<Vec<_>>()[..] else {
            return Err("expected a recording of one thread whose code does not change".into());
        };
        let words: Vec<String> = arguments.iter().map(|word| word.replace("--raw", "--code")).collect();
        println!("{}, processor time of one thread, medians of {ROUNDS}", recording.display());
        println!(
            "| | MB/s cold | hot | beside | MB/s cold | hot | times as fast cold | hot | goals | they |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        CONTESTS.iter().try_for_each(|contest| measure(contest, &harnesses, recording, &words))?;
        whole_programs(recording)?;
    }
    Ok(())
}

fn measure(contest: &Contest, harnesses: &Harnesses, recording: &Path, words: &[String]) -> Outcome {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(measured(Command::new(&harnesses.ours).arg(contest.ours).arg(recording))?);
        let program = if contest.theirs == "libipt" { &harnesses.libipt } else { &harnesses.peers };
        theirs.push(measured(Command::new(program).arg(contest.mode).args(words))?);
    }
    let median = |list: &[Measured], time: fn(&Measured) -> u64| {
        let mut times: Vec<u64> = list.iter().map(time).collect();
        times.sort_unstable();
        times[ROUNDS / 2] as f64
    };
    let bytes = ours[0].bytes as f64;
    let times: [fn(&Measured) -> u64; 2] = [|one| one.cold_ns, |one| one.hot_ns];
    let [cold, hot] = times.map(|time| [median(&ours, time), median(&theirs, time)]);
    let speed = |time: f64| bytes * 1e3 / time;
    let goals = contest.goals.map(|goal| if goal > 0.0 { goal.to_string() } else { "–".to_owned() });
    let gave_up = match theirs[0].errors {
        0 => String::new(),
        errors => format!(" ({errors} errors)"),
    };
    println!(
        "| {} | {:.0} | {:.0} | {} {} | {:.0} | {:.0} | {:.1} | {:.1} | {} | {}{gave_up} |",
        contest.ours,
        speed(cold[0]),
        speed(hot[0]),
        contest.theirs,
        contest.mode,
        speed(cold[1]),
        speed(hot[1]),
        cold[1] / cold[0],
        hot[1] / hot[0],
        goals.join(", "),
        contest.difference,
    );
    Ok(())
}

fn measured(command: &mut Command) -> Outcome<Measured> {
    let line: Value = serde_json::from_str(&command::capture(command)?)?;
    let number = |name: &str| line[name].as_u64().ok_or_else(|| format!("no `{name}` from a harness"));
    let [bytes, cold_ns, hot_ns, errors] = ["bytes", "cold_ns", "hot_ns", "errors"].map(number);
    Ok(Measured { bytes: bytes?, cold_ns: cold_ns?, hot_ns: hot_ns?, errors: errors? })
}

/// The programs as people start them, in processor time of all their threads.
fn whole_programs(recording: &Path) -> Outcome {
    let pairs: [(&[&str], &[&str], f64); 2] = [
        (&["report", "functions"], &["report", "--itrace=i0ns", "--stdio", "-i"], 50.0),
        (&["script", "--insns", "--fields", "ip"], &["script", "--itrace=i0ns", "-F", "ip", "-i"], 20.0),
    ];
    for (ours, theirs, goal) in pairs {
        let our = processor_time(
            Command::new(shipped("hodo")).tap(|command| command.args(ours).arg("-q")),
            recording,
        )?;
        let their = processor_time(Command::new("perf").tap(|command| command.args(theirs)), recording)?;
        println!(
            "hodo {}: {our:.2} s   perf {}: {their:.2} s   {:.1} times as fast ({goal})",
            ours.join(" "),
            theirs[..theirs.len() - 1].join(" "),
            their / our
        );
    }
    Ok(())
}

/// User and system time of a program that reads a recording, in seconds.
fn processor_time(mut command: Command, recording: &Path) -> Outcome<f64> {
    let before = children_time()?;
    command::quietly(command.arg(recording).stdout(Stdio::null()))?;
    Ok(children_time()? - before)
}

/// What the programs that this one started took (proc(5), `cutime` and `cstime`), in seconds.
fn children_time() -> Outcome<f64> {
    /// Ticks a second: what Linux tells programs is always in these.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: BTreeMap<usize, &str> =
        stat.rsplit(") ").next().unwrap_or_default().split(' ').enumerate().collect();
    // The state, which is behind the name, is field 3.
    let field = |number: usize| fields.get(&(number - 3)).and_then(|text| text.parse::<f64>().ok());
    let (user, system) = field(16).zip(field(17)).ok_or("/proc/self/stat is short")?;
    Ok((user + system) / TICKS)
}
