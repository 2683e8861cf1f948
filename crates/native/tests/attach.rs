//! Running programs are recorded, and run their own code afterwards.

#![allow(missing_docs)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use hodo_native::{Error, Options, Refusal, attach, record};
use hodo_native_log::Recording;
use hodo_native_runtime::wire::note;
use tempfile::TempDir;

fn compile(folder: &TempDir, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.path().join(name.replace('.', "-"));
    let mut command = Command::new("gcc");
    command.args(["-O1", "-pthread", "-w"]).arg(source).arg("-o").arg(&program).arg("-lm");
    assert!(command.status().expect("gcc").success());
    program
}

/// A running program, which is killed when the test fails.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Running {
    fn new(program: &Path) -> Running {
        let mut command = Command::new(program);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("its output"));
        Running { child, input, output: BufReader::new(output) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Records the program for some milliseconds.
    #[track_caller]
    fn recorded(&self, milliseconds: u64) -> Vec<u8> {
        let options = Options { duration: Some(Duration::from_millis(milliseconds)), ..Options::default() };
        let mut file = Vec::new();
        let outcome = attach(self.child.id(), &mut file, options).expect("a recording");
        assert_eq!(outcome.warnings, Vec::<String>::new());
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("its mappings");
        assert!(!maps.contains("\n2000") && self.caches(&maps) == 0, "{maps}");
        file
    }

    /// The number of mappings that are as long as a cache, or longer, and executable and writable.
    fn caches(&self, maps: &str) -> usize {
        let ends = |line: &str| -> Option<(u64, u64)> {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        };
        let lines = maps.lines().filter(|line| line.contains(" rwxp ")).filter_map(ends);
        lines.filter(|(start, end)| end - start >= 64 << 20).count()
    }

    /// Ends its input; returns what it still prints, and its exit code.
    fn rest(mut self, input: &str) -> (String, Option<i32>) {
        let mut pipe = self.input.take().expect("its input");
        pipe.write_all(input.as_bytes()).expect("it reads");
        drop(pipe);
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("text");
        (text, self.child.wait().expect("its end").code())
    }
}

/// The size of a recording.
struct Size {
    threads: usize,
    instructions: u64,
}

/// Checks a recording that ended before its program.
#[track_caller]
fn consistent(file: &[u8]) -> Size {
    let recording = Recording::read(file).expect("a readable recording");
    assert_eq!(recording.damage, None);
    let mut instructions = 0;
    for thread in recording.threads() {
        let mut items = recording.items(thread).expect("a table");
        items.finish();
        assert_eq!(items.contradictions(), 0, "thread {}", thread.thread);
        instructions += items.instructions();
    }
    assert!(recording.threads().iter().any(|thread| thread.losses == [note::CLOSED]));
    Size { threads: recording.threads().len(), instructions }
}

/// Sends requests until `over`; returns how many were answered. Each connection makes some requests.
fn requests(port: u16, over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !over.load(Relaxed) {
        let connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let mut answers = BufReader::new(connection.try_clone().expect("a connection"));
        for number in 1..=20u64 {
            let value = count * 7919 % 100_003;
            (&connection).write_all(format!("{value}\n").as_bytes()).expect("a request is sent");
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("an answer");
            let sum: u64 = value.to_string().bytes().map(|digit| u64::from(digit - b'0')).sum();
            assert_eq!(answer, format!("{sum} {}.0 {number}\n", value * value));
            count += 1;
        }
    }
    count
}

#[test]
fn a_server_under_load_twenty_times() {
    let folder = TempDir::new().expect("a folder");
    let mut server = Running::new(&compile(&folder, "server.c"));
    let port = server.line().parse().expect("a port");
    static OVER: AtomicBool = AtomicBool::new(false);
    static ANSWERED: AtomicU64 = AtomicU64::new(0);
    let clients: Vec<_> =
        (0..4).map(|_| thread::spawn(move || ANSWERED.fetch_add(requests(port, &OVER), Relaxed))).collect();
    let mut recorded = 0;
    for _ in 0..20 {
        let Size { instructions, .. } = consistent(&server.recorded(40));
        recorded += u64::from(instructions > 1000);
    }
    OVER.store(true, Relaxed);
    for client in clients {
        client.join().expect("all answers are right");
    }
    assert!(recorded > 10, "{recorded} recordings");
    assert!(ANSWERED.load(Relaxed) > 1000, "{ANSWERED:?}");
}

#[test]
fn sixteen_threads_and_a_timer() {
    let folder = TempDir::new().expect("a folder");
    let mut program = Running::new(&compile(&folder, "workers.c"));
    assert_eq!(program.line(), "ready");
    let files = [(); 3].map(|()| program.recorded(60));
    assert_eq!(program.rest("\n"), ("16 right, ticks 1\n".to_owned(), Some(0)));
    for file in files {
        let Size { threads, instructions } = consistent(&file);
        assert!(instructions > 100_000 && threads == 17, "{instructions} instructions, {threads} threads");
    }
}

#[test]
fn a_program_that_generates_code() {
    let folder = TempDir::new().expect("a folder");
    let mut program = Running::new(&compile(&folder, "generates.c"));
    assert_eq!(program.line(), "ready");
    let files = [20, 50, 80].map(|milliseconds| program.recorded(milliseconds));
    assert_eq!(program.rest("\n"), ("0 wrong\n".to_owned(), Some(0)));
    for file in files {
        let Size { instructions, .. } = consistent(&file);
        assert!(instructions > 1_000, "{instructions} instructions");
    }
}

