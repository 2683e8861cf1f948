//! Programs that other projects made, and tools beside them, do under the recorder what they do alone. What is not installed is
//! left out, with a message.

#![allow(missing_docs)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_native::{Options, Outcome, record};
use hodo_native_log::Recording;
use tempfile::TempDir;

fn compile(folder: &TempDir, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.path().join(name.replace('.', "-"));
    let status = Command::new("gcc").args(["-O1", "-g", "-w"]).arg(source).arg("-o").arg(&program).status();
    assert!(status.expect("gcc").success());
    program
}

fn command(words: &[&str], folder: &TempDir) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder.path()).stdin(Stdio::null());
    command
}

fn installed(program: &str) -> bool {
    let there =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let there = there.is_ok_and(|status| status.success());
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// A command that was recorded.
struct Recorded {
    /// What it printed.
    output: String,
    outcome: Outcome,
    instructions: u64,
}

/// Records a command whose output goes to a file; checks that nothing contradicts.
#[track_caller]
fn recorded(folder: &TempDir, command: Command) -> Recorded {
    recorded_with(folder, command, Options::default())
}

/// As [`recorded`], with options.
#[track_caller]
fn recorded_with(folder: &TempDir, mut command: Command, options: Options) -> Recorded {
    let output = folder.path().join("output");
    command.stdout(std::fs::File::create(&output).expect("a file"));
    let mut file = Vec::new();
    let outcome = record(command, &mut file, options).expect("a recording");
    let recording = Recording::read(&file).expect("a readable recording");
    assert_eq!(recording.damage, None);
    let mut instructions = 0;
    for thread in recording.threads() {
        let mut items = recording.items(thread).expect("a table");
        items.finish();
        assert_eq!(items.contradictions(), 0, "thread {}", thread.thread);
        instructions += items.instructions();
    }
    Recorded { output: std::fs::read_to_string(output).expect("text"), outcome, instructions }
}

/// Runs a command alone and recorded: output and status are the same.
#[track_caller]
fn same(folder: &TempDir, words: &[&str]) -> Outcome {
    let expected = command(words, folder).stderr(Stdio::null()).output().expect("it runs");
    let Recorded { output, outcome, instructions } = recorded(folder, command(words, folder));
    assert_eq!((output.as_bytes(), outcome.status), (&*expected.stdout, expected.status));
    assert!(instructions > 100_000, "{instructions}");
    outcome
}

#[test]
fn compilers_at_run_time() {
    let folder = TempDir::new().expect("a folder");
    if installed("pypy3") {
        same(&folder, &["pypy3", "-c", "print(sum(i * i % 7 for i in range(1000000)))"]);
    }
    if installed("java") {
        same(&folder, &["java", "-Xint", "-version"]);
    }
}

/// Python's own tests of compression and of threads.
#[test]
fn the_tests_of_python() {
    let there = Command::new("python3").args(["-c", "import test.test_zlib"]).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: python3 has no tests");
    }
    let folder = TempDir::new().expect("a folder");
    for name in ["test_zlib", "test_thread"] {
        let words = ["python3", "-m", "unittest", "-q", &format!("test.{name}")];
        let alone = command(&words, &folder).stderr(Stdio::null()).status().expect("it runs");
        if !alone.success() {
            eprintln!("skipped: {name} fails alone");
            continue;
        }
        let Recorded { outcome, instructions, .. } = recorded(&folder, command(&words, &folder));
        assert!(outcome.status.success(), "{name}: {outcome:?}");
        assert!(instructions > 10_000_000, "{name}: {instructions}");
    }
}

/// What `make test` of zlib runs.
#[test]
fn the_tests_of_zlib() {
    let sources = Path::new("/usr/share/doc/zlib1g-dev/examples");
    let folder = TempDir::new().expect("a folder");
    for name in ["example", "minigzip"] {
        let source = sources.join(name).with_extension("c");
        if !source.exists() {
            return eprintln!("skipped: zlib1g-dev has no {name}.c");
        }
        let status = command(&["gcc", "-w", "-o", name], &folder).arg(source).arg("-lz").status();
        assert!(status.expect("gcc").success());
    }
    same(&folder, &["./example"]);
    same(&folder, &["sh", "-c", "seq 100000 | ./minigzip | ./minigzip -d | cksum"]);
}

#[test]
fn scripts_of_bash() {
    let script = r#"
        trap 'echo usr1' USR1; trap 'echo leaves $?' EXIT
        coproc { while read -r line; do echo "<$line>"; done; }
        echo word >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; echo "$answer"
        diff <(seq 5) <(seq 2 6); kill -USR1 $$
        for n in {1..20}; do (exit $n) & wait $! || sum=$((sum + $?)); done; echo $sum
        set -m; sleep 5 & kill %1; wait %1 2>/dev/null; echo $?
        declare -A words; for w in a b a; do ((words[$w]++)); done; echo "${words[a]} ${words[b]}"
        printf '%s\n' "${BASH_VERSINFO[0]}" | tee >(cat >/dev/null) | wc -l; false"#;
    if installed("bash") {
        let folder = TempDir::new().expect("a folder");
        same(&folder, &["bash", "-c", script]);
    }
}

