//! `cargo xtask release`: builds the programs as shipped and measured, with profile-guided optimisation
//! (docs/decisions/0014): the compiler receives profiles of their runs on small inputs of ours, none of which is
//! measured.
//!
//! ```text
//! instrumented build ──training──► target/training/TARGET.profdata ──► target/shipped/, wheel
//! instrumented static build ──training──► the same of its target ────► static program
//! ```
//!
//! A profile names functions with a hash of their crate, its features and the target. So every target has its own, and
//! all that is compiled with it is of the same packages: else cargo would choose other features.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome, command,
    setup::{self, Need},
    wheel, workloads,
};

/// The shipped package with the command, and that of the lab whose programs are measured with it.
const PROGRAMS: [&str; 2] = ["hodo", "hodo-speed"];
/// The emulated processor, and the wheel.
const LIBRARIES: [&str; 2] = ["hodo-emulator", "hodoscope"];
const KERNEL: &str = "fixtures/ctf/lttng2.13-kernel";
/// How often the kernel trace is repeated: reading it takes most of the time, and analyses of its events weigh as much as
/// the decoders, whose loops are shorter.
const REPETITIONS: &str = "900";
/// Our files of other formats with software events.
const EVENTS: [&str; 4] = [
    "fixtures/ctf/lttng2.16-kernel-ctf2",
    "fixtures/ctf/ust2.16-ctf2",
    "fixtures/ftrace/small-6.dat",
    "fixtures/perf/events.data",
];
/// Functions are aligned to cache lines, and loops to half of one: else their speed depends by chance on the code before
/// them. Blocks that make up the last millionth of the training lie apart for the same reason.
const LAYOUT: &str = "-Cllvm-args=-align-all-functions=6 -Cllvm-args=-align-loops=32 -Cllvm-args=-enable-split-machine-functions -Cllvm-args=-mfs-psi-cutoff=999999";
/// Relocations take a megabyte unless they are packed. Only for the program without libraries: the others are loaded by the C
/// library of their machine, and an old one can't read packed relocations.
const PACKED: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";
/// The target of a program that needs no libraries.
const STATIC: &str = "x86_64-unknown-linux-musl";
/// Size of the input text of the recorded programs, in bytes.
const TEXT: u32 = 150_000;

/// Builds them, if anything has changed.
pub fn build() -> Outcome {
    setup::ensure(Need::Release)?;
    let target = host()?;
    let folder = folder();
    let packages = [&PROGRAMS[..], &LIBRARIES].concat();
    compile(&folder, &target, &packages, &flags(&trained(&target, &packages)?))?;
    for file in built(&programs(&folder, &target))? {
        let shipped = folder.join(file.file_name().unwrap_or_default());
        // A program that runs can't be written over.
        if fs::exists(&shipped)? {
            fs::remove_file(&shipped)?;
        }
        fs::copy(&file, shipped)?;
    }
    Ok(())
}

/// Builds `hodo` without libraries, after [`build`]; returns its path.
///
/// # Errors
/// The target can't be installed, or the compiler fails.
pub fn static_program() -> Outcome<PathBuf> {
    command::run(Command::new("rustup").args(["target", "add", STATIC]))?;
    let flags = format!("{} {PACKED}", flags(&trained(STATIC, &PROGRAMS)?));
    compile(&folder(), STATIC, &PROGRAMS, &flags)?;
    Ok(programs(&folder(), STATIC).join("hodo"))
}

/// Builds the wheel with the profile of [`build`] and writes it into a folder; returns its path.
///
/// # Errors
/// maturin fails.
pub fn wheel(output: &Path) -> Outcome<PathBuf> {
    let (target, folder) = (host()?, folder().to_string_lossy().into_owned());
    let arguments = ["--release", "--target", &target, "--target-dir", &folder];
    let flags = flags(&profile(&target));
    wheel::build(&shipped("libhodo_emulator.so"), &arguments, Some(&flags), output)
}

/// The time of all files of packages: that of the commit, in seconds since the Unix epoch, or `SOURCE_DATE_EPOCH`.
/// Source: reproducible-builds.org, "`SOURCE_DATE_EPOCH` specification".
///
/// # Errors
/// There is no commit, or no number.
pub fn commit_time() -> Outcome<u32> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => {
            let mut git = Command::new("git");
            command::capture(git.args(["log", "-1", "--format=%ct"]).current_dir(command::root()))?
        }
    };
    time.trim().parse().map_err(|_| format!("`{}` is no time in seconds", time.trim()).into())
}

