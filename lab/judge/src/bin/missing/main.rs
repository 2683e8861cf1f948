//! Decodes real recordings with some of their code withheld, and compares with what really ran.
//!
//! ```text
//! recording ──► truth: the instructions of every segment, and how many ran before each of its packets
//!     │                                         │
//!     └─► a part of the code ─► our reader ─────┴─► law: between two gaps, our reader shows what ran since
//!         (raw buffer, or files removed)                 the packet that ended the first
//! ```
//!
//! Half of the raw buffers have event trace, PTWRITE, power events and PEBS records, with interrupts at random places.

mod check;
mod code;
mod events;
mod table;
#[cfg(test)]
mod tests;
mod trial;
mod truth;
mod withhold;

use std::{path::PathBuf, process::ExitCode};

use trial::Subject;

const USAGE: &str = "usage: hodo-missing --folder FOLDER [--count N] [--seed N] NAME=RECORDING…";

/// The parsed command line.
struct Arguments {
    folder: PathBuf,
    /// Trials per recording.
    count: u64,
    seed: u64,
    recordings: Vec<(String, PathBuf)>,
}

fn main() -> ExitCode {
    match parse().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hodo-missing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments { folder: PathBuf::new(), count: 12, seed: 1, recordings: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(USAGE);
        let number = |value: String| value.parse().map_err(|_| format!("`{value}` is no number"));
        match word.as_str() {
            "--folder" => arguments.folder = value()?.into(),
            "--count" => arguments.count = number(value()?)?,
            "--seed" => arguments.seed = number(value()?)?,
            recording => {
                let (name, path) = recording.split_once('=').ok_or(USAGE)?;
                arguments.recordings.push((name.to_owned(), path.into()));
            }
        }
    }
    if arguments.recordings.is_empty() { Err(USAGE.into()) } else { Ok(arguments) }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    std::fs::create_dir_all(&arguments.folder).map_err(|error| error.to_string())?;
    let mut table = table::Table::default();
    for (name, file) in &arguments.recordings {
        let subject = Subject::new(name, file, None, &arguments.folder)?;
        for number in 0..arguments.count {
            if let Some(trial) = subject.trial(arguments.seed, number)? {
                table.add(name, &trial);
            }
        }
    }
    table.end()
}
