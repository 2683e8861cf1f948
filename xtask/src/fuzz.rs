//! `cargo xtask fuzz`: runs the readers on random input, each for some time.
//!
//! ```text
//! fuzz/corpus/TARGET ──copy──► target/fuzz/TARGET/corpus ──libFuzzer──► log, new inputs
//!          ▲                                                                │
//!          └───────────────────── --keep: minimised ◄───────────────────────┘
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    Outcome, command,
    setup::{self, Need},
};

const USAGE: &str = "usage: cargo xtask fuzz [--jobs N] [--keep] [SECONDS] [TARGET]…";

/// The maximum input length, so that a corpus stays small.
const LONGEST: &str = "-max_len=4096";
/// The time limit of an input, in seconds.
const PATIENCE: &str = "-timeout=20";

/// The parsed command line.
struct Options {
    seconds: u32,
    /// Targets that run in parallel.
    jobs: usize,
    /// Whether the repository keeps the new inputs, minimised.
    keep: bool,
    targets: Vec<String>,
}

/// Runs the named targets, or all of them.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let options = parse(arguments)?;
    setup::ensure(Need::Fuzz)?;
    command::run(&mut cargo_fuzz(&["build"]))?;
    println!("{:12} {:>12} {:>9} {:>8} {:>9}", "target", "runs", "coverage", "corpus", "seconds");
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(target) = options.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            match fuzz(target, &options) {
                Ok(row) => println!("{row}"),
                Err(error) => {
                    println!("{target:12} {error}");
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push(target.clone());
                }
            }
        }
    };
    thread::scope(|scope| (0..options.jobs).for_each(|_| drop(scope.spawn(worker))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        println!("\n{} targets, {} s each, nothing found", options.targets.len(), options.seconds);
        return Ok(());
    }
    Err(format!("failing targets: {}", failed.join(", ")).into())
}

fn parse(arguments: &[String]) -> Outcome<Options> {
    let all = targets()?;
    let mut options = Options { seconds: 60, jobs: 1, keep: false, targets: Vec::new() };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--jobs" => options.jobs = arguments.next().ok_or(USAGE)?.parse::<usize>()?.max(1),
            "--keep" => options.keep = true,
            number if number.starts_with(|c: char| c.is_ascii_digit()) => options.seconds = number.parse()?,
            name if all.iter().any(|target| target == name) => options.targets.push(name.to_owned()),
            name => return Err(format!("no target `{name}`; there are {}\n{USAGE}", all.join(", ")).into()),
        }
    }
    if options.targets.is_empty() {
        options.targets = all;
    }
    Ok(options)
}

/// Runs a target; returns its row of the table.
fn fuzz(target: &str, options: &Options) -> Outcome<String> {
    let folder = command::target().join("fuzz").join(target);
    let (corpus, log) = (folder.join("corpus"), folder.join("log"));
    fs::create_dir_all(&corpus)?;
    let kept = command::root().join("fuzz/corpus").join(target);
    copy(&kept, &corpus)?;
    let limit = format!("-max_total_time={}", options.seconds);
    let mut fuzz = cargo_fuzz(&["run", target]);
    fuzz.arg(&corpus).args(["--", &limit, LONGEST, PATIENCE, "-print_final_stats=1"]);
    fuzz.stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    command::quietly(&mut fuzz).map_err(|error| format!("{error}; see {}", log.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if options.keep {
        keep(target, &corpus, &kept)?;
    }
    let figure = |name: &str| {
        let value = text.rsplit_once(name).and_then(|(_, rest)| rest.split_whitespace().next());
        value.unwrap_or("?").to_owned()
    };
    Ok(format!(
        "{target:12} {:>12} {:>9} {:>8} {:>9}",
        figure("stat::number_of_executed_units:"),
        figure(" cov:"),
        fs::read_dir(&corpus)?.count(),
        options.seconds
    ))
}

/// Keeps a minimal set of inputs with the same coverage in the repository.
fn keep(target: &str, corpus: &Path, kept: &Path) -> Outcome {
    let mut minimise = cargo_fuzz(&["cmin", target]);
    minimise.arg(corpus).stdout(Stdio::null()).stderr(Stdio::null());
    command::quietly(&mut minimise)?;
    if kept.exists() {
        fs::remove_dir_all(kept)?;
    }
    copy(corpus, kept)
}

/// Copies the files of a folder, if it exists.
fn copy(from: &Path, to: &Path) -> Outcome {
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The toolchain is pinned for everything else; sanitizers need nightly.
fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo", "fuzz"]).args(arguments).current_dir(command::root());
    cargo
}

/// The targets of `fuzz/`, in order of name.
fn targets() -> Outcome<Vec<String>> {
    let folder: PathBuf = command::root().join("fuzz/fuzz_targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}
