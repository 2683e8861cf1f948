//! Compares our `libipt.so.2` with Intel's: `judge-libipt TRANSCRIPT GDB OURS FIXTURES MUTATIONS [JOBS]…`.
//!
//! TRANSCRIPT is `lab/judges/libipt_transcript.c`, compiled; GDB is `lab/judges/gdb_btrace.py`; OURS is the folder of our library; JOBS are files with more
//! jobs for it. Each case and each recording of FIXTURES becomes jobs, with MUTATIONS damaged copies each. The texts of
//! both libraries must be the same, and what gdb makes of each recording. `cargo judge libipt` runs all of it.

mod compare;
mod jobs;

use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [transcript, gdb, ours, fixtures, mutations, files @ ..] = &arguments[..] else {
        eprintln!("usage: judge-libipt TRANSCRIPT GDB OURS FIXTURES MUTATIONS [JOBS]…");
        return ExitCode::from(2);
    };
    let programs = Programs { transcript: transcript.as_ref(), gdb: gdb.as_ref(), ours: ours.as_ref() };
    match judge(&programs, Path::new(fixtures), mutations, files) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("judge-libipt: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What compares, and what is compared.
struct Programs<'a> {
    transcript: &'a Path,
    gdb: &'a Path,
    /// The folder of our library.
    ours: &'a Path,
}

/// Returns whether all is equal.
fn judge(programs: &Programs<'_>, fixtures: &Path, mutations: &str, files: &[String]) -> Outcome<bool> {
    let folder = tempfile::tempdir()?;
    let Programs { transcript, gdb, ours } = programs;
    let jobs::Jobs { mut list, recordings } = jobs::of_fixtures(fixtures, folder.path(), mutations.parse()?)?;
    for file in files {
        list.extend(std::fs::read_to_string(file)?.lines().map(str::to_owned));
    }
    let compare::Tally { traces, lines, different, crashed } = compare::compare(transcript, ours, &list)?;
    println!(
        "{traces} traces, {lines} equal lines; {different} traces differ; on {crashed} Intel's library ends early"
    );
    let mut equal = different == 0;
    for recording in recordings {
        let places = recording.split(' ').filter_map(|word| word.split_once('=')).map(|(_, place)| place);
        equal &= Command::new("python3").arg(gdb).arg(ours).args(places).status()?.success();
    }
    Ok(equal)
}
