//! Threads that are recorded only if they are selected, or only for a time; and threads that come and go.

#![allow(missing_docs)]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use hodo_native::{Options, SelectThread, attach, record};
use hodo_native_log::{Item, Recording};
use hodo_native_runtime::wire::note;
use tempfile::TempDir;

fn compile(folder: &TempDir, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.path().join(name.replace('.', "-"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-pthread", "-w"]).arg(source).arg("-o").arg(&program).arg("-lm");
    assert!(gcc.status().expect("gcc").success());
    program
}

fn named(name: &str) -> SelectThread {
    SelectThread::Name(name.to_owned())
}

/// Records a program, which must do what it does alone. Returns the recording.
#[track_caller]
fn recorded(folder: &TempDir, program: &Path, arguments: &[&str], options: Options) -> Vec<u8> {
    let alone = Command::new(program).args(arguments).output().expect("the program runs");
    let output = folder.path().join("output");
    let mut command = Command::new(program);
    command.args(arguments).stdout(std::fs::File::create(&output).expect("a file"));
    let mut file = Vec::new();
    let outcome = record(command, &mut file, options).expect("a recording");
    let output = std::fs::read(output).expect("the output");
    assert_eq!((output, outcome.status), (alone.stdout, alone.status), "{}", program.display());
    assert_eq!(outcome.warnings, Vec::<String>::new());
    file
}

/// What a thread of a recording did.
struct ThreadSummary {
    thread: u64,
    instructions: u64,
    /// How often its recording paused.
    unselected: usize,
    /// Whether it was not recorded at its begin.
    begins_late: bool,
}

/// The threads of a recording, all of which are consistent.
#[track_caller]
fn threads(file: &[u8]) -> Vec<ThreadSummary> {
    let recording = Recording::read(file).expect("a readable recording");
    assert_eq!(recording.damage, None);
    let summary = |thread| {
        let mut items = recording.items(thread).expect("a table");
        let (mut unselected, mut first) = (0, None);
        for item in items.by_ref() {
            let is_loss = matches!(item, Item::Loss(note::UNSELECTED));
            unselected += usize::from(is_loss);
            first.get_or_insert(is_loss);
        }
        assert_eq!(items.contradictions(), 0, "thread {}", thread.thread);
        let (thread, begins_late) = (thread.thread, first == Some(true));
        ThreadSummary { thread, instructions: items.instructions(), unselected, begins_late }
    };
    recording.threads().iter().map(summary).collect()
}

/// The names of a thread, one after another.
fn names(file: &[u8], thread: u64) -> Vec<String> {
    let recording = Recording::read(file).expect("a readable recording");
    let all = recording.tables().into_iter().flat_map(|(_, table)| table.names.clone());
    let own = all.filter(|name| name.thread == thread);
    own.map(|name| String::from_utf8_lossy(&name.name).into_owned()).collect()
}

#[test]
fn threads_with_a_name() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "renames.c");
    for (patterns, expected) in [
        (&["worker-*"][..], &["worker-1", "worker-2"][..]),
        (&["*2", "no-such-*"], &["worker-2"]),
        (&["h*l*r"], &["helper"]),
        (&["orker*", "worker", "*worker-1-"], &[]),
    ] {
        let select = patterns.iter().map(|name| named(name)).collect();
        let file = recorded(&folder, &program, &[], Options { threads: select, ..Options::default() });
        let threads = threads(&file);
        let found: BTreeSet<String> =
            threads.iter().map(|summary| names(&file, summary.thread).pop().expect("a name")).collect();
        assert_eq!(found, expected.iter().map(|&name| name.to_owned()).collect(), "{patterns:?}");
        for summary in &threads {
            assert!(
                summary.begins_late && summary.unselected == 1,
                "{patterns:?}: {} times",
                summary.unselected
            );
            assert!(
                (500_000..5_000_000).contains(&summary.instructions),
                "{} instructions",
                summary.instructions
            );
        }
    }
    let all = recorded(&folder, &program, &[], Options { threads: vec![named("*")], ..Options::default() });
    let all = threads(&all);
    assert!(all.len() == 4 && all.iter().all(|summary| summary.unselected == 0));
}

/// A thread is recorded while it has a name. It takes another one every 300 µs, in a signal's handler.
#[test]
fn a_thread_that_is_selected_again_and_again() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "renames.c");
    for time_every in [0, 100, 4096] {
        let options = Options { threads: vec![named("worker-*")], time_every, ..Options::default() };
        let file = recorded(&folder, &program, &["handler"], options);
        let all = recorded(&folder, &program, &["handler"], Options::default());
        let (some, all) = (&threads(&file)[0], &threads(&all)[0]);
        assert!(some.unselected > 20 && some.begins_late, "{} times", some.unselected);
        let share = some.instructions * 100 / all.instructions;
        assert!((5..95).contains(&share), "{} of {}", some.instructions, all.instructions);
        assert_eq!(all.unselected, 0);
    }
}

