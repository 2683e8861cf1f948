//! Decodes real recordings with some of their code withheld, and compares with what really ran.
//!
//! ```text
//! recording ──► truth: the instructions of every segment, and how many ran before each of its packets
//!     │                                         │
//!     └─► a part of the code ─► our reader ─────┴─► law: what is shown after a gap is what ran from the
//!         (raw buffer, or files removed)                 packet on that ended it, up to the next gap
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
struct Wish {
    folder: PathBuf,
    /// Trials per recording.
    count: u64,
    seed: u64,
    recordings: Vec<(String, PathBuf)>,
}

fn main() -> ExitCode {
    match parse().and_then(|wish| run(&wish)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hodo-missing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Wish, String> {
    let mut wish = Wish { folder: PathBuf::new(), count: 12, seed: 1, recordings: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        let number = |value: String| value.parse().map_err(|_| format!("`{value}` is no number"));
        match argument.as_str() {
            "--folder" => wish.folder = value()?.into(),
            "--count" => wish.count = number(value()?)?,
            "--seed" => wish.seed = number(value()?)?,
            recording => {
                let (name, path) = recording.split_once('=').ok_or(USAGE)?;
                wish.recordings.push((name.to_owned(), path.into()));
            }
        }
    }
    if wish.recordings.is_empty() { Err(USAGE.into()) } else { Ok(wish) }
}

fn run(wish: &Wish) -> Result<(), String> {
    std::fs::create_dir_all(&wish.folder).map_err(|error| error.to_string())?;
    let mut table = table::Table::default();
    for (name, file) in &wish.recordings {
        let subject = Subject::new(name, file, None, &wish.folder)?;
        for number in 0..wish.count {
            if let Some(trial) = subject.trial(wish.seed, number)? {
                table.add(name, &trial);
            }
        }
    }
    table.end()
}
