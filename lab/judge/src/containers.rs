//! `cargo judge containers [FILE]…`: compares our reading of perf.data in all its forms with perf.
//!
//! ```text
//! FILEs, `perf record` of software events in each form ─┬─► perf script --show-…-events ─┐ the same mappings,
//!                                                       └─► hodo script --sideband ──────┴─► names, switches
//!
//! an emulated recording ──repack──► each form ─┬─► hodo script --insns ─┐ the same instructions as before;
//!                                              └─► perf script ─────────┴─► perf's are counted
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::programs::PROGRAMS;
use crate::{
    Outcome,
    command::{self, each_line},
    setup::{self, Need},
};

/// Options of `perf record` by file name; `-o -` writes to a pipe.
const RECORDED: &[(&str, &str)] = &[
    ("plain.data", "-o OUT"),
    ("compressed.data", "-z -o OUT"),
    ("folder.data", "--threads -o OUT"),
    ("compressed-folder.data", "--threads -z -o OUT"),
    ("cpus.data", "-a --switch-events -o OUT"),
    ("pipe.data", "-o -"),
    ("compressed-pipe.data", "-z -o -"),
];

/// The forms that `repack` writes.
const FORMS: [&str; 6] = ["file", "pipe", "compressed", "folder", "cpus", "samples"];

/// The program whose emulated recording is repacked.
const PROGRAM: &str = "eight_threads";

pub(super) fn run(files: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/containers");
    fs::create_dir_all(&folder)?;
    let mut wrong = 0;
    for path in files.iter().map(PathBuf::from) {
        wrong += usize::from(!sideband(&path)?);
    }
    for (name, options) in RECORDED {
        let path = folder.join(name);
        record(&path, options)?;
        wrong += usize::from(!sideband(&path)?);
    }
    wrong += repacked(&folder)?;
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} differ").into()) }
}

/// Records software events of a program that starts others.
fn record(path: &Path, options: &str) -> Outcome {
    remove(path)?;
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "--sample-cpu"]);
    let out = path.display().to_string();
    perf.args(options.split(' ').map(|option| if option == "OUT" { &out } else { option }));
    perf.args(["--", "sh", "-c", "ls -lR /usr/share/doc | sort | tail -1; true | true"]);
    let piped = options.ends_with(" -");
    perf.stderr(Stdio::null()).stdout(if piped { File::create(path)?.into() } else { Stdio::null() });
    let status = perf.status()?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", command::line(&perf)).into()) }
}

/// Removes the file or folder of an earlier run.
fn remove(path: &Path) -> Outcome {
    if path.is_dir() {
        fs::remove_dir_all(path)?;
    } else if path.exists() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Compares our list of sideband with perf's; prints the first difference.
fn sideband(path: &Path) -> Outcome<bool> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-itrace", "--ns", "-F", "comm,pid,tid,cpu,time"]);
    perf.args(["--show-mmap-events", "--show-task-events", "--show-switch-events", "--show-lost-events"]);
    let mut theirs = Vec::new();
    input(&mut perf, path)?;
    each_line(perf, |line| theirs.extend(canonical(&String::from_utf8_lossy(line))))?;
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--sideband"]).arg(path);
    let mut ours = Vec::new();
    each_line(hodo, |line| {
        let line = String::from_utf8_lossy(line).trim_end().to_owned();
        let only_ours = ["trace start", "throttle", "unthrottle", "symbol", "bpf program"];
        if !only_ours.iter().any(|what| line.splitn(4, ' ').nth(3).is_some_and(|rest| rest.starts_with(what)))
        {
            ours.push(line);
        }
    })?;
    let same = ours == theirs;
    println!("{}: {} sideband records, perf {}: {}", path.display(), ours.len(), theirs.len(), verdict(same));
    if let Some((ours, theirs)) = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs) {
        println!("  ours   {ours}\n  perf's {theirs}");
    }
    Ok(same)
}

fn verdict(same: bool) -> &'static str {
    if same { "the same" } else { "DIFFERENT" }
}

/// Sets perf's input file.
fn input(perf: &mut Command, path: &Path) -> Outcome {
    if is_pipe(path)? {
        perf.args(["-i", "-"]).stdin(pipe(path)?)
    } else {
        perf.arg("-i").arg(path)
    };
    Ok(())
}

/// Whether a file has the short header of a pipe.
fn is_pipe(path: &Path) -> Outcome<bool> {
    // The magic number is followed by the size of the header: 16 bytes in a pipe.
    Ok(path.is_file() && fs::read(path)?.get(8..16) == Some(&16u64.to_le_bytes()))
}

/// The file through a real pipe: perf reads a seekable standard input wrongly.
fn pipe(path: &Path) -> Outcome<Stdio> {
    let cat = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn()?;
    Ok(cat.stdout.ok_or("cat has no output")?.into())
}

/// Converts a line of `perf script` to the format of `hodo script --sideband`: time, CPU, process and thread, what
/// happened. perf shows time 0 for records without a time. `None` for other lines, such as mappings of data.
fn canonical(line: &str) -> Option<String> {
    let (head, record) = line.trim_end().split_once(": PERF_RECORD_")?;
    let mut head = head.rsplit(' ').filter(|word| !word.is_empty());
    let (time, cpu, thread) = (head.next()?, head.next()?, head.next()?);
    let cpu = cpu.trim_matches(['[', ']']).trim_start_matches('0');
    let time_and_cpu = if time == "0.000000000" {
        "- -".to_owned()
    } else {
        format!("{time} {}", if cpu.is_empty() { "0" } else { cpu })
    };
    let (kind, rest) = record.split_once([' ', '(', ':'])?;
    let rest = rest.trim();
    let Happening { thread, what } = match kind {
        "MMAP" | "MMAP2" => mapping(rest)?,
        "COMM" => comm(record)?,
        "FORK" | "EXIT" => task(kind, record)?,
        "SWITCH" | "SWITCH_CPU_WIDE" => Happening::of(thread, switch(rest)),
        "LOST" => Happening::of(thread, format!("lost {}", rest.rsplit(' ').next()?)),
        _ => return None,
    };
    Some(format!("{time_and_cpu} {thread} {what}"))
}

