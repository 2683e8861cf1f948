//! `cargo judge explain`: programs with one planted cause each are recorded here and now, and `hodo explain` must name the
//! function and what it does, most often in its first finding. Of healthy programs nothing may be found but what is hot and what
//! happens once; of their kernel events no lock, as they have none.
//!
//! ```text
//! causes/*  ─┬─hodo record --engine native─► control flow ──┐
//!            └─hodo record --engine ftrace─► kernel events ─┴─► hodo explain ──► its findings
//! ```
//!
//! A cause is a file of `causes`. Comments at its begin say what it is, as `key: value`:
//!
//! | key | value |
//! |---|---|
//! | `case` | begins a case: what is wrong |
//! | `run` | the program's arguments |
//! | `finds` | words of the finding, with a bar between them; of words with a comma between them one is enough |
//! | `healthy` | in place of `finds`: nothing is wrong |
//! | `record` | before the first case: `kernel`, or `slow-disk` for a device that is slowed down; control flow otherwise |
//! | `build` | before the first case: flags of the compiler |
//! | `threads` | before the first case: names of threads beside the program's own |
//! | `program` | before the first case: a program of `lab/workloads` in place of this file |
//!
//! Recording kernel events needs root. Programs then run with real-time priority, and `explain` looks at their threads
//! only: what else the machine does may well stand out.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Outcome, command,
    setup::{self, Need},
    workloads,
};

/// How a case is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Recorder {
    /// Control flow.
    #[default]
    Native,
    /// Kernel events, by ftrace.
    Kernel,
    /// The same, on a device that is slowed down.
    SlowDisk,
}

/// What a file says about all of its cases.
#[derive(Clone, Debug, Default)]
struct Program {
    source: PathBuf,
    recorder: Recorder,
    flags: Vec<String>,
    threads: String,
}

/// A recording with one planted cause, or none.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) name: String,
    program: Program,
    /// The command, if it is one of the system.
    command: Vec<String>,
    pub(super) arguments: Vec<String>,
    /// Of each of these lists one word is in the finding; nothing if all is well.
    finds: Vec<Vec<String>>,
    /// Whether any rules but those about locks may find something.
    only_locks: bool,
}

impl Case {
    /// Whether a sentence says what is planted.
    pub(super) fn is_named_in(&self, sentence: &str) -> bool {
        self.finds.iter().all(|words| words.iter().any(|word| sentence.contains(word)))
    }
}

/// The rule that finds locks.
const LOCKS: &str = "lock-wait";
/// Rules whose findings say what is, not what is wrong.
const NEUTRAL: &[&str] = &["hot", "first-call", "roles"];
/// The share of causes that the first finding must name.
const FIRST: f64 = 0.9;

/// Judges every case, or those whose name contains one of these words.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/explain");
    let mut cases = cases()?;
    let healthy = healthy(&folder)?;
    cases.extend(healthy.iter().map(without_locks));
    cases.extend(healthy);
    cases.retain(|case| names.is_empty() || names.iter().any(|name| case.name.contains(name.as_str())));
    let (mut planted, mut first, mut failed) = (0, 0, Vec::new());
    println!("{:52} {:>8}  findings", "case", "verdict");
    for (number, case) in cases.iter().enumerate() {
        let folder = folder.join(number.to_string());
        fs::create_dir_all(&folder)?;
        let findings = explain(case, &record(case, &folder)?)?;
        let verdict = verdict(case, &findings);
        planted += usize::from(!case.finds.is_empty());
        first += usize::from(verdict == "first");
        if verdict == "WRONG" {
            failed.push(case.name.as_str());
        }
        println!("{:52} {verdict:>8}  {}", case.name, rules(&findings).join(", "));
        if verdict != "first" && verdict != "healthy" {
            findings.iter().take(3).for_each(|row| println!("    {}", row[2].as_str().unwrap_or_default()));
        }
    }
    println!("{first} of {planted} causes are in the first finding");
    if (first as f64) < planted as f64 * FIRST {
        return Err(format!("only {first} of {planted} causes are in the first finding").into());
    }
    match failed.is_empty() && !cases.is_empty() {
        true => Ok(()),
        false => Err(format!("not explained: {}", failed.join(", ")).into()),
    }
}

fn rules(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|row| row[1].as_str().unwrap_or_default()).collect()
}

/// Whether the first finding, or one of the first three, says what is planted.
fn verdict(case: &Case, findings: &[Value]) -> &'static str {
    if case.finds.is_empty() {
        let is_well = |rule: &&str| if case.only_locks { *rule != LOCKS } else { NEUTRAL.contains(rule) };
        let well = rules(findings).iter().all(is_well);
        return if well { "healthy" } else { "WRONG" };
    }
    let says = |row: &Value| case.is_named_in(row[2].as_str().unwrap_or_default());
    match findings.iter().take(3).position(says) {
        Some(0) => "first",
        Some(_) => "named",
        None => "WRONG",
    }
}