/// What the runs of training counted.
fn profile(target: &str) -> PathBuf {
    command::target().join("training").join(target).with_extension("profdata")
}

/// Makes the profile of these packages, if it is older than they; returns its path. The inputs are those of this machine's
/// own programs, which [`build`] trains first.
fn trained(target: &str, packages: &[&str]) -> Outcome<PathBuf> {
    let (folder, profile) = (command::target().join("training"), profile(target));
    let (raw, inputs) = (folder.join("raw").join(target), folder.join("inputs"));
    compile(&folder, target, packages, &format!("-Cprofile-generate={}", raw.display()))?;
    let programs = programs(&folder, target);
    if is_newer(&profile, &programs)? {
        return Ok(profile);
    }
    eprintln!("training");
    let make_empty = |folder: &Path| -> Outcome {
        if fs::exists(folder)? {
            fs::remove_dir_all(folder)?;
        }
        Ok(fs::create_dir_all(folder)?)
    };
    make_empty(&raw)?;
    if target == host()? {
        make_empty(&inputs)?;
        prepare(&programs, &inputs)?;
    }
    train(&programs, &inputs)?;
    command::run(Command::new(profdata()?).arg("merge").arg("-o").arg(&profile).arg(&raw))?;
    Ok(profile)
}

/// Flags for compiling with the profile. The folders of this machine are no part of programs, which are the same bytes
/// wherever they are built.
fn flags(profile: &Path) -> String {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).unwrap_or_default();
    format!(
        "-Cprofile-use={} {LAYOUT} --remap-path-prefix={}=/cargo --remap-path-prefix={}=/hodoscope",
        profile.display(),
        home.display(),
        command::root().display()
    )
}

/// The path of a shipped program; the emulator's plugin is in the same folder.
pub fn shipped(name: &str) -> PathBuf {
    folder().join(name)
}

/// The folder of all that is shipped.
fn folder() -> PathBuf {
    command::target().join("shipped")
}

/// The folder of cargo's programs in a separate target folder.
fn programs(folder: &Path, target: &str) -> PathBuf {
    folder.join(target).join("release")
}

/// The compiler's name for this machine.
fn host() -> Outcome<String> {
    let version = command::capture(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("`rustc -vV` names no host")?.to_owned())
}

/// Compiles packages; a named target keeps the flags away from build scripts.
fn compile(folder: &Path, target: &str, packages: &[&str], flags: &str) -> Outcome {
    let mut cargo = command::cargo(&["build", "--release", "--target", target, "--target-dir"]);
    cargo.arg(folder).args(packages.iter().flat_map(|package| ["-p", package])).env("RUSTFLAGS", flags);
    command::run(&mut cargo)
}

