//! `cargo judge explain`: programs with one planted trouble each are recorded here and now; `hodo explain` must name that
//! trouble first, and say of programs without one only what is hot; of kernel events, that nothing stands out.
//!
//! ```text
//! program ─┬─hodo record --engine emulate─► control flow ──┐
//!          └─hodo record --engine ftrace──► kernel events ─┴─► hodo explain ──► its first finding
//! ```
//!
//! Recording kernel events needs root. The programs run with real-time priority and `explain` looks at their threads
//! only: what else the machine does may well stand out.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Outcome, command, latency,
    setup::{self, Need},
    workloads,
};

/// How a case is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorder {
    /// Control flow, on the emulated processor.
    Emulator,
    /// Kernel events, by ftrace.
    Kernel,
    /// The same, on a device that is slowed down.
    SlowDisk,
}

/// A recording with one planted trouble.
struct Case {
    trouble: &'static str,
    recorder: Recorder,
    source: &'static str,
    flags: &'static [&'static str],
    arguments: &'static [&'static str],
    /// The rule that finds it; none where nothing is wrong.
    rule: Option<&'static str>,
    /// What the finding says.
    says: &'static [&'static str],
}

const THREADS: &[&str] = &["-pthread"];
const fn of_flow(
    trouble: &'static str,
    (source, flags): (&'static str, &'static [&'static str]),
    arguments: &'static [&'static str],
    rule: Option<&'static str>,
    says: &'static [&'static str],
) -> Case {
    Case { trouble, recorder: Recorder::Emulator, source, flags, arguments, rule, says }
}

const fn of_kernel(
    trouble: &'static str,
    recorder: Recorder,
    arguments: &'static [&'static str],
    rule: Option<&'static str>,
    says: &'static [&'static str],
) -> Case {
    Case { trouble, recorder, source: "troubles.c", flags: THREADS, arguments, rule, says }
}

const CASES: &[Case] = &[
    of_flow("heavy tail", latency::PROGRAM, latency::ARGUMENTS, Some("heavy-tail"), latency::FINDING),
    of_flow(
        "unequal threads",
        ("threads.c", THREADS),
        &[],
        Some("unequal-threads"),
        &["one of 4", "1.75 times"],
    ),
    of_flow(
        "exception in a hot path",
        ("throws.cpp", &[]),
        &[],
        Some("exceptions"),
        &["_Unwind_RaiseException"],
    ),
    of_flow(
        "two kinds",
        ("modes.c", &[]),
        &["3000", "99"],
        Some("heavy-tail"),
        &["every 99th", "answer → rebuild"],
    ),
    of_flow("half are slow", ("modes.c", &[]), &["3000", "2"], Some("heavy-tail"), &["1,500 (every 2nd)"]),
    of_flow(
        "growth",
        ("habits.c", THREADS),
        &["grows"],
        Some("growth"),
        &["append costs more with each call"],
    ),
    of_flow(
        "retries",
        ("habits.c", THREADS),
        &["retries"],
        Some("heavy-tail"),
        &["41 times instead of once"],
    ),
    of_flow("deep recursion", ("habits.c", THREADS), &["deep"], Some("heavy-tail"), &["quick_sort ×280"]),
    of_flow("a rhythm", ("habits.c", THREADS), &["beats"], Some("rhythm"), &["every 100th"]),
    of_flow(
        "a hot function",
        ("habits.c", THREADS),
        &["even"],
        Some("hot"),
        &["step, called by main 3,000 times"],
    ),
    of_flow(
        "different roles",
        ("habits.c", THREADS),
        &["roles"],
        Some("hot"),
        &["roles of their own: parser"],
    ),
    of_flow("nothing wrong", ("fib.c", &[]), &["24"], Some("hot"), &["of the run is in fib"]),
    of_kernel("lock held too long", Recorder::Kernel, &["lock"], Some("lock-wait"), &["holder"]),
    of_kernel("slow disk", Recorder::SlowDisk, &["disk"], Some("disk-wait"), &["pread64", "Device 7:"]),
    of_kernel("too many small reads", Recorder::Kernel, &["small-reads"], Some("small-io"), &["of 1 bytes"]),
    of_kernel("CPU contention", Recorder::Kernel, &["contention"], Some("cpu-contention"), &[]),
    of_kernel("migration storm", Recorder::Kernel, &["migrations"], Some("migrations"), &[]),
    of_kernel("interrupt storm", Recorder::Kernel, &["interrupts"], Some("interrupt-storm"), &["NET_RX"]),
    of_kernel("nothing wrong", Recorder::Kernel, &["quiet"], None, &[]),
];

/// Names of the threads of `troubles.c`.
const NAMES: &str = "troubles,holder,waiter";

/// Judges every case, or those with the named troubles.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/explain");
    let (mut failed, mut judged) = (Vec::new(), 0);
    println!("{:24} {:16} {:>6}  result", "trouble", "first finding", "weight");
    for (number, case) in CASES.iter().enumerate() {
        if !names.is_empty() && !names.iter().any(|name| name == case.trouble) {
            continue;
        }
        judged += 1;
        let folder = folder.join(number.to_string());
        fs::create_dir_all(&folder)?;
        let recording = record(case, &folder)?;
        let findings = explain(case, &recording)?;
        let first = findings.first();
        let text = |column: usize| first.and_then(|row| row[column].as_str()).unwrap_or_default();
        let weight = first.and_then(|row| row[0].as_f64()).unwrap_or_default();
        let is_named = case.rule.unwrap_or_default() == text(1);
        let says_it = case.says.iter().all(|words| text(2).contains(words));
        let result = if is_named && says_it { "named" } else { "WRONG" };
        println!(
            "{:24} {:16} {weight:>6.3}  {result}",
            case.trouble,
            if first.is_none() { "nothing" } else { text(1) }
        );
        println!("    {}", text(2));
        if !(is_named && says_it) {
            failed.push(case.trouble);
        }
    }
    match failed.is_empty() && judged > 0 {
        true => Ok(()),
        false => Err(format!("not named: {}", failed.join(", ")).into()),
    }
}

/// Compiles and records a case.
fn record(case: &Case, folder: &Path) -> Outcome<PathBuf> {
    let binary = workloads::compile(case.source, case.flags, folder)?;
    let recording = folder.join("recording");
    let mut record = Command::new(command::hodo());
    record.args(["record", "-q", "-o"]).arg(&recording);
    if case.recorder == Recorder::Emulator {
        record.args(["--engine", "emulate", "--"]).arg(&binary).args(case.arguments);
        command::capture(&mut record)?;
        return Ok(recording);
    }
    record.args(["--engine", "ftrace", "-e", "sched", "-e", "irq", "-e", "syscalls", "-e", "block"]);
    record.args(["--buffer-size", "32M", "--", "chrt", "--fifo", "10"]);
    match case.recorder {
        Recorder::SlowDisk => {
            let disk = SlowDisk::new(folder)?;
            // The shell enters the group and becomes the program.
            record.args(["sh", "-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&disk.group);
            command::capture(record.arg(&binary).args(case.arguments).arg(&disk.device))?;
        }
        _ => {
            command::capture(record.arg(&binary).args(case.arguments))?;
        }
    }
    Ok(recording)
}

/// Returns the rows of `hodo explain`: weight, rule, sentence, command.
fn explain(case: &Case, recording: &Path) -> Outcome<Vec<Value>> {
    let mut explain = Command::new(command::hodo());
    explain.args(["explain", "-q", "--format", "json"]);
    if case.recorder != Recorder::Emulator {
        explain.args(["--comm", NAMES]);
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
