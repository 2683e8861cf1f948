//! Processes that outlive the recorded command.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use serde_json::Value;

use crate::{
    recorded::{can_record, record, report},
    run::{Folder, command, hodo},
};

/// Far longer than any test here takes.
const PATIENCE: Duration = Duration::from_secs(100);

#[track_caller]
fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(met) = condition() {
            return met;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: never");
}

/// A running recording, in its own process group.
struct Recording {
    folder: Folder,
    child: Child,
}

impl Recording {
    /// Records a shell script, in which `DIR` is replaced by the folder.
    fn start(options: &[&str], script: &str) -> Recording {
        let folder = Folder::new();
        let (out, script) = (folder.file("perf.data"), script.replace("DIR", &folder.file("")));
        let words = [&["record", "--engine", "emulate", "-o", &out], options, &["--", "sh", "-c", &script]];
        let log = File::create(folder.file("log")).expect("it is ours");
        let hodo = command(&words.concat());
        // Tests that a shell runs in the background ignore SIGINT, and so would their children.
        let mut env = Command::new("env");
        env.arg("--default-signal=INT").arg(hodo.get_program()).args(hodo.get_args());
        env.envs(hodo.get_envs().filter_map(|(name, value)| Some((name, value?))));
        env.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let child = env.spawn().expect("hodo starts");
        Recording { folder, child }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.file("log")).expect("UTF-8")
    }

    /// Returns the process that wrote its pid to a file in the folder.
    fn process(&self, name: &str) -> Pid {
        let path = self.folder.file(name);
        let number = until(name, || fs::read_to_string(&path).ok()?.trim().parse().ok());
        Pid::from_raw(number).expect("a process's number")
    }

    /// Waits until hodo reports that it waits.
    fn wait_for_wait(&self) {
        until("the line that says so", || self.log().contains("Ctrl-C").then_some(()));
    }

    /// Returns hodo's exit code.
    fn code(&mut self) -> i32 {
        let status = until("the end", || self.child.try_wait().expect("it is our child"));
        status.code().unwrap_or_else(|| panic!("{status}: {}", self.log()))
    }

    /// Returns the table of functions, after a check that it contains all instructions that the emulator counted.
    fn table(&self) -> Value {
        let recording = self.folder.file("perf.data");
        let info = hodo(&["info", "--format", "json", &recording]).fine().json();
        let truth = info["truth"].as_array().unwrap_or_else(|| panic!("{info}"));
        let all: u64 = truth.iter().filter_map(|thread| thread["traced_instructions"].as_u64()).sum();
        let table = report(&[], &recording);
        assert_eq!(table["summary"]["instructions"], all, "{info}");
        table
    }
}

/// No process outlives a failed test.
impl Drop for Recording {
    fn drop(&mut self) {
        let number =
            fs::read_to_string(self.folder.file("pid")).ok().and_then(|text| text.trim().parse().ok());
        if let Some(process) = number.and_then(Pid::from_raw) {
            _ = kill_process(process, Signal::KILL);
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_child_that_outlives_the_command_is_recorded_to_its_end() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let script = ["sh", "-c", "(sleep 0.6; /bin/true) & exit 7"];
    let (recording, ran) = record(&folder, &[], &script);
    assert_eq!(ran.code, 7, "the command's own: {ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(
        matches!(lines[..], [waits, recorded] if waits.contains("Ctrl-C") && recorded.contains("hodo: recorded by")),
        "{ran:?}"
    );
    report(&["--strict"], &recording);
    let modules = hodo(&["info", &recording]).fine().stdout;
    assert!(modules.contains("/sleep") && modules.contains("/true"), "{modules}");
    assert_eq!(folder.names(), ["perf.data"], "nothing else is left");
}

#[test]
fn a_late_child_that_is_killed_keeps_what_it_ran() {
    if !can_record() {
        return;
    }
    for options in [&[][..], &["--snapshot=64K"], &["-e", "intel_pt/psb_period=0,cyc/u"]] {
        let script = "sh -c 'echo $$ > DIRpid; while :; do :; done' & exit 3";
        let mut recording = Recording::start(options, script);
        let busy = recording.process("pid");
        recording.wait_for_wait();
        kill_process(busy, Signal::KILL).expect("it runs");
        assert_eq!(recording.code(), 3, "{}", recording.log());
        if options.first() != Some(&"--snapshot=64K") {
            recording.table();
        }
        assert_eq!(recording.folder.names(), ["log", "perf.data", "pid"]);
    }
}

/// A daemon's recording ends at the moment at which the user ends the wait. The daemon continues untraced and without
/// messages.
#[test]
fn a_daemon_is_cut_when_the_user_ends_the_wait() {
    if !can_record() {
        return;
    }
    let daemon = "echo $$ > DIRpid; while [ ! -e DIRgo ]; do :; done; \
                  ls DIR > DIRlisted; (ls DIR; exit 4); echo $? > DIRdone";
    let daemon = format!("sh -c '{daemon}'");
    type End = fn(Pid) -> rustix::io::Result<()>;
    let by_key: End = |hodo| kill_process_group(hodo, Signal::INT);
    let by_signal: End = |hodo| kill_process(hodo, Signal::TERM);
    for (script, end) in [
        (format!("{daemon} & exit 5"), by_key),
        (format!("(setsid {daemon} & exit) & wait; exit 5"), by_key),
        (format!("(setsid {daemon} & exit) & wait; exit 5"), by_signal),
    ] {
        let mut recording = Recording::start(&[], &script);
        let daemon = recording.process("pid");
        recording.wait_for_wait();
        end(Pid::from_child(&recording.child)).expect("hodo runs");
        assert_eq!(recording.code(), 5, "the command's own: {}", recording.log());
        let log = recording.log();
        let cut = format!("hodo: thread {daemon} was still running when the recording ended");
        assert!(log.lines().any(|line| line == cut), "{log}");
        let table = recording.table();
        let losses = table["loss"].as_array().unwrap();
        assert!(losses.len() == 1 && losses[0]["cause"] == "untraced", "{table}");
        test_kill_process(daemon).expect("the daemon lives");

        recording.folder.write("go", b"");
        let done = recording.folder.file("done");
        until("the daemon's end", || fs::read_to_string(&done).ok().filter(|text| text == "4\n"));
        assert_eq!(recording.log(), log, "the daemon says nothing that it would not say elsewhere");
        assert_eq!(recording.folder.names(), ["done", "go", "listed", "log", "perf.data", "pid"]);
    }
}
