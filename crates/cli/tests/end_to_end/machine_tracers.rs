//! Software traces that are recorded in a machine beside its Intel PT.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::PathBuf,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    machine::record,
    run::{Folder, command, hodo},
};

/// An execution of the kernel's function that makes system calls.
#[derive(Debug)]
struct Call {
    begin: u64,
    end: u64,
    returned: bool,
}

/// Records with a tracer in the machine, and compares its events of system calls with the executions of the kernel's
/// function that makes them. With these options each instruction has a time.
fn events_lie_in_their_calls(tracer: &str, file: &str) {
    let folder = Folder::new();
    let options = ["--icount", "-e", "intel_pt/cyc/", "--with", tracer, "--with-events", "raw_syscalls"];
    let Some((recording, ran)) = record(&folder, &options, "echo $$; cat /proc/self/stat; exit 7") else {
        return;
    };
    if ran.stderr.contains("there is no") {
        eprintln!("skipped: there is no {tracer} here");
        return;
    }
    // The shell prints its number, and so does cat.
    let threads: Vec<u64> =
        ran.stdout.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert!(ran.code == 7 && threads.len() == 2, "{ran:?}");
    let events = folder.file(file);
    assert!(ran.stderr.contains(&format!("hodo report all {recording} {events}")), "{ran:?}");
    let both = |arguments: &[&str]| hodo(&[arguments, &["-q", &recording, &events]].concat()).fine();

    let found =
        both(&["latency", "--function", "do_syscall_64", "--by", "executions", "--format", "json"]).json();
    let mut calls: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    for row in found["rows"].as_array().expect("executions") {
        let thread = row[0].as_str().and_then(|thread| thread.rsplit('/').next()?.parse().ok());
        let (begin, time) = (row[2].as_u64().expect("a time"), row[3].as_u64());
        let end = time.map_or(u64::MAX, |time| begin + time);
        let returned = row[10] == "returned";
        calls.entry(thread.expect("a thread")).or_default().push(Call { begin, end, returned });
    }
    calls.values_mut().for_each(|calls| calls.sort_unstable_by_key(|call| call.begin));
    let first = calls.values().flatten().map(|call| call.begin).min().expect("a call");

    let listed = |chosen: &[&str]| -> Vec<u64> {
        let entries =
            both(&[&["script", "--events", "--format", "jsonl", "--event"], chosen].concat()).stdout;
        let events =
            entries.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        events.map(|event| event["ts"].as_u64().expect("a time")).collect()
    };
    // LTTng's events contain no thread, so the report's calls are compared, whose threads follow from the switches. It has only
    // calls that returned; and LTTng has neither an exit nor a name of call 15, rt_sigreturn.
    let has_no_threads = tracer == "lttng";
    let reported = |thread: u64, calls: &[&Call]| -> Vec<u64> {
        let report = both(&["report", "syscalls", "--by", "interval", "--format", "json"]).json();
        let rows = report["rows"].as_array().expect("calls").iter().filter(|row| row[3] == thread);
        let times = rows.map(|row| row[0].as_u64().expect("a time"));
        let is_own = |time: &u64| calls.iter().any(|call| (call.begin..=call.end).contains(time));
        let mut times: Vec<u64> = times
            .chain(listed(&["syscall_entry_unknown", "--where", "id == 15"]).into_iter().filter(is_own))
            .collect();
        times.sort_unstable();
        times
    };
    let mut compared = 0;
    for thread in threads {
        let calls: Vec<&Call> =
            calls[&thread].iter().filter(|call| !has_no_threads || call.returned).collect();
        let entered = match has_no_threads {
            true => reported(thread, &calls),
            false => listed(&["sys*_ent*", "--tid", &thread.to_string()]),
        };
        // The calls with which init becomes the shell precede the recording of Intel PT.
        let entered: Vec<u64> = entered.into_iter().filter(|&time| time >= first).collect();
        assert_eq!(entered.len(), calls.len(), "thread {thread}: {entered:?} {calls:?}");
        for (time, call) in entered.into_iter().zip(calls) {
            assert!((call.begin..=call.end).contains(&time), "thread {thread}: {time} is not in {call:?}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn events_of_ftrace_lie_in_the_calls_that_make_them() {
    events_lie_in_their_calls("ftrace", "machine.ftrace.dat");
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn events_of_perf_lie_in_the_calls_that_make_them() {
    events_lie_in_their_calls("perf", "machine.events.data");
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn events_of_lttng_lie_in_the_calls_that_make_them() {
    events_lie_in_their_calls("lttng", "machine.lttng");
}

#[test]
fn lttng_without_its_modules_says_how_to_get_them() {
    let folder = Folder::new();
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let machine = std::env::var_os("HODO_MACHINE").map_or(home.join(".cache/hodo/machine"), PathBuf::from);
    if !machine.join("qemu").exists() {
        eprintln!("skipped: no emulated machine is set up (cargo xtask setup --machine)");
        return;
    }
    // The same machine without LTTng.
    fs::create_dir_all(folder.path().join("machine/kernel")).expect("the folder is ours");
    for part in ["qemu", "kernel/vmlinux", "kernel/modules", "hodo-guest"] {
        let link = folder.path().join("machine").join(part);
        symlink(machine.join(part), link).expect("the folder is ours");
    }
    let out = folder.file("none.data");
    let mut hodo = command(&["record", "--engine", "machine", "--with", "lttng", "-o", &out, "--", "true"]);
    let ran = hodo.env("HODO_MACHINE", folder.file("machine")).output().expect("hodo starts");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(3), "{said}");
    let helps = ["apt install lttng-tools", "cargo xtask setup --machine"];
    assert!(helps.iter().any(|help| said.contains(help)), "{said}");
}

/// Whether a process has this text in its command line.
fn runs(text: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(text))
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn what_tracers_recorded_before_an_interrupt_is_kept() {
    let folder = Folder::new();
    let (out, both) = (folder.file("machine.data"), ["--with", "ftrace,perf"]);
    let script = ["-o", &out, "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let child = command(&[&["record", "--engine", "machine"], &both[..], &script].concat()).spawn();
    let mut child = child.expect("hodo starts");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    output.read_line(&mut line).expect("it is piped");
    if line == "ready\n" {
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    }
    let ran = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if line != "ready\n" {
        assert!(said.contains("xtask setup --machine") || said.contains("there is no perf"), "{said}");
        eprintln!("skipped: {said}");
        return;
    }
    assert_eq!(ran.status.signal(), Some(Signal::INT.as_raw()), "{said}");
    // The spool's name is in the command lines of what the recorder starts.
    assert!(!runs(&folder.file(".hodo-")), "{said}");
    assert_eq!(folder.names(), ["machine.data", "machine.events.data", "machine.ftrace.dat"], "{said}");
    for file in ["machine.events.data", "machine.ftrace.dat"] {
        let events = ["report", "count", "-q", "--format", "json", "--event", "sched_switch"];
        let count = hodo(&[&events[..], &[&folder.file(file)]].concat()).fine().json();
        assert!(count["summary"]["events"].as_u64() > Some(0), "{file}: {count}");
        let clocks = hodo(&["info", "--format", "json", &out, &folder.file(file)]).fine().json();
        assert!(!clocks.to_string().contains("\"unrelated\""), "{file}: {clocks}");
    }
}
