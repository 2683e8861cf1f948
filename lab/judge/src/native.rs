//! `cargo judge native [PROGRAM]…`: records programs natively, and compares the recordings with other decoders and with the
//! emulated processor.
//!
//! ```text
//! program ──hodo record──┬─► log ──packets──► libipt: the same addresses in order, thread by thread?
//!                        ├─► hodo script --insns ──────────────────────┐
//!                        ├─► hodo export --to intel-pt ──► perf script ─┴─► the same?
//!                        └─► hodo report functions ──┐
//! program ──emulated─────────► hodo report functions ─┴─► the same calls and instructions? (`native_account`)
//!
//! short programs ──single steps by ptrace──► the same digest, however superblocks are cut? (tests of `hodo-native`)
//! ```

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use hodo_native_log::{
    Recording, Table, Thread,
    packets::{self, Converter},
};

use super::{
    Judges, difference, libipt,
    native_account::{self, Account},
    perf,
    programs::{PROGRAMS, Ready},
    streams::{Streams, read_hodo},
};
use crate::{Outcome, command, setup, setup::Need, workloads};

/// Programs of `crates/native/tests/programs`, which are hard to record. `signals.c` gets a signal each 100 µs for one second: perf
/// lists every instruction, and ten seconds of them took it an hour.
const HARD: [(&str, &[&str]); 6] = [
    ("hello.c", &[]),
    ("faults.c", &[]),
    ("far.c", &[]),
    ("waiting.c", &[]),
    ("exceptions.cpp", &[]),
    ("signals.c", &["1"]),
];

/// perf 6.1 takes its far returns for returns to calls, which they are not (libipt and the SDM agree), and loses its call stack.
const FAR_RETURNS: &str = "far.c";

/// Programs that run billions of instructions, on eight million bytes of text.
const LONG: [(&str, &[&str]); 2] = [("gzip-9", &["gzip", "-9", "-c"]), ("bzip2-9", &["bzip2", "-9", "-c"])];

/// Whether a program runs the same instructions each time, so that the emulated processor's account is a truth. For others,
/// the numbers of processes, the names of temporary files and times decide what they run; the file of `static_pie` contains the
/// C library.
fn is_deterministic(name: &str) -> bool {
    PROGRAMS.iter().any(|program| program.name == name)
        && !["gcc", "sh", "signals", "static_pie"].contains(&name)
}

/// Native recordings of a program whose functions are compared with the emulated processor's: what varies among them is not.
const RECORDINGS: usize = 4;
/// The most of them, as long as a function differs.
const MOST_RECORDINGS: usize = 40;

/// A program's results.
struct Verdict {
    instructions: u64,
    threads: usize,
    /// Threads that libipt can't decode, as their code changes.
    changing: usize,
    account: Option<Account>,
    complaints: Vec<String>,
}

/// The instructions of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instructions {
    /// The digest of their addresses.
    digest: u64,
    count: u64,
}

/// Judges the programs with these names, or all.
pub(super) fn run(names: &[String]) -> Outcome {
    setup::ensure(Need::Judge)?;
    command::build_hodo()?;
    let folder = command::target().join("judge/native");
    fs::create_dir_all(&folder)?;
    let judges = Judges { perf: perf::compile(&folder)?, libipt: libipt::compile(&folder)? };
    let (mut total, mut different) = (0, Vec::new());
    println!(
        "{:16} {:>14} {:>7} {:>8} {:>27}  result",
        "program", "instructions", "threads", "changing", "equal to the emulator's"
    );
    let all = HARD.iter().map(|(name, _)| name).chain(PROGRAMS.iter().map(|program| &program.name));
    for name in all.chain(LONG.iter().map(|(name, _)| name)) {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        let verdict = judge(name, &prepare(name, &folder)?, &folder, &judges)?;
        let account = verdict.account.map_or("–".to_owned(), |account| account.to_string());
        let result = if verdict.complaints.is_empty() { "equal" } else { "DIFFERENT" };
        println!(
            "{name:16} {:>14} {:>7} {:>8} {account:>27}  {result}",
            verdict.instructions, verdict.threads, verdict.changing
        );
        verdict.complaints.iter().for_each(|complaint| println!("  {complaint}"));
        total += verdict.instructions;
        if !verdict.complaints.is_empty() {
            different.push(*name);
        }
        fs::remove_dir_all(folder.with_extension("recordings"))?;
        fs::remove_dir_all(folder)?;
    }
    if names.is_empty() {
        command::run(&mut command::cargo(&["test", "-p", "hodo-native", "--lib", "truth"]))?;
    }
    println!("judge native: {total} instructions");
    if different.is_empty() { Ok(()) } else { Err(format!("not equal: {}", different.join(", ")).into()) }
}

