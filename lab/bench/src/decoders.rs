//! The speed of decoding a recording compared with other decoders on the same bytes, in CPU time of one thread.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use workbench::{
    Outcome, command,
    release::{self, shipped},
};

use super::median;

/// Runs of each decoder; an odd number, so that there is a median.
pub(super) const ROUNDS: usize = 5;

/// A decoder, and the mode of its harness.
type Decoder = (&'static str, &'static str);

/// All measured decoders; each runs once per round.
const DECODERS: [Decoder; 10] = [
    ("hodo", "packets"),
    ("libipt", "packets"),
    ("iptr", "iptr-packets"),
    ("hodo", "functions"),
    ("libipt", "blocks"),
    ("iptr", "iptr-edges"),
    ("ptcov", "ptcov"),
    ("hodo", "calls"),
    ("hodo", "instructions"),
    ("libipt", "insns"),
];

/// These are so slow that they are not measured in all configurations.
const INSTRUCTIONS: [&str; 2] = ["instructions", "insns"];

/// A kind of decoding, ours and a peer's.
struct Contest {
    ours: &'static str,
    theirs: Decoder,
    /// The required speed-up, cold and hot.
    goals: Option<[f64; 2]>,
    /// What the peer does differently, mostly less than we do.
    difference: &'static str,
}

#[rustfmt::skip]
const CONTESTS: [Contest; 7] = [
    Contest { ours: "packets", theirs: ("libipt", "packets"), goals: Some([4.0, 4.0]), difference: "" },
    Contest { ours: "packets", theirs: ("iptr", "iptr-packets"), goals: Some([1.0, 1.0]), difference: "no IP is joined" },
    Contest { ours: "functions", theirs: ("libipt", "blocks"), goals: Some([8.0, 20.0]), difference: "blocks alone: no function, no call stack, no time" },
    Contest { ours: "functions", theirs: ("iptr", "iptr-edges"), goals: None, difference: "a map of edges, no return compression, branches are lost" },
    Contest { ours: "functions", theirs: ("ptcov", "ptcov"), goals: None, difference: "a map of edges" },
    Contest { ours: "calls", theirs: ("libipt", "blocks"), goals: Some([6.0, 6.0]), difference: "blocks alone: no call stack, no time" },
    Contest { ours: "instructions", theirs: ("libipt", "insns"), goals: Some([10.0, 10.0]), difference: "" },
];

/// The output of a harness; for several recordings, the sums.
#[derive(Clone, Copy, Default)]
pub(super) struct Measured {
    pub(super) bytes: f64,
    /// Nanoseconds, cold and hot.
    pub(super) times: [f64; 2],
    errors: u64,
}

/// The measurements of a recording, without decoders that refused it.
pub(super) type Measurements = BTreeMap<Decoder, Measured>;

/// The harnesses of the decoders.
pub(super) struct Harnesses {
    libipt: PathBuf,
    peers: PathBuf,
    ours: PathBuf,
}

impl Harnesses {
    pub(super) fn build(folder: &Path) -> Outcome<Harnesses> {
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

    /// Decodes a recording with each decoder in rotation; also instruction by instruction, if requested.
    pub(super) fn measure(&self, recording: &Path, instructions: bool) -> Outcome<Measurements> {
        let mut all_arguments = Vec::new();
        for arguments in judge::harness_arguments(recording)?.into_values() {
            let arguments = arguments.ok_or("expected a recording of code that does not change")?;
            // The arguments are those of the judges, whose option for code has another name.
            all_arguments.extend(arguments.iter().map(|word| word.replace("--raw", "--code")));
        }
        let mut rounds: BTreeMap<Decoder, Vec<Measured>> = BTreeMap::new();
        for _ in 0..ROUNDS {
            for decoder @ (who, mode) in DECODERS {
                if !instructions && INSTRUCTIONS.contains(&mode) {
                    continue;
                }
                let mut harness = match who {
                    "hodo" => Command::new(&self.ours),
                    "libipt" => Command::new(&self.libipt),
                    _ => Command::new(&self.peers),
                };
                harness.arg(mode);
                let measured = match who {
                    "hodo" => Some(measured(harness.arg(recording))?),
                    // A decoder that fails has no measurement.
                    _ => measured(harness.args(&all_arguments)).ok(),
                };
                rounds.entry(decoder).or_default().extend(measured);
            }
        }
        rounds.retain(|_, of_rounds| of_rounds.len() == ROUNDS);
        let middle = |of_rounds: Vec<Measured>| Measured {
            times: [0, 1].map(|pass| median(of_rounds.iter().map(|one| one.times[pass]).collect())),
            ..of_rounds[0]
        };
        Ok(rounds.into_iter().map(|(decoder, of_rounds)| (decoder, middle(of_rounds))).collect())
    }
}

pub(super) fn measured(harness: &mut Command) -> Outcome<Measured> {
    let line: Value = serde_json::from_str(&command::capture(harness)?)?;
    let number = |name: &str| line[name].as_u64().ok_or_else(|| format!("no `{name}` from a harness"));
    let [bytes, cold, hot, errors] = ["bytes", "cold_ns", "hot_ns", "errors"].map(number);
    Ok(Measured { bytes: bytes? as f64, times: [cold? as f64, hot? as f64], errors: errors? })
}

/// Prints the measurements of recordings, and of all together.
pub(super) fn print(recordings: &[(String, Measurements)]) {
    let names: Vec<&str> = recordings.iter().map(|(name, _)| name.as_str()).collect();
    println!("| MB/s cold, hot; times as fast | {} | all | goals | they |", names.join(" | "));
    println!("|---|{}---|---|---|", "---|".repeat(names.len()));
    for Contest { ours, theirs, goals, difference } in CONTESTS {
        let pairs: Vec<_> = recordings
            .iter()
            .map(|(_, measurements)| measurements.get(&("hodo", ours)).zip(measurements.get(&theirs)))
            .collect();
        let mut cells: Vec<String> =
            pairs.iter().map(|pair| pair.map_or("–".to_owned(), |(our, their)| cell(our, their))).collect();
        let known = || pairs.iter().flatten().filter(|pair| pair.1.errors == 0);
        if known().next().is_none() {
            continue;
        }
        let all = [sum(known().map(|pair| pair.0)), sum(known().map(|pair| pair.1))];
        cells.push(cell(&all[0], &all[1]));
        let goals = goals.map_or("–".to_owned(), |[cold, hot]| format!("{cold}, {hot}"));
        let (who, mode) = theirs;
        println!("| {ours} beside {who} {mode} | {} | {goals} | {difference} |", cells.join(" | "));
    }
}

fn cell(ours: &Measured, theirs: &Measured) -> String {
    if theirs.errors > 0 {
        return "gave up".to_owned();
    }
    let [cold, hot] = ours.times.map(|time| ours.bytes * 1e3 / time);
    let [first, second] = [0, 1].map(|pass| theirs.times[pass] / ours.times[pass]);
    format!("{cold:.0}, {hot:.0}; {first:.1}, {second:.1}")
}

fn sum<'m>(measured: impl Iterator<Item = &'m Measured>) -> Measured {
    measured.fold(Measured::default(), |sum, one| Measured {
        bytes: sum.bytes + one.bytes,
        times: [sum.times[0] + one.times[0], sum.times[1] + one.times[1]],
        errors: sum.errors + one.errors,
    })
}
