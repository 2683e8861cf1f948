//! `cargo judge models`: compares modelled misses with Cachegrind's, of the same programs with the same models.
//!
//! ```text
//! bare.c ──► static program ─┬─hodo record─► recording ─► hodo report models ─┐
//!                            └─valgrind --tool=cachegrind ────────────────────┴─► equal, by function
//! ```
//!
//! The programs have no C library, which would choose other functions on the processor that Valgrind simulates.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// The programs of `bare.c`.
const PROGRAMS: [&str; 5] = ["sort", "sieve", "board", "interpret", "large"];
/// Instruction caches, as both programs name them.
const CACHES: [&str; 3] = ["32768,8,64", "4096,2,64", "2048,1,32"];
const FLAGS: &[&str] =
    &["-nostdlib", "-static", "-no-pie", "-ffreestanding", "-fno-stack-protector", "-fcf-protection=none"];
/// What is compared: Cachegrind's name, and our column.
const COUNTS: [(&str, &str); 6] = [
    ("Ir", "instructions"),
    ("I1mr", "modelled_icache_misses"),
    ("Bc", "conditional_branches"),
    ("Bcm", "modelled_cachegrind_misses"),
    ("Bi", "indirect_branches"),
    ("Bim", "modelled_target_misses"),
];

/// Counts of a function, in the order of [`COUNTS`].
type Counts = [u64; COUNTS.len()];

/// Judges every program, or those that are named.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/models");
    println!(
        "{:10} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}  functions",
        "program", "I1", "Ir", "I1mr", "Bc", "Bcm", "Bi", "Bim"
    );
    let (mut compared, mut differences) = (0, Vec::new());
    for program in
        PROGRAMS.iter().filter(|program| names.is_empty() || names.iter().any(|name| name == *program))
    {
        let folder = folder.join(program);
        let binary = compile(program, &folder)?;
        let recording = folder.join("recording.perf.data");
        let mut record = Command::new(command::hodo());
        record.args(["record", "--engine", "native", "-q", "-o"]).arg(&recording).arg("--").arg(&binary);
        command::quietly(record.current_dir(&folder))?;
        for cache in CACHES {
            let (ours, theirs) = (ours(&recording, cache)?, cachegrind(&binary, cache, &folder)?);
            let mut sum = Counts::default();
            theirs
                .values()
                .for_each(|counts| sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count));
            let [ir, i1, bc, bcm, bi, bim] = sum;
            let equal = theirs.iter().filter(|(name, counts)| ours.get(*name) == Some(*counts)).count();
            println!(
                "{program:10} {cache:>12} {ir:>12} {i1:>10} {bc:>10} {bcm:>10} {bi:>10} {bim:>10}  {equal} of {} equal",
                theirs.len()
            );
            for (name, counts) in theirs.iter().filter(|(name, counts)| ours.get(*name) != Some(*counts)) {
                let own = ours.get(name).copied().unwrap_or_default();
                for ((what, _), (own, count)) in COUNTS.iter().zip(own.iter().zip(counts)) {
                    if own != count {
                        println!("    {name}: {what}: hodo {own}, cachegrind {count}");
                    }
                }
                differences.push(format!("{program} {cache} {name}"));
            }
            let more = ours.keys().filter(|name| !theirs.contains_key(*name));
            differences.extend(more.map(|name| format!("{program} {cache} {name}, which only we have")));
            compared += theirs.len();
        }
    }
    match differences.is_empty() && compared > 0 {
        true => {
            println!("\n{compared} functions, each with {} counts: equal", COUNTS.len());
            Ok(())
        }
        false => Err(format!("not equal: {}", differences.join("; ")).into()),
    }
}

fn compile(program: &str, folder: &Path) -> Outcome<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let chosen = format!("-DPROGRAM={program}");
    workloads::compile("bare.c", &[FLAGS, &[&chosen]].concat(), folder)
}

/// Our counts by function.
fn ours(recording: &Path, cache: &str) -> Outcome<BTreeMap<String, Counts>> {
    let mut report = Command::new(command::hodo());
    report.args(["report", "models", "-q", "--format", "jsonl", "--icache", cache]).arg(recording);
    let mut functions: BTreeMap<String, Counts> = BTreeMap::new();
    for line in command::capture(&mut report)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let sums = functions.entry(row["function"].as_str().unwrap_or_default().to_owned()).or_default();
        for (sum, (_, column)) in sums.iter_mut().zip(COUNTS) {
            *sum += row[column].as_u64().ok_or_else(|| format!("no column {column}"))?;
        }
    }
    Ok(functions)
}

/// Cachegrind's counts by function. Without following jumps it also runs each instruction as the program does: else it runs
/// both sides of some branches.
fn cachegrind(binary: &Path, cache: &str, folder: &Path) -> Outcome<BTreeMap<String, Counts>> {
    let out = folder.join("cachegrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--quiet",
        "--tool=cachegrind",
        "--vex-guest-chase=no",
        "--cache-sim=yes",
        "--branch-sim=yes",
    ]);
    valgrind.arg(format!("--I1={cache}")).arg(format!("--cachegrind-out-file={}", out.display())).arg(binary);
    command::quietly(&mut valgrind)?;
    let text = fs::read_to_string(out)?;
    let events = text.lines().find_map(|line| line.strip_prefix("events: ")).ok_or("no events")?;
    let events: Vec<&str> = events.split(' ').collect();
    let place = |name: &str| events.iter().position(|event| *event == name);
    let places: Vec<usize> = COUNTS.iter().filter_map(|(name, _)| place(name)).collect();
    let (mut functions, mut current): (BTreeMap<String, Counts>, _) = (BTreeMap::new(), String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            // Code that has no symbol is named by us after the symbol before it.
            current = if name == "???" { "_start".to_owned() } else { name.to_owned() };
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().unwrap_or(0)).collect();
            let sums = functions.entry(current.clone()).or_default();
            for (sum, place) in sums.iter_mut().zip(&places) {
                *sum += numbers.get(*place).copied().unwrap_or(0);
            }
        }
    }
    Ok(functions)
}