/// Compiles a program, or makes its input.
fn prepare(name: &str, folder: &Path) -> Outcome<Ready> {
    if let Some(program) = PROGRAMS.iter().find(|program| program.name == name) {
        return (program.prepare)(folder);
    }
    if let Some((_, command)) = LONG.iter().find(|(long, _)| *long == name) {
        let input = workloads::generate("text", 8_000_000, folder)?;
        let command = command.iter().map(|&word| word.to_owned());
        return Ok(Ready { command: command.chain([input.display().to_string()]).collect() });
    }
    let arguments = HARD.iter().find(|(hard, _)| *hard == name).map_or(&[][..], |(_, arguments)| *arguments);
    let arguments = arguments.iter().map(|&word| word.to_owned());
    Ok(Ready {
        command: [compiled(folder, name)?.display().to_string()].into_iter().chain(arguments).collect(),
    })
}

/// Records a program, and compares.
fn judge(name: &str, ready: &Ready, folder: &Path, judges: &Judges) -> Outcome<Verdict> {
    let recording = record("native", "first", ready, folder)?;
    let packets = recording.with_file_name("packets.data");
    let mut export = Command::new(command::hodo());
    export.args(["export", "-q", "--to", "intel-pt", "-o"]).arg(&packets).arg(&recording);
    command::quietly(&mut export)?;
    let (ours, theirs, logs) = thread::scope(|scope| {
        let perf = scope.spawn(|| perf::read(&packets, &judges.perf).map_err(|error| error.to_string()));
        let ours = read_hodo(&recording, |_| Ok(()))?;
        let logs = logs(&recording, folder, &judges.libipt)?;
        let perf = perf.join().map_err(|_| "reading perf's output failed")??;
        Ok::<_, Box<dyn std::error::Error>>((ours, perf, logs))
    })?;
    let mut verdict = Verdict {
        instructions: logs.instructions.values().sum(),
        threads: logs.instructions.len(),
        changing: logs.changing,
        account: None,
        complaints: logs.complaints,
    };
    for (tid, &count) in &logs.instructions {
        let found = ours.threads.get(tid).map_or(0, |thread| thread.instructions);
        if found != count {
            verdict
                .complaints
                .push(format!("thread {tid}: {found} instructions by hodo, {count} in its logs"));
        }
    }
    if name != FAR_RETURNS {
        compare(&mut verdict.complaints, &packets, &ours, &theirs)?;
    }
    if is_deterministic(name) {
        let emulated = record("emulate", "emulated", ready, folder)?;
        let mut native = vec![recording];
        for number in 2..=RECORDINGS {
            native.push(record("native", &number.to_string(), ready, folder)?);
        }
        let mut account = native_account::compare(&native, &emulated)?;
        // Few runs of an interpreter show what depends on addresses, such as its caches of methods.
        while account.differences().next().is_some() && native.len() < MOST_RECORDINGS {
            native.push(record("native", &(native.len() + 1).to_string(), ready, folder)?);
            account = native_account::compare(&native, &emulated)?;
        }
        verdict.complaints.extend(account.differences());
        verdict.account = Some(account);
    }
    Ok(verdict)
}

fn record(engine: &str, name: &str, ready: &Ready, folder: &Path) -> Outcome<PathBuf> {
    // Python reads the names in the folder where it runs.
    let recordings = folder.with_extension("recordings");
    fs::create_dir_all(&recordings)?;
    let recording = recordings.join(name).with_extension("data");
    // What perl executes depends on the order of its variables, as it hashes the name of one of them twice. This is the order in
    // which QEMU passes them on.
    let mut hodo = Command::new("env");
    hodo.args(["-i", "PYTHONHASHSEED=0", "PERL_HASH_SEED=0"]);
    for (name, value) in [("PATH", std::env::var_os("PATH").unwrap_or_default()), ("HOME", folder.into())] {
        let mut variable = OsString::from(format!("{name}="));
        variable.push(value);
        hodo.arg(variable);
    }
    hodo.arg(command::hodo());
    hodo.args(["record", "-q", "--engine", engine, "-o"]).arg(&recording).arg("--").args(&ready.command);
    command::quietly(hodo.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()))?;
    Ok(recording)
}

