//! The hardware trace of a board's slave beside its own events: both say the same about one run.

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::{
    profiles::table,
    run::{Folder, command, hodo, rows},
};

/// Nanoseconds between two times of the hardware trace, at most, while the hart runs; with a margin for a busy machine.
const RESOLUTION: i64 = 20_000;

/// Returns whether boards can be recorded here; prints a message if not.
fn can_record(folder: &Folder) -> bool {
    let qemu = Command::new("qemu-system-riscv64").arg("--version").output().is_ok();
    let mut record = command(&["record", "-q", "--engine", "board", "--board", "time=100ms"]);
    let programs = record.arg(folder.file("trial")).output().is_ok_and(|ran| ran.status.success());
    if !(qemu && programs) {
        eprintln!("skipped: a board can't be recorded (cargo xtask setup --board)");
    }
    qemu && programs
}

fn events(input: &str, name: &str) -> Vec<Value> {
    let words = ["script", "--events", "-q", "--format", "jsonl", input];
    let listing = hodo(&words).fine().stdout;
    let all = listing.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["name"] == name).collect()
}

/// When each execution of a function began, in order. Unknown where decoding begins with its first instruction: an ETMv4 has no
/// time there.
fn begins(function: &str, input: &str) -> Vec<Option<i64>> {
    let words =
        ["latency", "--function", function, "--by", "executions", "--limit", "1000000", "--format", "json"];
    let table = hodo(&[&words[..], &[input]].concat()).fine().json();
    let mut begins: Vec<(u64, Option<i64>)> = rows(&table)
        .iter()
        .map(|row| (row["first_instruction"].as_u64().expect("a number"), row["begin_ns"].as_i64()))
        .collect();
    begins.sort_unstable();
    begins.into_iter().map(|(_, begin)| begin).collect()
}

#[test]
fn a_slaves_instructions_and_events_are_on_one_timeline() {
    let folder = Folder::new();
    if !can_record(&folder) {
        return;
    }
    let traces = folder.file("traces");
    let settings = "slaves=1,cortex-m3=1,time=2s,trace=hardware";
    hodo(&["record", "-q", "--engine", "board", "--board", settings, &traces]).fine();
    // A Cortex-M3 does not see the master's clock, and so has no true times.
    for (slave, has_truth) in [("slave-0", true), ("slave-1", false)] {
        compare(&folder, &format!("{traces}/master"), &format!("{traces}/{slave}"), has_truth);
    }
}

/// Each event `tick` was traced by one call of the function, on the slave's clock and on the master's.
fn compare(folder: &Folder, master: &str, slave: &str, has_truth: bool) {
    assert!(Path::new(slave).join("hardware/trace.data").exists());
    let ticks = events(slave, "tick");
    assert!(ticks.len() > 200);
    let (summary, functions) = table("functions", &[], slave);
    assert_eq!(summary["gaps"], 0);
    let calls = |name: &str| functions.iter().find(|row| row["function"] == name).unwrap()["calls"].as_u64();
    assert_eq!(calls("slave_ticked"), Some(ticks.len() as u64));

    // By the slave's own clock, each event is where its call begins. The emulator may have lost its processor in between.
    let near = |ticks: &[i64], calls: &[Option<i64>], margin: i64| {
        assert_eq!(ticks.len(), calls.len());
        let distances = ticks.iter().zip(calls).filter_map(|(tick, begin)| Some(tick - (*begin)?));
        let count = distances.filter(|distance| distance.abs() <= margin).count();
        assert!(count * 100 >= ticks.len() * 98, "{count} of {} within {margin} ns", ticks.len());
    };
    let times: Vec<i64> = ticks.iter().map(|event| event["ts"].as_i64().unwrap()).collect();
    near(&times, &begins("slave_ticked", slave), RESOLUTION);

    // On the master's clock, each event is there, or its true time, but for the width of the timeline.
    let experiment = folder.file("board.toml");
    hodo(&["sync", "-q", "-o", &experiment, master, slave]).fine();
    let info = hodo(&["info", "--format", "json", &experiment]).fine().json();
    let clocks = info["clocks"].as_array().unwrap_or_else(|| panic!("{info}"));
    let flow = clocks.iter().find(|clock| clock["trace"] == "control flow").unwrap();
    assert_eq!(flow["relation"], "synchronised", "{flow}");
    let width = flow["half_width_ns"].as_i64().unwrap();
    let truth = |event: &Value| event["context"]["truth"].as_i64().unwrap();
    let truths: Vec<i64> = match has_truth {
        true => ticks.iter().map(truth).collect(),
        false => events(&experiment, "tick").iter().map(|event| event["ts"].as_i64().unwrap()).collect(),
    };
    near(&truths, &begins("slave_ticked", &experiment), RESOLUTION + width);
}
