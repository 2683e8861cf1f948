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
mod classes;
mod configurations;
mod foreign;
mod ours;
mod snapshot;
mod speed;
mod traced;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use account::Account;
use configurations::{CONFIGURATIONS, Configuration};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: hodo-arm --folder FOLDER classes | snapshot PLACE… | speed PLACE | [--config NAME]… PROGRAM [ARGUMENT]…";

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
        [speed, place] if speed == "speed" => return speed::measure(Path::new(place)),
        [snapshot, places @ ..] if snapshot == "snapshot" => return foreign::judge(places, &folder),
        _ => {}
    }
    let account = Account::record(&command)?;
    let mut differences = 0;
    for configuration in CONFIGURATIONS {
        if wanted.is_empty() || wanted.iter().any(|name| name == configuration.name) {
            differences += judge(&account, configuration, &folder)?;
        }
    }
    match differences {
        0 => Ok(()),
        _ => Err(format!("{differences} differences").into()),
    }
}

/// Judges all threads in one configuration, and prints a line. Returns the number of differences.
fn judge(account: &Account, configuration: &Configuration, folder: &Path) -> Outcome<u32> {
    let (mut instructions, mut bytes, mut differences) = (0, 0, 0);
    for (thread, addresses) in &account.threads {
        let trace = traced::encode(&account.code, addresses, configuration)?;
        let own = ours::compare(&account.code, addresses, &trace, configuration);
        let place = folder.join(format!("{}-{thread}", configuration.name));
        snapshot::write(&place, &account.code, &trace, configuration)?;
        let foreign = snapshot::compare(&place, &account.code, addresses);
        for (who, result) in [("ours", own), ("OpenCSD", foreign)] {
            if let Err(error) = result {
                println!("  {} thread {thread}, {who}: {error}", configuration.name);
                differences += 1;
            }
        }
        instructions += addresses.len();
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
