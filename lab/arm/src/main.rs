//! Compares our decoding of Arm's traces with the account of an emulator and with OpenCSD's.
//!
//! ```text
//! program ──qemu-aarch64──► account: every instruction ──encoder──► trace ─┬─► our decoder ────┐
//!                              │                                            └─► trc_pkt_lister ─┤
//!                              └────────────────────────────────────────────────────────────────┴─► every address equal
//! ```
//!
//! The emulator knows no trace unit: the encoder of `hodo-etm` stands for one, and OpenCSD judges what it writes.

mod account;
mod board;
mod classes;
mod configurations;
mod damage;
mod foreign;
mod ours;
mod perf;
mod pieces;
mod snapshot;
mod speed;
mod traced;
mod trials;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use account::Account;
use configurations::{CONFIGURATIONS, Configuration};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Instructions of a thread that are judged, at most; the first configuration is judged to the end.
const LONGEST: usize = 16_000_000;
/// Instructions of a thread whose branches are compared with perf's, at most, and of threads whose instructions are, too.
const BRANCHES: usize = 2_000_000;
const EACH: usize = 500_000;

/// Trials of each thread in each way to spoil a trace.
const TRIALS: u64 = 2;

const USAGE: &str = "usage: hodo-arm --folder FOLDER classes | snapshot PLACE… | speed PLACE | board RECORDING PROGRAM | [--config NAME]… (machine FIRST_PROCESS | PROGRAM [ARGUMENT]…)";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hodo-arm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let mut words = std::env::args().skip(1).peekable();
    let (mut folder, mut wanted) = (PathBuf::new(), Vec::new());
    while let Some(option) = words.next_if(|word| word.starts_with("--")) {
        let value = words.next().ok_or(USAGE)?;
        match option.as_str() {
            "--folder" => folder = value.into(),
            "--config" => wanted.push(value),
            _ => return Err(USAGE.into()),
        }
    }
    let command: Vec<String> = words.collect();
    if command.is_empty() || folder.as_os_str().is_empty() {
        return Err(USAGE.into());
    }
    std::fs::create_dir_all(&folder)?;
    match &command[..] {
        [classes] if classes == "classes" => return classes::judge(&folder),
        [board, recording, program] if board == "board" => {
            return board::judge(Path::new(recording), Path::new(program), &folder);
        }
        [speed, place] if speed == "speed" => return speed::measure(Path::new(place)),
        [snapshot, places @ ..] if snapshot == "snapshot" => return foreign::judge(places, &folder),
        _ => {}
    }
    let account = match &command[..] {
        [machine, program] if machine == "machine" => Account::record_machine(Path::new(program), &folder)?,
        _ => Account::record(&command, &folder)?,
    };
    let mut differences = 0;
    for configuration in CONFIGURATIONS {
        if wanted.is_empty() || wanted.iter().any(|name| name == configuration.name) {
            differences += judge(&account, configuration, &folder)?;
        }
    }
    if wanted.is_empty() {
        let mut table = trials::Table::new();
        differences += trials::judge(&account, TRIALS, &mut table)?;
        trials::print(&table);
    }
    match differences {
        0 => Ok(()),
        _ => Err(format!("{differences} differences").into()),
    }
}

/// Judges all threads in one configuration, and prints a line. Returns the number of differences.
fn judge(account: &Account, configuration: &Configuration, folder: &Path) -> Outcome<u64> {
    let (mut instructions, mut bytes, mut differences) = (0, 0, 0);
    let longest = if configuration.name == CONFIGURATIONS[0].name { usize::MAX } else { LONGEST };
    for (number, thread) in account.threads.iter().enumerate() {
        let thread = thread.first(longest);
        let ran = account.ran(&thread);
        let trace = traced::encode(ran, &thread.stops, configuration)?;
        let own = ours::compare(&account.code, ran, &trace, configuration);
        let place = folder.join(format!("{}-{number}", configuration.name));
        let dumps = snapshot::write(&place, &account.code, &trace, configuration)?;
        let mut verdicts = vec![("ours", own), ("OpenCSD", snapshot::compare(&place, ran))];
        if configuration.perf_reads && account.perf_reads {
            let timed = Configuration { timestamps: Some(500), frames: true, ..*configuration };
            let file = folder.join("perf.data");
            let thread = thread.first(BRANCHES);
            let ran = account.ran(&thread);
            perf::write(&file, &dumps, &traced::encode(ran, &thread.stops, &timed)?, &timed)?;
            verdicts.push(("perf's branches", perf::compare_branches(&file, ran, &thread.stops)));
            if ran.len() < EACH {
                verdicts.push(("perf's instructions", perf::compare_instructions(&file, ran)));
            }
        }
        for (who, result) in verdicts {
            if let Err(error) = result {
                println!("  {} thread {number}, {who}: {error}", configuration.name);
                differences += 1;
            }
        }
        instructions += ran.len();
        bytes += trace.len();
    }
    println!(
        "{:24} {instructions:10} instructions, {:6.1} bytes per 1,000, {} threads: {}",
        configuration.name,
        1000.0 * bytes as f64 / instructions.max(1) as f64,
        account.threads.len(),
        if differences == 0 { "equal" } else { "DIFFERENT" },
    );
    Ok(differences)
}
