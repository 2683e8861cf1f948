//! Programs recorded natively, and what reads the recordings.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    program,
    recorded::{build, compile, report},
    run::{Folder, Ran, command, hodo, reports, rows, wait},
};

/// Records a command natively into `native.data` of this folder.
fn record(folder: &Folder, options: &[&str], command: &[&str]) -> (String, Ran) {
    let out = folder.file("native.data");
    let ran = hodo(&[&["record", "--engine", "native", "-o", &out], options, &["--"], command].concat());
    assert!(fs::exists(&out).is_ok_and(|there| there), "{ran:?}");
    (out, ran)
}

/// A row of `report functions`.
#[derive(Debug, PartialEq)]
struct FunctionRow {
    name: String,
    instructions: Value,
    calls: Value,
}

fn functions(arguments: &[&str], recording: &str) -> Vec<FunctionRow> {
    let row = |row: &Value| FunctionRow {
        name: row["function"].as_str().expect("a name").to_owned(),
        instructions: row["self_instructions"].clone(),
        calls: row["calls"].clone(),
    };
    rows(&report(arguments, recording)).iter().map(row).collect()
}

/// The rows of a report, without times, which are less exact in packets than in the log.
fn counts(report: &str, recording: &str) -> Vec<Vec<Value>> {
    let words = ["report", report, "--strict", "--format", "json", "--limit", "1000000", recording];
    let table = hodo(&words).fine().json();
    let columns = table["columns"].as_array().expect("columns");
    let is_exact =
        |column: &Value| column["type"] == "string" || column["type"] == "integer" && column["unit"] != "ns";
    let row = |row: &Value| {
        let cells = columns.iter().zip(row.as_array().expect("a row"));
        cells.filter(|(column, _)| is_exact(column)).map(|(_, cell)| cell.clone()).collect()
    };
    table["rows"].as_array().expect("rows").iter().map(row).collect()
}

#[test]
fn every_instruction_of_a_known_program_is_recorded_natively() {
    const ROUNDS: u32 = 1000;
    let folder = Folder::new();
    let program = build(&folder, ROUNDS, 1);
    let expected = program::addresses(program::ENTRY, ROUNDS);
    for options in [&[][..], &["--time-every", "16"], &["--time-every", "0", "--native-memory", "1M"]] {
        let (recording, ran) = record(&folder, options, &[&program]);
        ran.fine();
        let script = hodo(&["script", "--insns", "--strict", &recording]).fine();
        assert_eq!(script.stdout, program::lines(&expected), "{options:?}");
        let table = report(&["--strict"], &recording);
        assert_eq!(table["summary"]["instructions"], expected.len(), "{options:?}");
        assert_eq!(table["summary"]["calls"], ROUNDS, "{options:?}");
    }
    let info = hodo(&["info", &folder.file("native.data")]).fine().stdout;
    assert!(info.contains("by the native recorder; time: real"), "{info}");
}

#[test]
fn equal_executions_have_equal_counted_times() {
    const ROUNDS: u32 = 1000;
    let folder = Folder::new();
    let program = build(&folder, ROUNDS, 1);
    let script = || {
        let (recording, ran) = record(&folder, &["--deterministic"], &[&program]);
        assert!(ran.fine().stderr.contains("one instruction is one nanosecond"));
        let script = hodo(&["script", "--calls", "--strict", &recording]).fine().stdout;
        // The first line has the number of the process.
        script.split_once('\n').expect("lines").1.to_owned()
    };
    let times = script();
    assert_eq!(times, script());
    let info = hodo(&["info", "--format", "json", &folder.file("native.data")]).fine().json();
    let duration = info["span"]["end_ns"].as_u64().unwrap() - info["span"]["begin_ns"].as_u64().unwrap();
    let instructions = program::addresses(program::ENTRY, ROUNDS).len() as u64;
    assert!(
        (instructions..instructions + 50).contains(&duration),
        "{duration} ns, {instructions} instructions"
    );
    let text = hodo(&["info", &folder.file("native.data")]).fine().stdout;
    assert!(text.contains("time: virtual"), "{text}");
}

