//! `cargo judge libipt [tools | MUTATIONS [JOBS]…]`: our `libipt.so.2` beside Intel's, by the same programs: one that uses every
//! part of the interface, over cases, recordings and damaged copies of them; and gdb, which decodes a stored trace itself.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    command::{self, cargo},
    libipt_tools,
    setup::{self, Need},
};

/// Damaged copies of each trace, unless said otherwise.
const MUTATIONS: &str = "3";

/// Judges with the given number of damaged copies, and with more jobs.
pub(super) fn run(arguments: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let folder = command::target().join("judge/interface");
    fs::create_dir_all(&folder)?;
    let transcript = folder.join("transcript");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&transcript);
    command::quietly(gcc.arg(command::root().join("lab/judges/libipt_transcript.c")).arg("-lipt"))?;
    let library = library(&folder)?;
    if arguments == ["tools"] {
        return libipt_tools::run(&folder, &library);
    }
    let mut judge = cargo(&["run", "-q", "-p", "hodo-cases", "--bin", "judge-libipt", "--"]);
    judge.arg(&transcript).arg("lab/judges/gdb_btrace.py").arg(&library).arg("fixtures");
    match arguments {
        [] => judge.arg(MUTATIONS),
        arguments => judge.args(arguments),
    };
    command::run(&mut judge)
}

/// Builds our library; returns the folder in which it has its name.
fn library(folder: &Path) -> Outcome<PathBuf> {
    command::run(&mut cargo(&["build", "-q", "-p", "hodo-libipt"]))?;
    fs::copy(command::target().join("debug/libipt.so"), folder.join("libipt.so.2"))?;
    Ok(folder.to_owned())
}
