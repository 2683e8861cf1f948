//! `cargo xtask fixtures`: records the contents of `fixtures/` again.
//!
//! Recordings contain the full paths of the files that they mapped, so the program is recorded at a path that is the
//! same on every machine, and kept under that path inside the fixture: `--symfs` finds it.

use std::{fs, os::unix::process::CommandExt, path::Path, process::Command};

use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// The folder of the program while it is recorded, without the first `/`.
const FOLDER: &str = "tmp/hodo-fixtures";

/// The recordings of `tiny`: a name, and the event in perf's syntax.
const RECORDINGS: &[(&str, &str)] = &[
    ("tiny", "intel_pt//u"),
    ("tiny-exact-time", "intel_pt/tsc,mtc,mtc_period=0,cyc,cyc_thresh=0,psb_period=0/u"),
    ("tiny-no-return-compression", "intel_pt/noretcomp,psb_period=0/u"),
];

/// Makes all recordings.
pub(crate) fn run(_arguments: &[String]) -> Outcome {
    setup::ensure(Need::Test)?;
    command::build_hodo()?;
    let folder = Path::new("/").join(FOLDER);
    let map = format!("-ffile-prefix-map={}=", workloads::source("").display());
    let flags = ["-static", "-nostdlib", "-fcf-protection=none", "-fno-stack-protector", &map];
    let program = workloads::compile("tiny.c", &flags, &folder)?;
    let fixtures = command::root().join("fixtures/perf");
    let kept = fixtures.join("symfs").join(FOLDER);
    fs::create_dir_all(&kept)?;
    fs::copy(&program, kept.join("tiny"))?;
    for (name, event) in RECORDINGS {
        let file = format!("{name}.data");
        // The recording contains the command line, so that also must be the same on every machine.
        let mut hodo = Command::new(command::hodo());
        hodo.arg0("hodo").current_dir(&folder);
        hodo.args(["record", "--engine", "emulate", "-q", "-e", event, "-o", &file, "--", "./tiny"]);
        command::run(&mut hodo)?;
        fs::copy(folder.join(&file), fixtures.join(&file))?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}
