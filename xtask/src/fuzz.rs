//! `cargo xtask fuzz [SECONDS] [TARGET]…`: random input against the readers, for a time each.

use std::fs;

use crate::{Outcome, command};

const USAGE: &str = "usage: cargo xtask fuzz [SECONDS] [TARGET]…";

/// Runs the targets that are named, or all of them.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (seconds, names) = match arguments.split_first() {
        Some((first, rest)) if first.starts_with(|c: char| c.is_ascii_digit()) => {
            (first.parse::<u32>()?, rest)
        }
        _ => (60, arguments),
    };
    let targets = targets()?;
    if let Some(name) = names.iter().find(|name| !targets.contains(name)) {
        return Err(format!("no target `{name}`; there are {}\n{USAGE}", targets.join(", ")).into());
    }
    if !command::installed("cargo-fuzz") {
        return Err("cargo-fuzz is missing; run these and start again:\n\n    \
                    rustup toolchain install nightly --profile minimal\n    cargo install --locked cargo-fuzz\n"
            .into());
    }
    for target in targets.iter().filter(|target| names.is_empty() || names.contains(target)) {
        let limit = format!("-max_total_time={seconds}");
        // The toolchain is pinned for everything else; sanitizers need nightly.
        let mut fuzz = std::process::Command::new("rustup");
        fuzz.args(["run", "nightly", "cargo", "fuzz", "run", target, "--", &limit])
            .current_dir(command::root());
        command::run(&mut fuzz)?;
    }
    println!(
        "fuzz: {} targets, {seconds} s each, nothing found",
        if names.is_empty() { targets.len() } else { names.len() }
    );
    Ok(())
}

/// The targets of `fuzz/`, in order of name.
fn targets() -> Outcome<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(command::root().join("fuzz/fuzz_targets"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}