#[test]
fn a_thread_with_a_number() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "workers.c");
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("its threads");
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let number = numbers.max().expect("a thread");
    let (duration, threads_wanted) = (Some(Duration::from_millis(200)), vec![SelectThread::Number(number)]);
    let options = Options { duration, threads: threads_wanted, ..Options::default() };
    let mut file = Vec::new();
    let outcome = attach(child.id(), &mut file, options).expect("a recording");
    child.stdin.take().expect("its input").write_all(b"\n").expect("it reads");
    child.wait().expect("its end");
    assert_eq!((outcome.warnings, outcome.threads), (Vec::new(), 1));
    let threads = threads(&file);
    assert_eq!(threads.iter().map(|summary| summary.thread).collect::<Vec<_>>(), [u64::from(number)]);
    assert!(!threads[0].begins_late && threads[0].instructions > 0);
}

#[test]
fn the_begin_is_left_out() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "renames.c");
    let all = threads(&recorded(&folder, &program, &["handler"], Options::default()))[0].instructions;
    let options = Options { after: Some(Duration::from_millis(60)), ..Options::default() };
    let summary = &threads(&recorded(&folder, &program, &["handler"], options))[0];
    assert!(summary.begins_late && summary.unselected == 1, "{} times", summary.unselected);
    assert!(
        summary.instructions > 1000 && summary.instructions < all - 100_000,
        "{} of {all}",
        summary.instructions
    );
    let options = Options { after: Some(Duration::from_secs(1000)), ..Options::default() };
    assert_eq!(threads(&recorded(&folder, &program, &["handler"], options)).len(), 0);
}

/// The recording begins and ends while programs do what is hard to follow.
#[test]
fn a_part_of_the_time() {
    let folder = TempDir::new().expect("a folder");
    for name in ["signals.c", "threads.c", "careless.c", "waiting.c", "changes.c"] {
        let program = compile(&folder, name);
        for (after, duration) in [(5, None), (15, Some(20)), (40, Some(10))] {
            let duration = duration.map(Duration::from_millis);
            let options =
                Options { after: Some(Duration::from_millis(after)), duration, ..Options::default() };
            threads(&recorded(&folder, &program, &[], options));
        }
    }
}

/// With a ring, threads that ended before what is kept leave their number, and nothing else.
#[test]
fn threads_that_come_and_go() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "short_threads.c");
    let length_after = |count: u64| {
        let options = Options { ring: Some(200_000), ..Options::default() };
        let file = recorded(&folder, &program, &[&count.to_string()], options);
        let recording = Recording::read(&file).expect("a readable recording");
        let (kept, mut forgotten) = (threads(&file).len() as u64, 0);
        for thread in recording.threads() {
            let losses = thread.losses.iter().map(|&lost| note::counted(lost));
            forgotten += losses.filter(|loss| loss.0 == note::FORGOTTEN).map(|loss| loss.1).sum::<u64>();
            assert_eq!(names(&file, thread.thread).len(), 1, "thread {}", thread.thread);
        }
        assert_eq!(forgotten + kept, count + 1);
        assert!(kept > 10, "{kept} threads");
        file.len()
    };
    let (few, many) = (length_after(2000), length_after(15_000));
    // More hot paths are found in the longer run.
    assert!(many < few + 300_000, "{few} bytes after 2,000 threads, {many} after 15,000");
}

/// Many threads at once need much memory; when they have ended, it is given back.
#[test]
fn the_memory_of_many_threads_is_given_back() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "burst.c");
    let output = folder.path().join("output");
    let mut command = Command::new(program);
    command.stdout(std::fs::File::create(&output).expect("a file"));
    let outcome = record(command, std::io::sink(), Options::default()).expect("a recording");
    assert!(outcome.status.success());
    let text = std::fs::read_to_string(output).expect("text");
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [before, during, after, later] = numbers[..] else { panic!("{text}") };
    let grown = |now: u64| now.saturating_sub(before);
    assert!(grown(after) < grown(during) / 2, "{text}");
    assert!(grown(later) < grown(during) / 20, "{text}");
}

/// Nothing comes between an exit and what takes its last instruction back, also where a part of the log is full.
#[test]
fn instructions_that_did_not_run_are_taken_back() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "calls_nowhere.c");
    for time_every in [0, 16, 17, 100] {
        threads(&recorded(&folder, &program, &[], Options { time_every, ..Options::default() }));
    }
}
