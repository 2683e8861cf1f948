//! Compares our `libipt.so.2` with Intel's: `judge-libipt TRANSCRIPT OURS FIXTURES MUTATIONS [JOBS]…`.
//!
//! TRANSCRIPT is `lab/judges/libipt_transcript.c`, compiled; OURS is the folder of our library; JOBS are files with more
//! jobs for it. Each case and each recording of FIXTURES becomes jobs, with MUTATIONS damaged copies each. The texts of
//! both libraries must be the same. `cargo judge libipt` runs all of it.

mod compare;
mod jobs;

use std::{env, path::Path, process::ExitCode};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [transcript, ours, fixtures, mutations, files @ ..] = &arguments[..] else {
        eprintln!("usage: judge-libipt TRANSCRIPT OURS FIXTURES MUTATIONS [JOBS]…");
        return ExitCode::from(2);
    };
    match judge(Path::new(transcript), Path::new(ours), Path::new(fixtures), mutations, files) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("judge-libipt: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all jobs are equal.
fn judge(
    transcript: &Path,
    ours: &Path,
    fixtures: &Path,
    mutations: &str,
    files: &[String],
) -> Outcome<bool> {
    let folder = tempfile::tempdir()?;
    let mut list = jobs::of_fixtures(fixtures, folder.path(), mutations.parse()?)?;
    for file in files {
        list.extend(std::fs::read_to_string(file)?.lines().map(str::to_owned));
    }
    let tally = compare::compare(transcript, ours, &list)?;
    let compare::Tally { traces, lines, different, crashed } = tally;
    println!(
        "{traces} traces, {lines} equal lines; {different} traces differ; on {crashed} Intel's library ends early"
    );
    Ok(tally.different == 0)
}