#[test]
fn code_that_changes_is_known_by_counted_times() {
    let folder = Folder::new();
    let changing = compile(&folder, "changing_code.c", &["-O1"]);
    let script = format!("trap 'echo signal' USR1; {}", SCRIPT.replace("PROGRAM", &changing));
    let (recording, ran) = record(&folder, &["--deterministic"], &["sh", "-c", &script]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let counted = functions(&["--strict", "--limit", "100000"], &recording);
    assert!(counted.len() > 300, "{} functions", counted.len());
    let packets = folder.file("packets.data");
    hodo(&["export", "--strict", "--to", "intel-pt", "-o", &packets, &recording]).fine();
    assert_eq!(counted, functions(&["--strict", "--limit", "100000"], &packets));
}

/// Processes, libraries, a signal, and code that changes.
const SCRIPT: &str = "ls / | wc -l; (kill -USR1 $$); PROGRAM; exit 7";

#[test]
fn a_recording_and_its_packets_have_the_same_content() {
    let folder = Folder::new();
    let changing = compile(&folder, "changing_code.c", &["-O1"]);
    let script = format!("trap 'echo signal' USR1; {}", SCRIPT.replace("PROGRAM", &changing));
    let (recording, ran) = record(&folder, &[], &["sh", "-c", &script]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stdout.contains("signal\n") && ran.stdout.ends_with("1250040\n"), "{ran:?}");
    let packets = folder.file("packets.data");
    hodo(&["export", "--strict", "--to", "intel-pt", "-o", &packets, &recording]).fine();
    let direct = functions(&["--strict", "--limit", "100000"], &recording);
    assert!(direct.len() > 300, "{} functions", direct.len());
    for report in reports().iter().filter(|report| report["reads"] == "control flow") {
        let name = report["name"].as_str().expect("a name");
        // This report measures the packets.
        if name == "resolution" {
            continue;
        }
        assert_eq!(counts(name, &recording), counts(name, &packets), "{name}");
    }
    for options in [["-j", "1"], ["--chunk-size", "1K"], ["--chunk-size", "20K"]] {
        let options = [&["--strict", "--limit", "100000"][..], &options].concat();
        assert_eq!(direct, functions(&options, &recording), "{options:?}");
    }
    let addresses = |recording: &str| hodo(&["script", "--insns", recording]).fine().stdout;
    let own = addresses(&recording);
    assert_eq!(own, addresses(&packets));
    let refused = hodo(&["script", "--packets", &recording]);
    assert!(refused.code == 2 && refused.stderr.contains("--to intel-pt"), "{refused:?}");
    let refused = hodo(&["export", "--to", "intel-pt", "-o", &recording, &packets]);
    assert!(refused.code == 2 && refused.stderr.contains("packets already"), "{refused:?}");
    perf_counts(&packets, own.lines().filter(|line| !line.starts_with('#')).count());
}

/// perf decodes code that is in files, and so not that of the changing program.
fn perf_counts(packets: &str, all: usize) {
    let mut perf = Command::new("perf");
    perf.args(["script", "-i", packets, "--itrace=i1i", "-F", "ip", "--comm", "ls,wc,sh"]);
    let Ok(output) = perf.output() else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.lines().count();
    assert!(count > all / 2 && count <= all, "perf: {count} of {all}");
}

#[test]
fn what_cannot_be_recorded_natively_is_refused() {
    let folder = Folder::new();
    let out = folder.file("x.data");
    let native = |options: &[&str], command: &[&str]| {
        hodo(&[&["record", "--engine", "native", "-o", &out], options, &["--"], command].concat())
    };
    for (options, command, reason) in [
        (&["-e", "intel_pt//u"][..], "true", "--engine emulate"),
        (&["--overflow", "1..2"], "true", "--engine emulate"),
        (&["--filter", "filter 0x1000/0x20"], "true", "needs the file"),
        (&[], "no-such-program", "command not found"),
        (&[], "/etc/passwd", "/etc/passwd"),
    ] {
        let ran = native(options, &[command]);
        assert!(ran.code != 0 && ran.stderr.contains(reason), "{ran:?}");
        assert!(fs::read_dir(folder.file("")).unwrap().next().is_none(), "nothing is left behind");
    }
    // Whether the first process may be recorded depends on the user's rights.
    let ran = hodo(&["record", "--engine", "native", "-o", &out, "--pid", "1", "--for", "1s"]);
    assert!(ran.code != 0 || ran.stderr.contains("recorded"), "{ran:?}");
}

/// A program that crashes: its functions did not return, and `--at end` says where it was.
#[test]
fn a_crash_is_seen_where_it_happened() {
    let folder = Folder::new();
    let source = "
        __attribute__((noinline)) static int leaf(volatile int *number) { return *number + 1; }
        __attribute__((noinline)) static int outer(volatile int *number) { return leaf(number) * 2; }
        int main(int count, char **arguments) {
            volatile int number = count;
            return outer(&number) == 4 ? outer(0) : 1;
        }";
    let (source, program) = (folder.write("crashes.c", source.as_bytes()), folder.file("crashes"));
    let compiled = Command::new("cc").args(["-O1", "-g", "-w", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    // A shell survives the signal.
    let (recording, ran) = record(&folder, &[], &["sh", "-c", &format!("{program}; exit 3")]);
    assert!(ran.code == 3 && !ran.stderr.contains("killed"), "{ran:?}");
    let calls = hodo(&["script", "--calls", "--strict", "--comm", "crashes", &recording]).fine().stdout;
    let open = |name: &str| {
        calls.lines().filter(|line| line.contains(name) && line.ends_with("(open at the end)")).count()
    };
    assert_eq!((open("} main"), open("outer"), open("leaf")), (1, 1, 0), "{calls}");
    assert_eq!(calls.lines().filter(|line| line.ends_with("} outer")).count(), 1, "{calls}");
    let lines =
        hodo(&["script", "--calls", "--comm", "crashes", "--format", "jsonl", &recording]).fine().stdout;
    let open = lines.lines().filter(|line| line.contains("\"is_open\":true"));
    assert!(open.clone().count() >= 2 && lines.lines().count() > 2 * open.count(), "{lines}");
    for end in ["end", "100%"] {
        let text = hodo(&["script", "--at", end, "--comm", "crashes", &recording]).fine().stdout;
        let frame = |number: usize, name: &str| {
            text.lines().any(|line| line.trim_start().starts_with(&format!("{number}  {name}+")))
        };
        assert!(text.contains("  last: call ") && frame(0, "outer") && frame(1, "main"), "{text}");
    }
}

/// Which engine was chosen is said when the recording begins, not before errors of other kinds.
#[test]
fn the_chosen_engine_is_no_part_of_errors() {
    const CHOICE: &str = "recorder is used";
    let folder = Folder::new();
    let out = folder.file("x.data");
    let ran = hodo(&["record", "-o", &out, "--", "true"]).fine();
    let present = fs::exists("/sys/bus/event_source/devices/intel_pt").is_ok_and(|there| there);
    assert_eq!(ran.stderr.matches(CHOICE).count(), usize::from(!present), "{ran:?}");
    for wrong in [&["--", "no-such-program"][..], &["--filter", "x", "--", "true"], &["--pid", "999999999"]] {
        let ran = hodo(&[&["record", "-o", &out], wrong].concat());
        assert!(ran.code != 0 && !ran.stderr.contains(CHOICE), "{ran:?}");
    }
}

#[test]
fn a_running_process_is_recorded_for_a_while() {
    let folder = Folder::new();
    let program = compile(&folder, "threads.c", &["-pthread", "-O1"]);
    let mut server = Command::new("sh");
    let script = format!("while read -r line; do {program} >/dev/null; echo done $line; done");
    let mut server =
        server.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut input = server.stdin.take().expect("its input");
    let mut output = BufReader::new(server.stdout.take().expect("its output")).lines();
    let mut ask = |number: u32| {
        writeln!(input, "{number}").expect("it reads");
        assert_eq!(output.next().expect("an answer").expect("text"), format!("done {number}"));
    };
    ask(1);
    let (out, pid) = (folder.file("attached.data"), server.id().to_string());
    let words = ["record", "--engine", "native", "-o", &out, "--pid", &pid, "--for", "2s"];
    let recorder = command(&words).spawn().expect("hodo starts");
    // The runtime's arena is mapped there.
    while !fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("\n2010")) {
        thread::sleep(Duration::from_millis(2));
    }
    ask(2);
    wait(recorder).expect("it ends").fine();
    ask(3);
    drop(input);
    assert!(server.wait().expect("it ends").success());
    let names: Vec<String> =
        functions(&["--limit", "100000"], &out).into_iter().map(|row| row.name).collect();
    assert!(names.iter().any(|name| name == "main") && names.len() > 50, "{names:?}");
}

/// Asks a server of Python for this content until `over`. Returns how often it was answered.
fn requests(port: u16, content: &str, over: &AtomicBool) -> u32 {
    let mut count = 0;
    while !over.load(Relaxed) {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        connection.write_all(b"GET /content HTTP/1.0\r\n\r\n").expect("it is asked");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with(content), "{} bytes", answer.len());
        count += 1;
    }
    count
}

/// A server is recorded twenty times while it answers: no answer is wrong, and the recordings show its work.
#[test]
fn a_server_is_recorded_while_it_answers() {
    let folder = Folder::new();
    let content = "content ".repeat(10_000);
    folder.write("content", content.as_bytes());
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    let mut server = Command::new("python3");
    server.args(["-m", "http.server", &port.to_string(), "--bind", "127.0.0.1"]).current_dir(folder.file(""));
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().expect("Python");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    let over = AtomicBool::new(false);
    let (pid, out) = (server.id().to_string(), folder.file("server.data"));
    let (answers, shown) = thread::scope(|scope| {
        let client = scope.spawn(|| requests(port, &content, &over));
        let shown = (0..20).filter(|_| {
            hodo(&["record", "--engine", "native", "-o", &out, "--pid", &pid, "--for", "200ms"]).fine();
            let names: Vec<String> =
                functions(&["--limit", "100000"], &out).into_iter().map(|row| row.name).collect();
            ["_PyEval_EvalFrameDefault", "accept4", "send"]
                .iter()
                .all(|name| names.iter().any(|row| row == name))
        });
        let shown = shown.count();
        over.store(true, Relaxed);
        (client.join().expect("all answers are right"), shown)
    });
    server.kill().expect("it runs to the end");
    _ = server.wait();
    // A busy machine may not let it run in each of them.
    assert!(answers > 20 && shown >= 10, "{answers} answers, {shown} recordings show the server's work");
}

#[test]
fn the_last_part_of_each_thread_is_kept() {
    let folder = Folder::new();
    let program = build(&folder, 3_000_000, 1);
    let (recording, ran) = record(&folder, &["--snapshot=64K"], &[&program]);
    ran.fine();
    let all = program::addresses(program::ENTRY, 10).len() as u64 * 300_000;
    let table = report(&[], &recording);
    let kept = table["summary"]["instructions"].as_u64().expect("a number");
    assert!(kept > 0 && kept <= all, "{kept} of about {all}");
}

#[test]
fn a_snapshot_is_written_when_it_is_asked_for() {
    let folder = Folder::new();
    let out = folder.file("snapshot.data");
    let words = ["record", "--engine", "native", "--snapshot", "-o", &out, "--", "sh", "-c"];
    let script = "echo ready; read -r line; sh -c 'kill -9 $$'; exit 5";
    let mut child = command(&[&words[..], &[script]].concat());
    let mut child = child.stdin(Stdio::piped()).spawn().expect("hodo starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("text");
    assert_eq!(line, "ready\n");
    let process = Pid::from_child(&child);
    let partial = folder.file("snapshot.data.partial");
    let before = fs::metadata(&partial).expect("it is being written").len();
    kill_process(process, Signal::USR2).expect("it runs");
    while fs::metadata(&partial).expect("it is being written").len() == before {
        thread::sleep(Duration::from_millis(5));
    }
    child.stdin.take().expect("its input").write_all(b"x\n").expect("it reads");
    assert_eq!(wait(child).expect("it ends").code, 5);
    let ran = hodo(&["report", "functions", &out]);
    assert!(ran.stdout.contains("gaps"), "{ran:?}");
}

#[test]
fn a_recording_whose_recorder_was_killed_reads_as_far_as_it_goes() {
    let folder = Folder::new();
    let out = folder.file("killed.data");
    let words = ["record", "--engine", "native", "-o", &out, "--", "sh", "-c"];
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo ready; read -r line";
    let mut child = command(&[&words[..], &[script]].concat());
    let mut child = child.stdin(Stdio::piped()).spawn().expect("hodo starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("text");
    // What is written is passed on to the system each second.
    thread::sleep(Duration::from_millis(1500));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let partial = format!("{out}.partial");
    let table = report(&[], &partial);
    let instructions = table["summary"]["instructions"].as_u64().expect("a number");
    assert!(instructions > 10_000_000, "{table}");
    assert_eq!(table["loss"][0]["cause"], "cut_short", "{table}");
    let ran = hodo(&["info", &out]);
    assert!(ran.code == 3 && ran.stderr.contains("killed.data.partial"), "{ran:?}");
}

#[test]
fn a_recording_that_was_cut_reads_to_its_cut() {
    let folder = Folder::new();
    let (recording, ran) = record(&folder, &[], &["ls", "-l", "/"]);
    ran.fine();
    let whole = fs::read(&recording).expect("it is there");
    let all = report(&[], &recording)["summary"]["instructions"].as_u64().expect("a number");
    let cut = folder.file("cut.data");
    fs::write(&cut, &whole[..whole.len() - 200]).expect("it is ours");
    let ran = hodo(&["report", "functions", &cut]);
    assert!(ran.stdout.contains("the file ends within a block"), "{ran:?}");
    let rest = report(&[], &cut)["summary"]["instructions"].as_u64().expect("a number");
    assert!(rest <= all, "{rest} of {all}");
    for (offset, what) in [(7, "version of the native recording"), (90, "native recording")] {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x55;
        fs::write(&cut, &damaged).expect("it is ours");
        let ran = hodo(&["report", "functions", &cut]);
        assert!(ran.code == 1 || ran.code == 2 || ran.stderr.contains(what), "{offset}: {ran:?}");
    }
}

#[test]
fn only_selected_code_is_recorded() {
    let folder = Folder::new();
    let program = compile(&folder, "threads.c", &["-pthread", "-O0", "-g"]);
    let filter = format!("filter main @ {program}");
    let (recording, ran) = record(&folder, &["--filter", &filter], &[&program]);
    ran.fine();
    let names: Vec<String> =
        functions(&["--limit", "100000"], &recording).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["main"]);
}

/// Names of the threads that a recording has.
fn commands(recording: &str) -> Vec<String> {
    let info = hodo(&["info", "--format", "json", recording]).fine().json();
    let streams = info["streams"].as_array().expect("streams").iter();
    streams.map(|stream| stream["command"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn processes_that_outlive_the_command_are_recorded_natively() {
    let folder = Folder::new();
    // The command often ends before the process that it started runs.
    for _ in 0..5 {
        let (recording, ran) = record(&folder, &[], &["sh", "-c", "(sleep 0.4; ls / >/dev/null) & exit 7"]);
        assert!(ran.code == 7 && ran.stderr.contains("the command has ended"), "{ran:?}");
        let commands = commands(&recording);
        assert!(commands.iter().any(|name| name == "ls"), "{commands:?}");
    }
    let out = folder.file("native.data");
    let words =
        ["record", "--engine", "native", "-o", &out, "--", "sh", "-c", "sleep 100 >/dev/null 2>&1 & exit 7"];
    let child = command(&words).spawn().expect("hodo starts");
    let process = Pid::from_child(&child);
    thread::sleep(Duration::from_secs(1));
    kill_process(process, Signal::TERM).expect("it waits");
    let ran = wait(child).expect("it ends");
    assert!(ran.code == 7 && ran.stderr.contains("Ctrl-C ends the recording now"), "{ran:?}");
    let report = hodo(&["report", "functions", &out]).fine().stdout;
    assert!(report.contains("untraced"), "{report}");
}

/// Of twenty slow executions among 42,000, each is in a snapshot; without slow ones there is none.
#[test]
fn slow_executions_of_a_function_are_kept() {
    let folder = Folder::new();
    let program = compile(&folder, "slow_answers.c", &["-O1"]);
    for limit in ["300000instructions", "1ms"] {
        let trigger = format!("serve > {limit}");
        let options = ["--snapshot", "--trigger", &trigger];
        let (recording, ran) = record(&folder, &options, &[&program, "20"]);
        ran.fine();
        let info = hodo(&["info", "--format", "json", &recording]).fine().json();
        let snapshots = info["snapshots"].as_array().expect("a list");
        // A quick execution takes long, too, if another program runs meanwhile.
        let is_slow =
            |snapshot: &&Value| snapshot["instructions"].as_u64().is_some_and(|count| count > 8_000_000);
        assert_eq!(snapshots.iter().filter(is_slow).count(), 20, "{snapshots:?}");
        assert!(limit == "1ms" || snapshots.len() == 20, "{snapshots:?}");
        let functions = functions(&["--limit", "100000"], &recording);
        let calls = |name: &str| {
            functions.iter().find(|row| row.name == name).map_or(Value::Null, |row| row.calls.clone())
        };
        assert_eq!(calls("rebuild"), 20, "{functions:?}");
        let few = calls("serve").as_u64().expect("a number");
        assert!(few >= 20, "{few}");
    }
    let (recording, ran) =
        record(&folder, &["--snapshot", "--trigger", "serve > 300000instructions"], &[&program]);
    assert!(ran.fine().stderr.contains("0 snapshots"));
    let info = hodo(&["info", "--format", "json", &recording]).fine().json();
    assert!(info["snapshots"].is_null(), "{info}");
    let wrong = |trigger: &str, reason: &str| {
        let out = folder.file("x.data");
        let words =
            ["record", "--engine", "native", "-o", &out, "--snapshot", "--trigger", trigger, "--", &program];
        let ran = hodo(&words);
        assert!(ran.code == 2 && ran.stderr.contains(reason), "{ran:?}");
    };
    wrong("no_such_function > 1ms", "no function no_such_function");
    wrong("latency(wakeup) > 1ms", "measures functions");
    wrong("latency(syscall:read) > 100instructions", "no instructions of the program");
    wrong("latency(syscall:no_such_call) > 1ms", "no such system call");
}

#[test]
fn slow_system_calls_are_kept() {
    let folder = Folder::new();
    for (limit, expected) in [("20ms", 3), ("9s", 0)] {
        let trigger = format!("latency(syscall:clock_nanosleep) > {limit}");
        let script = "for time in 0.04 0.001 0.05 0.06; do sleep $time; done";
        let options = ["--snapshot", "--trigger", &trigger];
        let (recording, ran) = record(&folder, &options, &["sh", "-c", script]);
        ran.fine();
        let info = hodo(&["info", "--format", "json", &recording]).fine().json();
        let snapshots = info["snapshots"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(snapshots.len(), expected, "{info}");
        let time = |snapshot: &Value| snapshot["latency_ns"].as_u64().expect("a time");
        assert!(
            snapshots.iter().all(|snapshot| (40_000_000..2_000_000_000).contains(&time(snapshot))),
            "{info}"
        );
    }
}

/// A function that is entered by a jump, and two executions of it of four that are slow.
#[test]
fn slow_executions_of_a_tail_call_are_kept() {
    let folder = Folder::new();
    let program = compile(&folder, "tail_calls.c", &["-O2"]);
    let options = ["--snapshot", "--trigger", "answer > 100000instructions"];
    let (recording, ran) = record(&folder, &options, &[&program]);
    ran.fine();
    let info = hodo(&["info", "--format", "json", &recording]).fine().json();
    assert_eq!(info["snapshots"].as_array().map(Vec::len), Some(2), "{info}");
}

#[test]
fn only_some_threads_are_recorded() {
    let folder = Folder::new();
    let program = compile(&folder, "waits.c", &["-pthread", "-O0", "-g"]);
    let (recording, ran) = record(&folder, &["--threads", "nobody,fi*"], &[&program, "mutex"]);
    ran.fine();
    assert_eq!(commands(&recording), ["first"]);
    let names: Vec<String> =
        functions(&["--strict", "--limit", "100000"], &recording).into_iter().map(|row| row.name).collect();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    assert!(has("first") && has("compute") && !has("second") && !has("main"), "{names:?}");
    let info = hodo(&["info", &recording]).fine().stdout;
    assert!(info.contains("threads nobody, fi*"), "{info}");
    let (recording, ran) = record(&folder, &["--threads", "nobody"], &[&program, "mutex"]);
    assert!(ran.fine().stderr.contains("the recording is empty"));
    assert_eq!(commands(&recording), Vec::<String>::new());
    let out = folder.file("x.data");
    let ran = hodo(&["record", "--engine", "emulate", "--threads", "x", "-o", &out, "--", "true"]);
    assert!(ran.code != 0 && ran.stderr.contains("--engine native"), "{ran:?}");
}

#[test]
fn only_a_time_is_recorded() {
    let folder = Folder::new();
    let script = [
        "sh",
        "-c",
        "ls / >/dev/null; sleep 0.6; cat /etc/passwd >/dev/null; sleep 0.9; wc -c /dev/null; exit 7",
    ];
    let (recording, ran) = record(&folder, &["--after", "400ms", "--for", "700ms"], &script);
    assert_eq!((ran.code, ran.stdout.as_str()), (7, "0 /dev/null\n"), "{ran:?}");
    let commands = commands(&recording);
    let has = |wanted: &str| commands.iter().any(|name| name == wanted);
    assert!(has("cat") && has("sh") && !has("ls") && !has("wc"), "{commands:?}");
    let info = hodo(&["info", &recording]).fine().stdout;
    assert!(info.contains("after 400ms; for 700ms"), "{info}");
}