/// A program traces its child: the child's next program cannot be recorded, and the recorder says so.
#[test]
fn debuggers_that_are_recorded() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "hello.c");
    let program = program.to_str().expect("text");
    if installed("gdb") {
        let words = [
            "gdb",
            "-q",
            "-nx",
            "-batch",
            "-ex",
            "break main",
            "-ex",
            "run",
            "-ex",
            "print 6 * 7",
            "-ex",
            "kill",
        ];
        let words: Vec<_> = words.into_iter().chain([program]).collect();
        let Recorded { output, outcome, .. } = recorded(&folder, command(&words, &folder));
        assert!(output.contains("Breakpoint 1, main") && output.contains("$1 = 42"), "{output}");
        assert!(outcome.status.success());
        let refused =
            |text: &String| text.contains("unrecorded: gdb (process ") && text.contains("traces it already");
        assert!(outcome.warnings.iter().any(refused), "{:?}", outcome.warnings);
    }
    if installed("strace") {
        let outcome = same(&folder, &["strace", "-f", "-o", "calls", "sh", "-c", "ls /; true; echo ok"]);
        assert!(!outcome.warnings.is_empty());
        let calls = std::fs::read_to_string(folder.path().join("calls")).expect("text");
        assert!(calls.contains("exited with 0"), "{calls}");
    }
}

/// A debugger and `strace` attach to a program that is recorded: they work, and it goes on.
#[test]
fn debuggers_beside_a_recorded_program() {
    let folder = TempDir::new().expect("a folder");
    let script = "sleep 0.2; test -z \"$TOOL\" || timeout 20 $TOOL $$ >/dev/null 2>&1 & \
                  n=0; while test $n -lt 40; do sleep 0.1; n=$((n + 1)); done; wait; echo $n";
    for (name, tool) in
        [("strace", "timeout -s INT 3 strace -o calls -p"), ("gdb", "gdb -q -nx -batch -ex bt -p")]
    {
        if installed(name) {
            let mut command = command(&["bash", "-c", script], &folder);
            command.env("TOOL", tool);
            let options = Options::default();
            let control = options.control.clone();
            let Recorded { output, outcome, .. } = recorded_with(&folder, command, options);
            let notices = control.notices.lock().expect("they are whole").clone();
            assert!(notices.iter().any(|text| text.starts_with(&format!("{name} (process "))), "{notices:?}");
            assert_eq!((output.as_str(), outcome.status.code()), ("40\n", Some(0)), "{name}: {outcome:?}");
        }
    }
    if installed("strace") {
        let calls = std::fs::read_to_string(folder.path().join("calls")).expect("text");
        assert!(calls.contains("wait4"), "{calls}");
    }
}

/// A recording ends while a debugger has the program: it goes on translated, and the recorder says who is in the way.
#[test]
fn a_debugger_in_the_way_is_named() {
    if !installed("strace") {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let script =
        "timeout -s INT 2 strace -o /dev/null -p $$ 2>/dev/null & sleep 0.5; kill -USR2 $$; wait; echo over";
    let options = Options { duration: Some(std::time::Duration::from_secs(1)), ..Options::default() };
    let words = ["bash", "-c", &format!("trap : USR2; {script}")];
    let Recorded { output, outcome, .. } = recorded_with(&folder, command(&words, &folder), options);
    assert_eq!((output.as_str(), outcome.status.code()), ("over\n", Some(0)), "{outcome:?}");
    let named = |text: &String| text.contains("goes on translated") && text.contains("strace (process ");
    assert!(outcome.warnings.iter().any(named), "{:?}", outcome.warnings);
}

#[test]
fn a_limit_of_the_address_space_is_the_programs_own() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "room.c");
    let outcome = same(&folder, &[program.to_str().expect("text")]);
    assert!(outcome.warnings.iter().any(|text| text.contains("no room")), "{:?}", outcome.warnings);
}

/// A recording leaves nothing beside its output.
#[test]
fn no_file_is_left_behind() {
    let folder = TempDir::new().expect("a folder");
    let mut command = command(&["sh", "-c", "ls -A \"$PWD\" \"$TMPDIR\"; ls /dev/shm"], &folder);
    let temporary = TempDir::new().expect("a folder");
    command.env("TMPDIR", temporary.path());
    let Recorded { output, .. } = recorded(&folder, command);
    assert!(!output.contains("hodo"), "{output}");
    assert_eq!(std::fs::read_dir(temporary.path()).expect("a folder").count(), 0);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
