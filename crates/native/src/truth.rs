//! Compares recordings with programs that are run instruction by instruction.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_native_log::{Digest, Recording};
use libc::c_int;

use crate::{
    Options,
    process::{self, Event, Tracee},
    record,
};

/// The most instructions of a program that are stepped.
const MOST: usize = 90_000;

/// Digests of the addresses that a program ran: entry n is of the first n.
// Waiting for a traced process also reaps it.
#[allow(clippy::zombie_processes)]
fn step(mut command: Command) -> Vec<u64> {
    process::trace_from_start(&mut command);
    let child = command.spawn().expect("the program starts");
    let tracee = Tracee(child.id() as i32);
    assert_eq!(tracee.wait(), Event::Signal(libc::SIGTRAP));
    let mut digest = Digest::default();
    let mut digests = vec![digest.value()];
    let (mut signal, mut before): (c_int, u64) = (0, 0);
    while digests.len() <= MOST {
        let rip = tracee.registers().expect("a stopped program").rip;
        tracee.step(signal).expect("a step");
        let delivered = std::mem::take(&mut signal) != 0;
        match tracee.wait() {
            // The step led to the first instruction of the handler.
            Event::Signal(libc::SIGTRAP) if delivered => continue,
            Event::Signal(libc::SIGTRAP) if tracee.is_step() => {}
            // An `int3`, which ran.
            Event::Signal(libc::SIGTRAP) => signal = libc::SIGTRAP,
            Event::Signal(other) => {
                // The instruction did not run: it raised the signal, or the signal came first.
                signal = other;
                continue;
            }
            _ => {
                digest.push(rip);
                digests.push(digest.value());
                return digests;
            }
        }
        let repeats = rip == before && is_repeated(tracee, rip);
        if !repeats {
            digest.push(rip);
            digests.push(digest.value());
        }
        let after = tracee.registers().map_or(0, |registers| registers.rip);
        before = if after == rip { rip } else { 0 };
    }
    process::send(tracee.0, libc::SIGKILL);
    tracee.wait();
    digests
}

/// Whether the instruction is a repeated one, which single steps run iteration by iteration.
fn is_repeated(tracee: Tracee, rip: u64) -> bool {
    let word = tracee.peek(rip).expect("code").to_le_bytes();
    word.iter()
        .take_while(|byte| matches!(byte, 0xf2 | 0xf3 | 0x66 | 0x67 | 0x40..=0x4f))
        .any(|byte| matches!(byte, 0xf2 | 0xf3))
}

/// A command without sources of chance: addresses, hashes, and a system call that is answered differently.
fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").env("PYTHONHASHSEED", "0").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    process::fix_addresses(&mut command);
    command
}

/// Records a program with several cuts of its superblocks, and compares each with the program run in single steps.
#[track_caller]
fn check(program: &Path, arguments: &[&str]) {
    let truth = step(command(program, arguments));
    for branches in [1, 2, 8] {
        let mut file = Vec::new();
        let options = Options { branches, traces: branches != 1, ..Options::default() };
        record(command(program, arguments), &mut file, options).expect("a recording");
        let recording = Recording::read(&file).expect("a readable recording");
        assert_eq!(recording.damage, None);
        let thread = recording.threads().first().expect("a thread");
        let mut items = recording.items(thread).expect("a table");
        let mut last = 0;
        while let Some(item) = items.next() {
            let count = items.instructions() as usize;
            if count >= truth.len() {
                break;
            }
            assert_eq!(items.digest(), truth[count], "instructions {last} to {count}: {item:x?}");
            last = count;
        }
        assert_eq!(items.contradictions(), 0);
        assert!(last + 200 > truth.len().min(MOST), "{last} of {} instructions", truth.len());
        if truth.len() <= MOST {
            assert_eq!(last + 1, truth.len(), "branches {branches}");
        }
    }
}

/// Compiles a program of `tests/programs`.
fn compile(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.join(name.replace('.', "-"));
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    let mut command = Command::new(compiler);
    command.args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&program);
    assert!(command.args(options).status().expect("a compiler").success());
    program
}

fn folder() -> tempfile::TempDir {
    tempfile::TempDir::new().expect("a folder")
}

#[test]
fn a_static_program() {
    let folder = folder();
    check(&compile(folder.path(), "hello.c", &["-static"]), &[]);
}

#[test]
fn a_dynamic_program() {
    let folder = folder();
    check(&compile(folder.path(), "hello.c", &[]), &["two", "words"]);
}

#[test]
fn programs_of_the_system() {
    check(Path::new("/bin/ls"), &["/usr"]);
    let folder = folder();
    let file = folder.path().join("input");
    fs::write(&file, include_bytes!("truth.rs")).expect("a file");
    check(Path::new("/bin/gzip"), &["-c", file.to_str().expect("a path")]);
}

#[test]
fn faults_and_their_handlers() {
    let folder = folder();
    check(&compile(folder.path(), "faults.c", &[]), &[]);
}

#[test]
fn far_returns() {
    let folder = folder();
    check(&compile(folder.path(), "far.c", &[]), &[]);
}

#[test]
fn exceptions_through_many_frames() {
    let folder = folder();
    check(&compile(folder.path(), "exceptions.cpp", &[]), &[]);
}

#[test]
fn code_that_changes() {
    let folder = folder();
    check(&compile(folder.path(), "changes.c", &[]), &[]);
}

/// Superblocks are cut in other ways, and hot paths are joined: the instructions are the same.
#[test]
fn any_cutting_one_digest() {
    let folder = folder();
    let file = folder.path().join("input");
    fs::write(&file, include_bytes!("truth.rs").repeat(60)).expect("a file");
    let words = "my %h; $h{$_ % 100} .= $_ for 1..100000; my $n = 0; $n += length for values %h; print $n";
    let file = file.to_str().expect("a path");
    for (program, arguments) in [("/bin/gzip", ["-c", file]), ("/usr/bin/perl", ["-e", words])] {
        // What ran, as digest and number of instructions, and the number of traces.
        let ran = |branches, traces| {
            let mut command = command(Path::new(program), &arguments);
            command.env("PERL_HASH_SEED", "0");
            let mut file = Vec::new();
            record(command, &mut file, Options { branches, traces, ..Options::default() })
                .expect("a recording");
            let recording = Recording::read(&file).expect("a readable recording");
            let thread = recording.threads().first().expect("a thread");
            let mut items = recording.items(thread).expect("a table");
            items.finish();
            assert_eq!(items.contradictions(), 0);
            let table = recording.table(thread).expect("a table");
            ((items.digest(), items.instructions()), table.traces())
        };
        let (branches, joins_hot_paths) = (2, false);
        let (expected, traces) = ran(branches, joins_hot_paths);
        assert_eq!(traces, 0);
        for branches in [1, 2, 8] {
            let joins_hot_paths = true;
            let (found, traces) = ran(branches, joins_hot_paths);
            assert_eq!(found, expected, "{program}, {branches} branches");
            assert!(traces > 3, "{program}: {traces} traces");
        }
    }
}