/// Adds the threads that differ.
fn compare(complaints: &mut Vec<String>, packets: &Path, ours: &Streams, theirs: &Streams) -> Outcome {
    for (who, streams) in [("hodo", ours), ("perf", theirs)] {
        if let Some(first) = streams.notices.first() {
            complaints.push(format!("{who} reports {} interruptions, first: {first}", streams.notice_count));
        }
    }
    let tids: std::collections::BTreeSet<u32> =
        ours.threads.keys().chain(theirs.threads.keys()).copied().collect();
    for tid in tids {
        let (our, their) = (ours.threads.get(&tid), theirs.threads.get(&tid));
        if !our.zip(their).is_some_and(|(our, their)| our.agrees(their)) {
            complaints.push(difference::explain(packets, tid, our, their)?);
        }
    }
    Ok(())
}

/// The totals of the logs of a recording, and those that libipt decodes.
#[derive(Default)]
struct Logs {
    /// By thread.
    instructions: BTreeMap<u32, u64>,
    changing: usize,
    complaints: Vec<String>,
}

fn logs(path: &Path, folder: &Path, harness: &Path) -> Outcome<Logs> {
    let file = fs::read(path)?;
    let recording = Recording::read(&file)?;
    let mut logs = Logs::default();
    if let Some(damage) = &recording.damage {
        logs.complaints.push(format!("the file is damaged: {damage}"));
    }
    for thread in recording.threads() {
        let mut items = recording.items(thread).ok_or("a thread without a table")?;
        items.finish();
        *logs.instructions.entry(u32::try_from(thread.thread)?).or_default() += items.instructions();
        if items.contradictions() != 0 || !thread.losses.is_empty() {
            let (contradictions, losses) = (items.contradictions(), &thread.losses);
            logs.complaints.push(format!(
                "thread {}: {contradictions} contradictions, losses {losses:?}",
                thread.thread
            ));
        }
        let expected = Instructions { digest: items.digest(), count: items.instructions() };
        match decode(harness, folder, &recording, thread, expected.count) {
            Err(error) => logs.complaints.push(error.to_string()),
            Ok(None) => logs.changing += 1,
            Ok(Some(decoded)) if decoded == expected => {}
            Ok(Some(decoded)) => logs
                .complaints
                .push(format!("thread {}: {decoded:x?} by libipt, {expected:x?} in its log", thread.thread)),
        }
    }
    Ok(logs)
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

/// A thread's instructions as libipt decodes them; `expected` is their number. `None` if its code changes: libipt takes one
/// content of each address.
fn decode(
    harness: &Path,
    folder: &Path,
    recording: &Recording<'_>,
    thread: &Thread<'_>,
    expected: u64,
) -> Outcome<Option<Instructions>> {
    let table = recording.table(thread).ok_or("a thread without a table")?;
    let Some(code) = code(folder, table)? else { return Ok(None) };
    let trace = folder.join("native.pt");
    let mut bytes = Vec::new();
    let log = recording.log(thread).ok_or("no table")?;
    let mut converter = Converter::new(&log, packets::Options { return_compression: false });
    for index in 0..log.blocks.len() {
        let segment = converter.segment(index)?;
        bytes.extend_from_slice(&segment.bytes[..segment.length]);
    }
    fs::write(&trace, bytes)?;
    let mut command = Command::new(harness);
    command.args(["--digest", "--limit", &(expected + 1000).to_string()]).args(code).arg(&trace);
    let output = String::from_utf8(command.output()?.stdout)?;
    let last = output.lines().last().and_then(|line| line.strip_prefix("digest "));
    let (count, digest) = last.and_then(|last| last.split_once(' ')).ok_or("libipt gives no digest")?;
    match output.lines().find(|line| line.starts_with('#')) {
        Some(error) => Err(format!("thread {}: libipt: {error}", thread.thread).into()),
        None => Ok(Some(Instructions { digest: u64::from_str_radix(digest, 16)?, count: count.parse()? })),
    }
}

/// The harness's arguments for the code of a process; `None` if it changes, or is in no file.
fn code(folder: &Path, table: &Table) -> Outcome<Option<Vec<String>>> {
    let mut arguments = Vec::new();
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
        arguments.extend(["--raw".to_owned(), format!("{path}:{offset}:{}@{}", map.length, map.address)]);
    }
    let is_in_vdso = |code: &hodo_native_log::Code| {
        table.maps.iter().any(|map| {
            map.name == b"[vdso]" && (map.address..map.address + map.length).contains(&code.address)
        })
    };
    let fixed = table.unmaps.is_empty() && table.code.iter().all(is_in_vdso);
    Ok(fixed.then_some(arguments))
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
