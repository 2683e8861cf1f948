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

/// Begin and end of each execution of a function.
fn executions(function: &str, inputs: &[&str]) -> Vec<(i64, i64)> {
    let words = ["latency", "--function", function, "--by", "executions", "--limit", "0", "--format", "json"];
    let tables = hodo(&[&words[..], inputs].concat()).fine().json();
    let table = match &tables {
        Value::Array(tables) => tables.iter().find(|table| table["table"] == "executions").unwrap(),
        table => table,
    };
    let number = |row: &Value, name: &str| row[name].as_i64().unwrap_or_else(|| panic!("{name}: {row}"));
    let span = |row: &Value| {
        let begin = number(row, "begin_ns");
        (begin, begin + number(row, "time_ns"))
    };
    rows(table).iter().map(span).collect()
}

#[test]
fn a_slaves_instructions_and_events_are_on_one_timeline() {
    let folder = Folder::new();
    if !can_record(&folder) {
        return;
    }
    let traces = folder.file("traces");
    let settings = "slaves=1,time=2s,trace=hardware";
    hodo(&["record", "-q", "--engine", "board", "--board", settings, &traces]).fine();
    let (master, slave) = (format!("{traces}/master"), format!("{traces}/slave-0"));
    assert!(Path::new(&slave).join("hardware/trace.data").exists());

    // Each event `tick` was traced by one call of the function.
    let ticks = events(&slave, "tick");
    assert!(ticks.len() > 200);
    let (summary, functions) = table("functions", &[], &slave);
    assert_eq!(summary["gaps"], 0);
    let calls = |name: &str| functions.iter().find(|row| row["function"] == name).unwrap()["calls"].as_u64();
    assert_eq!(calls("slave_ticked"), Some(ticks.len() as u64));

    // By the slave's own clock, each event lies in its call.
    let inside = |ticks: &[i64], calls: &[(i64, i64)], margin: i64| {
        assert_eq!(ticks.len(), calls.len());
        let outside = ticks.iter().zip(calls);
        outside.filter(|(tick, (begin, end))| **tick < begin - margin || **tick > end + margin).count()
    };
    let times =
        |events: &[Value]| -> Vec<i64> { events.iter().map(|event| event["ts"].as_i64().unwrap()).collect() };
    assert_eq!(inside(&times(&ticks), &executions("slave_ticked", &[&slave]), RESOLUTION), 0);

    // On the master's clock, the true time of each event lies in its call, but for the width of the timeline.
    let experiment = folder.file("board.toml");
    hodo(&["sync", "-q", "-o", &experiment, &master, &slave]).fine();
    let info = hodo(&["info", "--format", "json", &experiment]).fine().json();
    let clocks = info["clocks"].as_array().unwrap_or_else(|| panic!("{info}"));
    let flow = clocks.iter().find(|clock| clock["trace"] == "control flow").unwrap();
    assert_eq!(flow["relation"], "synchronised", "{flow}");
    let width = flow["half_width_ns"].as_i64().unwrap();
    let truths: Vec<i64> = ticks.iter().map(|event| event["fields"]["truth"].as_i64().unwrap()).collect();
    let calls = executions("slave_ticked", &[&experiment]);
    assert_eq!(inside(&truths, &calls, RESOLUTION + width), 0, "half width {width} ns");
}