/// What happened in a thread, `PID/TID`.
struct Happening {
    thread: String,
    what: String,
}

impl Happening {
    fn of(thread: &str, what: String) -> Happening {
        Happening { thread: thread.to_owned(), what }
    }
}

/// Parses a mapping: thread, address, size, offset in the file, access and path, as in
/// `7/7: [0x1000(0x2000) @ 0x3000 08:01 5 0]: r-xp /bin/ls`.
fn mapping(rest: &str) -> Option<Happening> {
    let (thread, rest) = rest.split_once(": [")?;
    let (range, rest) = rest.split_once("]: ")?;
    let (address, range) = range.split_once('(')?;
    let (length, source) = range.split_once(") @ ")?;
    let offset = source.split(' ').next()?;
    let offset = if offset == "0" { "0x0" } else { offset };
    let (protection, name) = rest.split_once(' ')?;
    let executable = protection.contains('x');
    executable.then(|| Happening::of(thread, format!("map {address}+{length} from {offset} of {name}")))
}

/// Parses the name of a thread, as in `COMM exec: ls:7/7`.
fn comm(record: &str) -> Option<Happening> {
    let (kind, rest) = record.split_once(": ")?;
    let (name, thread) = rest.rsplit_once(':')?;
    let what = if kind == "COMM exec" { "exec" } else { "name" };
    Some(Happening::of(thread, format!("{what} {name}")))
}

/// Parses a thread and its parent, as in `FORK(8:9):(7:7)`.
fn task(kind: &str, record: &str) -> Option<Happening> {
    let mut threads = record.split(['(', ')']).filter(|part| part.contains(|c: char| c.is_ascii_digit()));
    let thread = threads.next()?.replace(':', "/");
    let parent = threads.next()?.replace(':', "/");
    let what = if kind == "FORK" { format!("fork of {parent}") } else { "exit".to_owned() };
    Some(Happening { thread, what })
}

/// Parses a switch, as in `OUT preempt  next pid/tid:   7/7`.
fn switch(rest: &str) -> String {
    let words: Vec<&str> = rest.split(' ').filter(|word| !word.is_empty()).collect();
    if words.first() == Some(&"IN") {
        return "switch in".to_owned();
    }
    let preempted = if words.get(1) == Some(&"preempt") { ", preempted" } else { "" };
    let next = rest.split_once("next pid/tid:").map(|(_, next)| format!(", next {}", next.replace(' ', "")));
    format!("switch out{preempted}{}", next.unwrap_or_default())
}

/// The number of repacked forms of an emulated recording with different instructions than the recording itself.
fn repacked(folder: &Path) -> Outcome<usize> {
    let program = PROGRAMS.iter().find(|program| program.name == PROGRAM).ok_or("no such program")?;
    let ready = (program.prepare)(folder)?;
    let original = folder.join("original.data");
    let mut hodo = Command::new(command::hodo());
    hodo.args(["record", "--engine", "emulate", "-q", "-e", "intel_pt/psb_period=0/u", "-o"]).arg(&original);
    command::quietly(hodo.arg("--").args(&ready.command).current_dir(folder))?;
    let expected = ours(&original)?;
    let mut wrong = 0;
    for form in FORMS {
        let path = folder.join(format!("repacked-{form}.data"));
        remove(&path)?;
        let mut repack = command::cargo(&["run", "-q", "-p", "hodo-repack", "--", form]);
        command::quietly(repack.arg(&original).arg(&path))?;
        let (mut got, mut wanted) = (ours(&path)?, expected.clone());
        if form == "cpus" {
            // Two CPUs may show a thread at the same time: its end on one, its beginning on the other.
            got.values_mut().chain(wanted.values_mut()).for_each(|thread| thread.sort());
        }
        let same = got == wanted;
        let count: usize = expected.values().map(Vec::len).sum();
        let theirs = theirs(&path)?;
        println!("{form}: {count} instructions {}; perf gives {theirs}", verdict(same));
        wrong += usize::from(!same);
    }
    Ok(wrong)
}

/// The instructions of each thread in order of time.
fn ours(path: &Path) -> Outcome<BTreeMap<String, Vec<(u64, String)>>> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--insns", "--fields", "time,tid,ip"]).arg(path);
    let mut threads: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    each_line(hodo, |line| {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace().filter(|_| !line.starts_with('#'));
        if let (Some(time), Some(tid), Some(ip)) = (words.next(), words.next(), words.next()) {
            let time = time.replace('.', "").parse().unwrap_or(0);
            threads.entry(tid.to_owned()).or_default().push((time, ip.to_owned()));
        }
    })?;
    threads.values_mut().for_each(|thread| thread.sort_by_key(|&(time, _)| time));
    Ok(threads)
}

/// The number of instructions that perf decodes.
fn theirs(path: &Path) -> Outcome<u64> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=i0ns", "-F", "event,ip"]).stderr(Stdio::null());
    input(&mut perf, path)?;
    let is_instruction = |line: &[u8]| String::from_utf8_lossy(line).contains("instructions:");
    let mut count = 0;
    each_line(perf, |line| count += u64::from(is_instruction(line)))?;
    Ok(count)
}