/// Whether a profile is newer than all programs in a folder.
fn is_newer(profile: &Path, programs: &Path) -> Outcome<bool> {
    if !fs::exists(profile)? {
        return Ok(false);
    }
    let made = fs::metadata(profile)?.modified()?;
    for file in built(programs)? {
        if fs::metadata(file)?.modified()? > made {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The programs of a folder, and the plugin, without cargo's other files.
fn built(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths: Vec<PathBuf> = paths.collect::<Outcome<_>>()?;
    let is_built = |path: &PathBuf| {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        path.is_file() && !is_hidden && path.extension().is_none_or(|extension| extension == "so")
    };
    Ok(paths.into_iter().filter(is_built).collect())
}

/// The programs that are recorded for training, each with its event. Counts of cycles are further packets, which lead the decoder
/// to further code.
const RECORDED: [(&str, &str); 4] = [
    ("fib", "intel_pt//u"),
    ("gzip", "intel_pt//u"),
    ("awk", "intel_pt//u"),
    ("awk-cycles", "intel_pt/cyc=1/u"),
];

/// Writes the inputs of training into a folder, with the programs of another.
fn prepare(programs: &Path, folder: &Path) -> Outcome {
    let fixture = command::root().join(KERNEL);
    let mut repeat = Command::new(programs.join("hodo-repeat"));
    command::quietly(repeat.arg(fixture).arg(REPETITIONS).arg(folder.join("kernel")))?;

    let text = workloads::generate("text", TEXT, folder)?.to_string_lossy().into_owned();
    let fib = workloads::compile("fib.c", &[], folder)?.to_string_lossy().into_owned();
    let words = "/[a-z]+1[0-9]*5/ { n[substr($1, 1, 3)] += length($0) } END { for (k in n) print k, n[k] }";
    for (name, event) in RECORDED {
        let command: &[&str] = match name {
            "fib" => &[&fib, "22"],
            "gzip" => &["gzip", "-6", "-c", &text],
            _ => &["awk", words, &text],
        };
        let mut record = Command::new(programs.join("hodo"));
        record.args(["record", "--engine", "emulate", "-q", "-e", event, "-o"]).arg(recording(folder, name));
        command::quietly(record.arg("--").args(command).stdout(Stdio::null()))?;
    }
    Ok(())
}

/// The path of a recording among the inputs.
fn recording(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_extension("perf.data")
}

/// Runs the programs in a folder on the inputs in another.
fn train(programs: &Path, folder: &Path) -> Outcome {
    let run = |program: &str, arguments: &[&str], input: &Path| {
        command::quietly(
            Command::new(programs.join(program))
                .args(arguments)
                .arg(input)
                .current_dir(folder)
                .stdout(Stdio::null()),
        )
    };
    let kernel = folder.join("kernel");
    for threads in ["-j1", "-j2"] {
        for analysis in ["count", "cpu", "io", "syscalls", "all"] {
            run("hodo", &["report", analysis, "-q", threads], &kernel)?;
        }
    }
    for arguments in [&["script", "--events", "-q"][..], &["script", "--events", "--format", "jsonl", "-q"]] {
        run("hodo", arguments, &kernel)?;
        EVENTS.iter().try_for_each(|events| run("hodo", arguments, &command::root().join(events)))?;
    }
    command::quietly(Command::new(programs.join("hodo-fields")).arg(&kernel).arg("1").stdout(Stdio::null()))?;

    for (name, _) in RECORDED {
        let recording = recording(folder, name);
        for arguments in [
            &["report", "functions", "-q"][..],
            &["report", "tree", "-q"],
            &["report", "blocks", "-q"],
            &["script", "--calls", "-q"],
            &["script", "--insns", "--fields", "ip", "-q"],
        ] {
            run("hodo", arguments, &recording)?;
        }
        // Without a memo, every path is decoded as if it were new.
        for memo in [&[][..], &["--without-memo"]] {
            for what in ["packets", "functions", "calls", "lines", "instructions"] {
                let mut speed = Command::new(programs.join("hodo-speed"));
                speed.arg(what).arg(&recording).args(memo).current_dir(folder).stdout(Stdio::null());
                command::quietly(&mut speed)?;
            }
        }
    }
    Ok(())
}

/// The tool that merges the profiles of runs, in the compiler's version.
fn profdata() -> Outcome<PathBuf> {
    let sysroot = command::capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    let program =
        Path::new(sysroot.trim()).join("lib/rustlib").join(host()?).join("bin").join("llvm-profdata");
    if !fs::exists(&program)? {
        command::run(Command::new("rustup").args(["component", "add", "llvm-tools"]))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What cargo compiles for these packages, with the features that it chooses.
    fn compiled(packages: &[&str]) -> BTreeSet<String> {
        let mut cargo = command::cargo(&["tree", "--locked", "-e", "normal,build", "--prefix", "none"]);
        cargo.args(["-f", "{p} [{f}]"]).args(packages.iter().flat_map(|package| ["-p", package]));
        let lines = command::capture(&mut cargo).expect("cargo knows the packages");
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    #[test]
    fn the_wheel_is_compiled_with_the_features_of_the_programs() {
        let (wheel, all) = (compiled(&["hodoscope"]), compiled(&[&PROGRAMS[..], &LIBRARIES].concat()));
        let differ: Vec<&String> = wheel.difference(&all).collect();
        assert!(wheel.len() > 100 && differ.is_empty(), "its profile does not apply: {differ:?}");
    }
}
