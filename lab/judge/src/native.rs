//! `cargo judge native [PROGRAM]…`: records programs natively, exports the recordings as Intel PT packets, and lets libipt
//! decode these: the instructions must be those of the recording.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_native::{Options, record};
use hodo_native_log::{
    Digest, Recording, Table, Thread,
    packets::{self, Converter},
};

use super::libipt;
use crate::{Outcome, command, setup, setup::Need};

/// A program of `crates/native/tests/programs`, or one of the system with its arguments.
const PROGRAMS: [(&str, &[&str]); 8] = [
    ("hello.c", &[]),
    ("faults.c", &[]),
    ("far.c", &[]),
    ("waiting.c", &[]),
    ("exceptions.cpp", &[]),
    ("/bin/ls", &["/usr"]),
    ("/bin/gzip", &["-c", "Cargo.lock"]),
    ("/usr/bin/perl", &["-e", "my %h; $h{$_ % 100} .= $_ for 1..3000; print scalar keys %h"]),
];

/// Judges the programs with these names, or all.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    let folder = command::target().join("judge");
    fs::create_dir_all(&folder)?;
    let harness = libipt::compile(&folder)?;
    let mut different = Vec::new();
    for (name, arguments) in PROGRAMS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let program = if name.starts_with('/') { PathBuf::from(name) } else { compiled(&folder, name)? };
        let mut native = Command::new(program);
        native.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).current_dir(command::root());
        let mut file = Vec::new();
        record(native, &mut file, Options { time_every: 10_000, ..Options::default() })?;
        let recording = Recording::read(&file)?;
        let (mut same, mut threads, mut left) = (0, 0, 0);
        for thread in recording.threads() {
            match judge(&harness, &folder, &recording, thread)? {
                Some(Ok(count)) => {
                    same += count;
                    threads += 1;
                }
                Some(Err(what)) => different.push(format!("{name}, thread {}: {what}", thread.thread)),
                None => left += 1,
            }
        }
        println!("{name:<16} {same:>12} instructions the same, {threads} threads, {left} whose code changes");
    }
    if different.is_empty() { Ok(()) } else { Err(different.join("\n").into()) }
}

fn compiled(folder: &Path, name: &str) -> Outcome<PathBuf> {
    let program = folder.join(format!("native-{}", name.replace('.', "-")));
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    let mut compile = Command::new(compiler);
    compile
        .args(["-O1", "-pthread", "-w"])
        .arg(command::root().join("crates/native/tests/programs").join(name));
    command::quietly(compile.arg("-o").arg(&program).arg("-lm"))?;
    Ok(program)
}

/// Compares a thread: how many instructions are the same, or what differs. `None` if libipt, which knows no time, cannot
/// decode it, as its code changes.
fn judge(
    harness: &Path,
    folder: &Path,
    recording: &Recording<'_>,
    thread: &Thread<'_>,
) -> Outcome<Option<Result<u64, String>>> {
    let table = recording.table(thread).ok_or("a thread without a table")?;
    let Some(code) = code(folder, table)? else { return Ok(None) };
    let mut items = recording.items(thread).ok_or("a thread without a table")?;
    items.finish();
    if items.contradictions() != 0 {
        return Ok(Some(Err(format!("{} contradictions", items.contradictions()))));
    }
    let trace = folder.join("native.pt");
    let mut bytes = Vec::new();
    let log = recording.log(thread).ok_or("no table")?;
    let mut converter = Converter::new(&log, packets::Options { return_compression: false });
    for index in 0..log.blocks.len() {
        let segment = converter.segment(index)?;
        bytes.extend_from_slice(&segment.bytes[..segment.length]);
    }
    fs::write(&trace, bytes)?;
    let limit = (items.instructions() + 1000).to_string();
    let mut command = Command::new(harness);
    command.args(["--limit", &limit]).args(code).arg(&trace).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("the harness has no output")?);
    let (mut digest, mut count) = (Digest::default(), 0);
    let mut trouble = None;
    for line in output.lines() {
        let line = line?;
        match u64::from_str_radix(&line, 16) {
            Ok(address) => {
                digest.push(address);
                count += 1;
            }
            Err(_) => trouble = trouble.or(Some(format!("libipt after {count} instructions: {line}"))),
        }
    }
    child.wait()?;
    if let Some(trouble) = trouble {
        return Ok(Some(Err(trouble)));
    }
    if (digest.value(), count) != (items.digest(), items.instructions()) {
        return Ok(Some(Err(format!("libipt: {count} instructions, recorded: {}", items.instructions()))));
    }
    Ok(Some(Ok(count)))
}

/// The harness's arguments for the code of a process; `None` if it changes, or is in no file.
fn code(folder: &Path, table: &Table) -> Outcome<Option<Vec<String>>> {
    let mut words = Vec::new();
    let mut maps: Vec<_> = table.maps.iter().collect();
    let mut ancestor = table.parent.as_ref();
    while let Some(parent) = ancestor {
        maps.extend(parent.table.maps.iter().filter(|map| map.tsc <= parent.tsc));
        ancestor = parent.table.parent.as_ref();
    }
    for map in maps {
        let name = String::from_utf8_lossy(&map.name).into_owned();
        let (path, offset) = match name.as_str() {
            "[vdso]" => (vdso(folder, map.length)?.display().to_string(), 0),
            path if path.starts_with('/') => (path.to_owned(), map.offset),
            _ => return Ok(None),
        };
        words.extend(["--raw".to_owned(), format!("{path}:{offset}:{}@{}", map.length, map.address)]);
    }
    let vdso = |code: &hodo_native_log::Code| {
        table.maps.iter().any(|map| {
            map.name == b"[vdso]" && (map.address..map.address + map.length).contains(&code.address)
        })
    };
    let fixed = table.unmaps.is_empty() && table.code.iter().all(vdso);
    Ok(fixed.then_some(words))
}

/// The kernel's code for programs, which is the same in all of them.
fn vdso(folder: &Path, length: u64) -> Outcome<PathBuf> {
    use std::os::unix::fs::FileExt;
    let path = folder.join("native-vdso");
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).ok_or("no vDSO")?;
    let address = u64::from_str_radix(line.split('-').next().unwrap_or(""), 16)?;
    let mut bytes = vec![0; length as usize];
    fs::File::open("/proc/self/mem")?.read_exact_at(&mut bytes, address)?;
    fs::write(&path, bytes)?;
    Ok(path)
}