/// The cases of all files with causes.
pub(super) fn cases() -> Outcome<Vec<Case>> {
    let folder = command::root().join("lab/judge/causes");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension != "list"));
    files.sort_unstable();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let mut program = Program { source: file.clone(), ..Program::default() };
        let keys = text.lines().map_while(|line| line.strip_prefix("// ").or(line.strip_prefix("# ")));
        for (key, value) in keys.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            set(key, value, &mut program, &mut cases)
                .ok_or_else(|| format!("{}: {key}: {value} is out of place", file.display()))?;
        }
    }
    Ok(cases)
}

/// Applies a key of a file. Other lines are text.
fn set(key: &str, value: &str, program: &mut Program, cases: &mut Vec<Case>) -> Option<()> {
    let words = || value.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    match key {
        "case" => cases.push(Case { name: value.to_owned(), program: program.clone(), ..Case::default() }),
        "run" => cases.last_mut()?.arguments = words(),
        "finds" => {
            let alternatives = |words: &str| words.split(',').map(str::to_owned).collect();
            cases.last_mut()?.finds = value.split('|').map(alternatives).collect();
        }
        "healthy" => _ = cases.last_mut()?,
        "record" => {
            program.recorder = match value {
                "kernel" => Recorder::Kernel,
                "slow-disk" => Recorder::SlowDisk,
                _ => return None,
            }
        }
        "build" => program.flags = words(),
        "threads" => value.clone_into(&mut program.threads),
        "program" => program.source = workloads::source(value),
        _ => {}
    }
    Some(())
}

/// Programs of the system without a planted cause, and what they read.
fn healthy(folder: &Path) -> Outcome<Vec<Case>> {
    let inputs = folder.join("inputs");
    fs::create_dir_all(&inputs)?;
    let docs = command::root().join("docs");
    let mut text = String::new();
    for name in ["analyses.md", "recording.md", "intel-pt.md", "formats.md"] {
        text.push_str(&fs::read_to_string(docs.join(name))?);
    }
    fs::write(inputs.join("text"), &text)?;
    fs::write(inputs.join("makefile"), "all: a b\na b:\n\techo $@\n")?;
    let at = |path: PathBuf| path.to_string_lossy().into_owned();
    let places = [
        ("{text}", at(inputs.join("text"))),
        ("{makefile}", at(inputs.join("makefile"))),
        ("{folder}", at(docs)),
        ("{source}", at(workloads::source("paper.c"))),
        ("{repository}", at(command::root())),
    ];
    let list = fs::read_to_string(command::root().join("lab/judge/causes/healthy.list"))?;
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, line)| system(name, line, &places))
        .collect())
}

/// Returns the case of a healthy program's kernel events: it has no locks.
fn without_locks(healthy: &Case) -> Case {
    let program = Program { recorder: Recorder::Kernel, ..Program::default() };
    let name = format!("{}, without locks", healthy.name);
    Case { name, program, command: healthy.command.clone(), only_locks: true, ..Case::default() }
}

fn system(name: &str, line: &str, places: &[(&str, String)]) -> Case {
    let line = places.iter().fold(line.to_owned(), |line, (place, path)| line.replace(place, path));
    // Quotation marks hold one word together.
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        1 => vec![part.to_owned()],
        _ => part.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
    });
    Case { name: name.to_owned(), command: words.collect(), ..Case::default() }
}

