//! Recordings of a part of what an emulated machine runs: filters, and snapshots when a latency is too long.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    machine::{listed, record_command as record, truth},
    recorded::compile,
    run::{Folder, hodo, rows},
};

/// Returns the number of instructions by function.
fn functions(recording: &str) -> BTreeMap<String, u64> {
    let report = hodo(&["report", "functions", "--format", "json", recording]).fine().json();
    let row = |row: &Value| {
        let name = row["function"].as_str().unwrap_or("").to_owned();
        (name, row["self_instructions"].as_u64().unwrap_or(0))
    };
    rows(&report).iter().map(row).collect()
}

/// Compiles `planted_waits.c`. The arguments of the program: what is slow, the number of rounds, the distance between
/// slow rounds, and the iterations of the loop of two instructions that makes them slow.
fn planted(folder: &Folder) -> String {
    compile(folder, "planted_waits.c", &["-O1", "-static"])
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn only_the_filtered_code_of_a_machine_is_recorded() {
    let folder = Folder::new();
    let program = planted(&folder);
    let filter = format!("filter handle @ {program}, filter vfs_write");
    let command = [&*program, "function", "100", "10", "50"];
    let Some((recording, ran)) = record(&folder, &["--filter", &filter], &command) else { return };
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));
    let functions = functions(&recording);
    // Other code calls these functions, and nothing of that code is recorded.
    let ran_any = functions.iter().filter(|(_, instructions)| **instructions > 0);
    let names: Vec<&str> = ran_any.map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["handle", "vfs_write"], "{functions:?}");
    let ran = record(&folder, &["--filter", "filter no_such_function"], &["true"]).expect("it is set up").1;
    assert!(ran.code == 2 && ran.stderr.contains("has no function no_such_function"), "{ran:?}");
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn only_one_process_of_a_machine_is_recorded() {
    let folder = Folder::new();
    let command = ["sh", "-c", "ls / | wc -l; true"];
    for (option, has, lacks) in [("--process=ls", "ls", "wc"), ("--process", "dash", "ls")] {
        let Some((recording, ran)) = record(&folder, &[option], &command) else { return };
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(listed(&recording), truth(&recording), "{option}");
        let report = hodo(&["report", "functions", "--format", "csv", &recording]).fine().stdout;
        let is_there = |name: &str| report.lines().any(|line| line.split(',').any(|cell| cell == name));
        assert!(is_there(has) && !is_there(lacks), "{option}: {report}");
    }
}

/// Of 400 rounds, 20 are slow: each has a snapshot with the loop that made it slow, and nothing else has one.
#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn a_trigger_catches_all_planted_latencies_and_nothing_else() {
    let folder = Folder::new();
    let program = planted(&folder);
    let of_function = format!("latency(function:handle@{program}) > 300us");
    for (mode, trigger) in [
        ("function", &*of_function),
        ("read", "latency(syscall:read) > 300us"),
        ("wakeup", "latency(wakeup:sleeper) > 300us"),
    ] {
        let options = ["--icount", "--snapshot=1M", "--trigger", trigger];
        let command = [&*program, mode, "400", "20", "250000"];
        let Some((recording, ran)) = record(&folder, &options, &command) else { return };
        assert!(ran.code == 0 && ran.stderr.contains(" 20 snapshots"), "{mode}: {ran:?}");
        let info = hodo(&["info", "--format", "json", &recording]).fine().json();
        let snapshots = info["snapshots"].as_array().expect("a list of snapshots");
        let latency = ["latency", "--function", "busy", "--outliers", "100", "--format", "json", &recording];
        let busy = hodo(&latency).fine().json();
        let busy = busy["outliers"].as_array().expect("executions");
        let figure = |execution: &Value, name: &str| execution[name].as_u64().expect("a number");
        let are_long = busy.iter().all(|execution| figure(execution, "instructions") >= 500_000);
        assert!(busy.len() == 20 && are_long, "{mode}: {busy:?}");
        for snapshot in snapshots {
            let (end, length) = (figure(snapshot, "time_ns"), figure(snapshot, "latency_ns"));
            // Times are exact to a few microseconds.
            let begin = end - length - 20_000;
            let within =
                busy.iter().filter(|execution| (begin..end).contains(&figure(execution, "begin_ns")));
            assert!(snapshot["trigger"] == trigger && length > 300_000 && within.count() == 1, "{snapshot}");
        }
    }
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn snapshots_of_a_machine_hold_what_ran() {
    let folder = Folder::new();
    let program = planted(&folder);
    let trigger = format!("latency(function:handle@{program}) > 20000instructions");
    let options = ["--icount", "--snapshot=64K", "--trigger", &trigger];
    let command = [&*program, "function", "60", "20", "20000"];
    let Some((recording, ran)) = record(&folder, &options, &command) else { return };
    assert!(ran.code == 0 && ran.stderr.contains(" 3 snapshots"), "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));
    // Without a trigger, the last part is written at the end.
    let (recording, ran) = record(&folder, &["--snapshot=64K"], &["true"]).expect("it is set up");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));
}

#[test]
fn wrong_triggers_are_rejected() {
    let folder = Folder::new();
    let wrong = |options: &[&str], expected: &str| {
        let Some((_, ran)) = record(&folder, options, &["true"]) else { return };
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{options:?}: {ran:?}");
    };
    wrong(
        &["--snapshot", "--trigger", "latency(wakeup) > 5 parsec"],
        "  latency(wakeup) > 5 parsec\n                      ^",
    );
    wrong(&["--trigger", "latency(wakeup) > 5us"], "--snapshot");
    wrong(&["--snapshot", "--trigger", "latency(wakeup) > 5instructions"], "need");
    wrong(
        &["--snapshot", "--trigger", "latency(syscall:raed) > 5us"],
        "the guest's kernel has no system call raed\n  latency(syscall:raed) > 5us\n                  ^",
    );
    let emulated = hodo(&[
        "record",
        "--engine",
        "emulate",
        "--snapshot",
        "--trigger",
        "latency(wakeup) > 5us",
        "--",
        "true",
    ]);
    assert!(emulated.code == 3 && emulated.stderr.contains("need"), "{emulated:?}");
}
