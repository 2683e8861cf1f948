//! `cargo run -p lab -- profiles`: what an exact profile of ours is worth to a compiler and to BOLT, beside clang's own
//! instrumented profile. Times are of the native processor. Prints Markdown.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use workbench::{
    Outcome,
    command::{self, hodo},
    setup::{self, Need},
    workloads,
};

use super::measure::record;

/// Programs of `paper.c`, the iterations that are recorded, and those that are timed.
const PROGRAMS: [(&str, &str, &str); 3] =
    [("Sort", "20", "8000"), ("Canny", "8", "15000"), ("ParseInt", "200", "30000")];
/// Timed runs of each build, of which the median is printed.
const RUNS: usize = 15;
/// What all builds have: BOLT needs the relocations, and profiles of samples the names of inlined functions.
const FLAGS: [&str; 5] = ["-O2", "-w", "-g", "-fdebug-info-for-profiling", "-Wl,--emit-relocs"];

/// Prints the table.
pub(super) fn run() -> Outcome {
    setup::ensure(Need::Bench)?;
    command::build_hodo()?;
    println!(
        "| program | no profile | clang's counters | ours in clang | ours in BOLT |\n|---|---|---|---|---|"
    );
    for (name, recorded, timed) in PROGRAMS {
        let folder = command::target().join("lab/profiles").join(name);
        fs::create_dir_all(&folder)?;
        let plain = compile(&folder, "plain", &[])?;
        let builds = [
            plain.clone(),
            instrumented(&folder, [name, recorded])?,
            sampled(&folder, &plain, [name, recorded])?,
            bolted(&folder, &plain)?,
        ];
        let mut times = builds.each_ref().map(|_| Vec::new());
        for _ in 0..RUNS {
            for (program, times) in builds.iter().zip(&mut times) {
                times.push(seconds(program, [name, timed])?);
            }
        }
        let cells = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            format!("{:.3} s", times[RUNS / 2])
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Compiles `paper.c` with further flags.
fn compile(folder: &Path, name: &str, flags: &[String]) -> Outcome<PathBuf> {
    let program = folder.join(name);
    let mut clang = Command::new("clang-19");
    clang.args(FLAGS).args(flags).arg(workloads::source("paper.c")).arg("-lm").arg("-o").arg(&program);
    command::quietly(&mut clang)?;
    Ok(program)
}

/// With the counters of an instrumented run.
fn instrumented(folder: &Path, arguments: [&str; 2]) -> Outcome<PathBuf> {
    let program = compile(folder, "counting", &["-fprofile-instr-generate".to_owned()])?;
    let [raw, profile] = ["counts.profraw", "counts.profdata"].map(|file| folder.join(file));
    command::capture(Command::new(program).args(arguments).env("LLVM_PROFILE_FILE", &raw))?;
    let mut merge = Command::new("llvm-profdata-19");
    command::quietly(merge.arg("merge").arg("-o").arg(&profile).arg(&raw))?;
    compile(folder, "instrumented", &[format!("-fprofile-instr-use={}", profile.display())])
}

/// With a profile of our recording; the recording stays in the folder.
fn sampled(folder: &Path, plain: &Path, arguments: [&str; 2]) -> Outcome<PathBuf> {
    let recording = folder.join("recording.data");
    let program = plain.to_string_lossy().into_owned();
    record("intel_pt//u", &[&program, arguments[0], arguments[1]], &recording)?;
    let [counts, profile] = ["counts.text", "profile"].map(|file| folder.join(file));
    export("llvm", &counts, &recording)?;
    let mut generate = Command::new("llvm-profgen-19");
    generate.arg("--use-offset=0").arg("--unsymbolized-profile").arg(&counts);
    command::quietly(generate.arg("--binary").arg(plain).arg("--output").arg(&profile))?;
    compile(folder, "sampled", &[format!("-fprofile-sample-use={}", profile.display())])
}

/// The program without a profile, rearranged by BOLT.
fn bolted(folder: &Path, plain: &Path) -> Outcome<PathBuf> {
    let [branches, program] = ["branches.bolt", "bolted"].map(|file| folder.join(file));
    export("bolt", &branches, &folder.join("recording.data"))?;
    let mut bolt = Command::new("llvm-bolt-19");
    bolt.arg(plain).arg("-p").arg(&branches).args(["-pa", "-reorder-blocks=ext-tsp"]);
    // It prints pages, and has no option for silence.
    bolt.stdout(Stdio::null()).stderr(Stdio::null());
    command::quietly(bolt.arg("-reorder-functions=cdsort").arg("-o").arg(&program))?;
    Ok(program)
}

fn export(format: &str, file: &Path, recording: &Path) -> Outcome {
    let mut export = Command::new(hodo());
    export.args(["export", "-q", "--to", format, "--module", "plain", "-o"]).arg(file).arg(recording);
    command::quietly(&mut export)
}

/// The processor time that the iterations took, as the program prints it.
fn seconds(program: &Path, arguments: [&str; 2]) -> Outcome<f64> {
    let printed = command::capture(Command::new(program).args(arguments))?;
    let nanos: f64 = printed.split_whitespace().next().ok_or("it printed nothing")?.parse()?;
    Ok(nanos / 1e9)
}