/// Compiles a case, if it is not a program of the system, and records it.
fn record(case: &Case, folder: &Path) -> Outcome<PathBuf> {
    let recording = folder.join("recording");
    let mut record = Command::new(command::hodo());
    record.args(["record", "-q", "-o"]).arg(&recording).current_dir(folder);
    if case.program.recorder == Recorder::Native {
        record.args(["--engine", "native", "--"]).args(words(case, folder)?).args(&case.arguments);
        command::capture(&mut record)?;
        return Ok(recording);
    }
    record.args(["--engine", "ftrace", "-e", "sched", "-e", "irq", "-e", "syscalls", "-e", "block"]);
    record.args(["--buffer-size", "32M", "--", "chrt", "--fifo", "10"]);
    if !case.command.is_empty() {
        command::capture(record.args(words(case, folder)?))?;
        return Ok(recording);
    }
    let binary = compile(&case.program, folder)?;
    if case.program.recorder == Recorder::SlowDisk {
        let disk = SlowDisk::new(folder)?;
        // The shell enters the group and becomes the program.
        record.args(["sh", "-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&disk.group);
        command::capture(record.arg(&binary).args(&case.arguments).arg(&disk.device))?;
        return Ok(recording);
    }
    let arguments = case.arguments.iter().map(|word| word.replace("{program}", &binary.to_string_lossy()));
    command::capture(record.arg(&binary).args(arguments))?;
    Ok(recording)
}

/// Returns the words of a case's command without its arguments; compiles the program, if it is not one of the system.
pub(super) fn words(case: &Case, folder: &Path) -> Outcome<Vec<String>> {
    let mut words = case.command.clone();
    match words.first_mut() {
        None => return prepared(&case.program, folder),
        Some(name) if name == "python3" => *name = workloads::python()?,
        Some(_) => {}
    }
    Ok(words)
}

/// Returns the words of the command that runs a program; of Java they lack the class. What a run-time compiler made has its
/// names in a list that the runtime writes for perf.
fn prepared(program: &Program, folder: &Path) -> Outcome<Vec<String>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    Ok(match program.source.extension().and_then(|extension| extension.to_str()) {
        Some("py") => vec![workloads::python()?, "-I".to_owned(), "-S".to_owned(), text(&program.source)],
        Some("js") => [words(&["node", "--perf-basic-prof"]), vec![text(&program.source)]].concat(),
        Some("java") => {
            let mut compile = Command::new("javac");
            command::quietly(compile.arg("-d").arg(folder).arg(&program.source).current_dir(folder))?;
            const FLAGS: &[&str] = &[
                "java",
                "-XX:+UnlockDiagnosticVMOptions",
                "-XX:+DumpPerfMapAtExit",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
            ];
            [words(FLAGS), vec![text(folder)]].concat()
        }
        _ => vec![text(&compile(program, folder)?)],
    })
}

fn compile(program: &Program, folder: &Path) -> Outcome<PathBuf> {
    let binary = folder.join(program.source.file_stem().unwrap_or_default());
    let extension = program.source.extension().and_then(|extension| extension.to_str());
    let (compiler, optimise) = match extension {
        Some("c") => ("gcc", "-O1"),
        Some("cpp") => ("g++", "-O1"),
        Some("rs") => ("rustc", "-O"),
        _ => return Err(format!("{}: no compiler", program.source.display()).into()),
    };
    let mut compile = Command::new(compiler);
    compile.args([optimise, "-g", "-o"]).arg(&binary).arg(&program.source).args(&program.flags);
    command::quietly(compile.current_dir(folder))?;
    Ok(binary)
}

/// Returns the rows of `hodo explain`: weight, rule, sentence, command.
fn explain(case: &Case, recording: &Path) -> Outcome<Vec<Value>> {
    /// The length to which the kernel cuts a thread's name, in bytes.
    const NAME: usize = 15;
    let mut explain = Command::new(command::hodo());
    explain.args(["explain", "-q", "--format", "json"]);
    if case.program.recorder != Recorder::Native {
        let file = case.command.first().map_or(case.program.source.as_path(), Path::new);
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = &name[..name.len().min(NAME)];
        explain.args(["--comm", &format!("{name},{}", case.program.threads)]);
    }
    let table: Value = serde_json::from_str(&command::capture(explain.arg(recording))?)?;
    Ok(table["rows"].as_array().cloned().unwrap_or_default())
}

/// A block device on a file that answers at most 50 reads a second to a group of processes, undone when dropped.
struct SlowDisk {
    device: PathBuf,
    /// The folder of the group.
    group: PathBuf,
    /// Where the controller of old kernels' groups is mounted, unless the group is one of version 2.
    mounted: Option<PathBuf>,
}

impl SlowDisk {
    fn new(folder: &Path) -> Outcome<SlowDisk> {
        let file = folder.join("disk");
        fs::File::create(&file)?.set_len(64 << 20)?;
        let mut attach = Command::new("losetup");
        let device = command::capture(attach.args(["--find", "--show"]).arg(&file))?.trim().to_owned();
        let number = device.trim_start_matches("/dev/loop").to_owned();
        let unified = Path::new("/sys/fs/cgroup");
        let has_io =
            fs::read_to_string(unified.join("cgroup.subtree_control")).is_ok_and(|list| list.contains("io"));
        let root = if has_io { unified.to_owned() } else { folder.join("groups") };
        let group = root.join("hodo-judge");
        let disk = SlowDisk { device: device.into(), group, mounted: (!has_io).then(|| root.clone()) };
        if !has_io {
            fs::create_dir_all(&root)?;
            command::quietly(Command::new("mount").args(["-t", "cgroup", "-o", "blkio", "none"]).arg(&root))?;
        }
        fs::create_dir(&disk.group)?;
        match has_io {
            true => fs::write(disk.group.join("io.max"), format!("7:{number} riops=50"))?,
            false => fs::write(disk.group.join("blkio.throttle.read_iops_device"), format!("7:{number} 50"))?,
        }
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // What can't be undone is reported by the programs themselves.
        _ = fs::remove_dir(&self.group);
        if let Some(root) = &self.mounted {
            _ = command::quietly(Command::new("umount").arg(root));
        }
        _ = command::quietly(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_says_what_is_found_and_each_healthy_program_what_runs() {
        let cases = cases().expect("readable causes");
        assert!(cases.iter().filter(|case| !case.finds.is_empty()).count() >= 40, "{}", cases.len());
        assert!(cases.iter().all(|case| !case.name.is_empty() && case.program.source.is_file()), "{cases:?}");
        let folder = tempfile::tempdir().expect("a folder");
        let healthy = healthy(folder.path()).expect("a list");
        assert!(healthy.len() >= 20 && healthy.iter().all(|case| !case.command.is_empty()), "{healthy:?}");
        let inputs = ["{text}", "{folder}", "{source}", "{repository}", "{makefile}"];
        let is_replaced = |word: &String| inputs.iter().all(|input| !word.contains(input));
        assert!(healthy.iter().flat_map(|case| &case.command).all(is_replaced), "{healthy:?}");
    }
}
