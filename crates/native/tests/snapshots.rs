//! Snapshots that are taken while threads write their logs contradict nothing.

#![allow(missing_docs)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use hodo_native::{Condition, Control, Limit, Options, Outcome, Select, Watched, record};
use hodo_native_log::Recording;
use tempfile::TempDir;

/// The function of the programs that is sometimes slow.
const SLOW: &str = "serve";

fn compile(folder: &TempDir, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.path().join(name.replace('.', "-"));
    let mut command = Command::new("gcc");
    command.args(["-O1", "-pthread", "-w"]).arg(source).arg("-o").arg(&program);
    assert!(command.status().expect("gcc").success());
    program
}

/// Records the program that keeps eight threads busy, for this many rounds of each.
fn busy(program: &Path, rounds: u32, options: Options) -> (Outcome, Vec<u8>) {
    let mut command = Command::new(program);
    command.arg(rounds.to_string()).stdout(Stdio::null());
    let mut file = Vec::new();
    let outcome = record(command, &mut file, options).expect("a recording");
    assert!(outcome.status.success(), "{outcome:?}");
    (outcome, file)
}

/// Checks that nothing in a recording contradicts; returns the number of instructions.
#[track_caller]
fn consistent(file: &[u8]) -> u64 {
    let recording = Recording::read(file).expect("a readable recording");
    assert_eq!(recording.damage, None);
    let mut instructions = 0;
    for thread in recording.threads() {
        let sequences: Vec<u64> = thread.blocks.iter().map(|block| block.header.sequence).collect();
        let mut items = recording.items(thread).expect("a table");
        items.finish();
        assert_eq!(items.contradictions(), 0, "thread {}, parts {sequences:?}", thread.thread);
        instructions += items.instructions();
    }
    instructions
}

/// The code of a function in its file, as `nm` says. The program's first bytes are those of the file.
fn code_of(program: &Path, function: &str) -> Select {
    let output = Command::new("nm").arg("-S").arg(program).output().expect("nm");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find(|line| line.ends_with(&format!(" {function}"))).expect("the function");
    let mut numbers = line.split(' ').map(|word| u64::from_str_radix(word, 16).expect("a number"));
    let [start, length] = [(); 2].map(|()| numbers.next().expect("a number"));
    Select { file: program.to_string_lossy().into_owned(), offsets: start..start + length }
}

/// Threads move their entries every few exits while one snapshot after the other is taken.
#[test]
fn threads_go_on_writing_while_snapshots_are_taken() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "busy.c");
    let control = Arc::new(Control::default());
    let options =
        Options { ring: Some(100_000), time_every: 16, control: control.clone(), ..Options::default() };
    let over = AtomicBool::new(false);
    let (taken, file) = std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let mut taken = 0;
            while !over.load(Relaxed) {
                taken += u64::from(!control.snapshot.swap(true, Relaxed));
                std::thread::sleep(Duration::from_millis(1));
            }
            taken
        });
        let (_, file) = busy(&program, 20_000, options);
        over.store(true, Relaxed);
        (requests.join().expect("it ends"), file)
    });
    assert!(taken > 10, "{taken} snapshots");
    assert!(consistent(&file) > 1_000_000);
}

/// Each slow execution is followed by a snapshot, and nothing else is written.
#[test]
fn threads_go_on_writing_while_conditions_fire() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "busy.c");
    let watched = Watched::Function(code_of(&program, SLOW));
    let condition = Condition { text: "slow".to_owned(), watched, limit: Limit::Instructions(2000) };
    let conditions = vec![condition];
    let options = Options { ring: Some(100_000), conditions, time_every: 16, ..Options::default() };
    let (outcome, file) = busy(&program, 20_000, options);
    // Eight threads, of whose rounds one of 97 is slow.
    assert_eq!(outcome.snapshots, 8 * 206);
    consistent(&file);
}
