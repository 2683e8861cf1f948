//! LLVM's unsymbolized profile: exact counts by address, from which `llvm-profgen` and the program's debugging
//! information make the sample profile that compilers read.
//!
//! ```text
//! hodo export --to llvm ──► llvm-profgen --unsymbolized-profile ──► clang -fprofile-sample-use, rustc -Zprofile-sample-use
//! ```
//!
//! Source: `UnsymbolizedProfileReader` of LLVM's `llvm-profgen`. Addresses are those of the program's file, which it reads
//! with `--use-offset=0`.

use std::io;

use hodo_model::Loss;

use crate::{BranchProfile, Content, Export, Output};

pub(crate) const EXPORT: Export = Export {
    name: "llvm",
    help: "exact branch profile of one module for llvm-profgen, whose output compilers read",
    content: Content::Branches(write),
};

/// The address of a side of a branch that is in another module: no code is at 0.
const ELSEWHERE: u64 = 0;

/// Losses have no place in this format; `hodo` prints them.
fn write(profile: &BranchProfile, _: &[Loss], out: Output<'_>) -> io::Result<()> {
    write_runs(profile, out)?;
    write_taken(profile, out)?;
    out.flush()
}

/// Writes the number of runs of straight-line code, and each with its executions.
pub(crate) fn write_runs(profile: &BranchProfile, out: Output<'_>) -> io::Result<()> {
    writeln!(out, "{}", profile.runs.len())?;
    for ((from, to), executions) in &profile.runs {
        writeln!(out, "{from:x}-{to:x}:{executions}")?;
    }
    Ok(())
}

/// Writes the number of taken branches, and each with its executions.
pub(crate) fn write_taken(profile: &BranchProfile, out: Output<'_>) -> io::Result<()> {
    writeln!(out, "{}", profile.taken.len())?;
    for ((from, to), executions) in &profile.taken {
        let (from, to) = (from.unwrap_or(ELSEWHERE), to.unwrap_or(ELSEWHERE));
        writeln!(out, "{from:x}->{to:x}:{executions}")?;
    }
    Ok(())
}