#[test]
fn calls_that_wait_go_on_waiting() {
    let folder = TempDir::new().expect("a folder");
    let mut program = Running::new(&compile(&folder, "blocked.c"));
    assert_eq!(program.line(), "ready");
    for _ in 0..3 {
        let Size { threads, .. } = consistent(&program.recorded(50));
        assert!(threads >= 6, "{threads} threads");
    }
    let expected = "input 2\n0 1\n1 1\n2 1\n3 1\n4 1\n5 1\n";
    assert_eq!(program.rest("x\n"), (expected.to_owned(), Some(0)));
}

#[test]
fn calls_that_wait_when_the_recording_begins_and_end_in_it() {
    let folder = TempDir::new().expect("a folder");
    let mut program = Running::new(&compile(&folder, "blocked.c"));
    assert_eq!(program.line(), "ready");
    let number = program.child.id();
    let recorder = thread::spawn(move || {
        let mut file = Vec::new();
        let outcome = attach(number, &mut file, Options::default()).expect("a recording");
        (outcome.warnings, file)
    });
    while !std::fs::read_to_string(format!("/proc/{number}/maps")).is_ok_and(|maps| maps.contains("\n2010")) {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(20));
    let again = attach(number, Vec::new(), Options::default());
    assert!(matches!(again, Err(Error::Refused(_, Refusal::Recorded))), "{again:?}");
    let expected = "input 2\n0 1\n1 1\n2 1\n3 1\n4 1\n5 1\n";
    assert_eq!(program.rest("x\n"), (expected.to_owned(), Some(0)));
    let (warnings, file) = recorder.join().expect("the recorder ends");
    assert_eq!(warnings, Vec::<String>::new());
    let recording = Recording::read(&file).expect("a readable recording");
    assert_eq!(recording.threads().len(), 7);
}

/// No test of its own: the recorder that the next test kills.
#[test]
fn records_what_the_environment_names() {
    let Ok(program) = std::env::var("HODO_TEST_PROGRAM") else { return };
    let result = record(Command::new(program), std::io::sink(), Options::default());
    assert!(result.is_ok());
}

#[test]
fn a_program_goes_on_when_its_recorder_is_killed() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(&folder, "workers.c");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "records_what_the_environment_names", "--nocapture"]);
    command.env("HODO_TEST_PROGRAM", program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut recorder = command.spawn().expect("the recorder starts");
    let mut output = BufReader::new(recorder.stdout.take().expect("its output"));
    let mut input = recorder.stdin.take().expect("its input");
    let mut line = String::new();
    while !line.contains("ready") {
        assert!(output.read_line(&mut line).expect("a line") > 0);
    }
    thread::sleep(Duration::from_millis(100));
    recorder.kill().expect("it ends");
    recorder.wait().expect("it ends");
    thread::sleep(Duration::from_millis(100));
    input.write_all(b"\n").expect("the program reads");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "16 right, ticks 1\n");
}

/// No test of its own: what another user may not record.
#[test]
fn attaches_to_what_the_environment_names() {
    let Ok(number) = std::env::var("HODO_TEST_PROCESS") else { return };
    let result = attach(number.parse().expect("a number"), std::io::sink(), Options::default());
    println!("{}", result.expect_err("another user's process"));
}

#[test]
fn processes_of_other_users_are_refused() {
    let mut other = Command::new("sleep").arg("60").spawn().expect("sleep");
    let user = std::fs::metadata("/proc/self").expect("this process").uid();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    // The program itself may lie where the other user can't go.
    let folder = TempDir::new_in("/tmp").expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a folder for all");
    let copy = folder.path().join("attach");
    std::fs::copy(std::env::current_exe().expect("this program"), &copy).expect("a copy");
    command.arg(copy).args(["--exact", "attaches_to_what_the_environment_names", "--nocapture"]);
    let output = command.env("HODO_TEST_PROCESS", other.id().to_string()).output().expect("setpriv");
    other.kill().expect("it ends");
    other.wait().expect("it ends");
    // Only root can become another user.
    if user == 0 {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("can't be recorded: it belongs to user 0"), "{text}");
    }
}

#[test]
fn traced_programs_are_refused() {
    let tracer = Command::new("strace").args(["-o", "/dev/null", "sleep", "60"]).spawn();
    let Ok(mut tracer) = tracer else { return };
    let children = format!("/proc/{0}/task/{0}/children", tracer.id());
    let child = loop {
        let text = std::fs::read_to_string(&children).expect("the tracer runs");
        let child = text.split_whitespace().find_map(|number| number.parse::<u32>().ok());
        let name = child.and_then(|child| std::fs::read_to_string(format!("/proc/{child}/comm")).ok());
        if let (Some(child), Some("sleep\n")) = (child, name.as_deref()) {
            break child;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let result = attach(child, Vec::new(), Options::default());
    tracer.kill().expect("it ends");
    tracer.wait().expect("it ends");
    _ = Command::new("kill").args(["-9", &child.to_string()]).status();
    match result {
        Err(Error::Refused(_, Refusal::Traced(number))) => assert_eq!(number, tracer.id()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let refusal = |number| match attach(number, Vec::new(), Options::default()) {
        Err(Error::Refused(_, refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal(std::process::id()), Refusal::NoProgram));
    assert!(matches!(refusal(0x7fff_fff0), Refusal::NoProgram));
    let mut stopped = Command::new("sleep").arg("60").spawn().expect("sleep");
    let signal = |name: &str, number: u32| {
        assert!(Command::new("kill").args([name, &number.to_string()]).status().expect("kill").success());
    };
    signal("-STOP", stopped.id());
    thread::sleep(Duration::from_millis(50));
    let found = refusal(stopped.id());
    assert!(matches!(found, Refusal::Stopped), "{found}");
    stopped.kill().expect("it ends");
    stopped.wait().expect("it ends");
}
