//! Counts by block and line, samples, and parts of a recording, for known programs.

use serde_json::Value;

use crate::{
    program,
    recorded::{build, can_record, record, report},
    run::{Folder, hodo, rows},
};

/// Returns the summary and the rows of a report, with rows as objects.
pub(crate) fn table(kind: &str, options: &[&str], recording: &str) -> (Value, Vec<Value>) {
    let json = hodo(&[&["report", kind, "--format", "json"], options, &[recording]].concat()).fine().json();
    (json["summary"].clone(), rows(&json))
}

/// Compiles a program of the lab without optimisation, and records it.
pub(crate) fn record_source(folder: &Folder, source: &str, options: &[&str]) -> String {
    let program = folder.file("program");
    let source = format!("{}/../../lab/workloads/{source}", env!("CARGO_MANIFEST_DIR"));
    let compiled = std::process::Command::new("cc").args(["-O0", "-g", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc compiles {source}");
    let (recording, ran) = record(folder, options, &[&program, "10"]);
    ran.fine();
    recording
}

#[test]
fn blocks_of_a_known_program() {
    if !can_record() {
        return;
    }
    const ROUNDS: u32 = 1001;
    let folder = Folder::new();
    let program = build(&folder, ROUNDS, 1);
    let (recording, _) = record(&folder, &["-e", "intel_pt/psb_period=0/u"], &[&program]);
    let (summary, rows) = table("blocks", &["--strict"], &recording);
    let executed = program::addresses(program::ENTRY, ROUNDS);
    assert_eq!(summary["instructions"], executed.len());
    // Offsets of the program's two branches, see `program::code`.
    const SKIP: u64 = 13;
    const LOOP: u64 = 18;
    // However the trace splits the program into blocks, each instruction keeps its count.
    for (offset, taken, not_taken) in [(SKIP, ROUNDS / 2, ROUNDS.div_ceil(2)), (LOOP, ROUNDS - 1, 1)] {
        let ends_there = |row: &&Value| {
            let address = row["address"].as_u64().unwrap();
            !row["taken"].is_null() && (program::ENTRY..program::ENTRY + offset + 1).contains(&address)
        };
        let (mut sum_taken, mut sum_not_taken) = (0, 0);
        for row in rows.iter().filter(ends_there) {
            let start = row["address"].as_u64().unwrap() - program::ENTRY;
            // A block that begins behind the first branch ends at the second, others at the first.
            if (offset == LOOP) == (start > SKIP) {
                sum_taken += row["taken"].as_u64().unwrap();
                sum_not_taken += row["not_taken"].as_u64().unwrap();
            }
        }
        assert_eq!((sum_taken, sum_not_taken), (taken.into(), not_taken.into()), "{offset}: {rows:?}");
    }
}

#[test]
fn samples_are_as_many_as_fit() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 5000, 1);
    let (recording, _) = record(&folder, &["-e", "intel_pt/psb_period=0/u"], &[&program]);
    let instructions = program::addresses(0, 5000).len() as u64;
    for period in [1, 7, 1000, 1_000_000] {
        let (summary, rows) = table("functions", &["--every", &format!("{period}i")], &recording);
        assert_eq!(summary["samples"], instructions / period, "{period}");
        assert_eq!(summary["sample_period_instructions"], period);
        let sum: u64 = rows.iter().map(|row| row["self_samples"].as_u64().unwrap()).sum();
        assert_eq!(sum, instructions / period, "{period}");
    }
    // Samples of parts of the recording add up to those of the whole.
    let samples = |span: &str| {
        let (summary, _) = table("functions", &["--every", "7i", "--time", span], &recording);
        summary["samples"].as_u64().unwrap()
    };
    assert_eq!(["0%-25%", "25%-60%", "60%-100%"].map(samples).iter().sum::<u64>(), instructions / 7);
    let (summary, _) = table("functions", &["--every", "1us"], &recording);
    let time = summary["time_ns"].as_u64().unwrap();
    assert!(summary["samples"].as_u64().unwrap().abs_diff(time / 1000) <= 1, "{summary}");
}

#[test]
fn lines_of_a_known_program() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let (summary, rows) = table("lines", &["--strict"], &recording);
    let (by_function, functions) = table("functions", &["--strict"], &recording);
    assert_eq!(summary["instructions"], by_function["instructions"]);
    assert_eq!(summary["time_ns"], by_function["time_ns"]);
    let calls = functions.iter().find(|row| row["function"] == "fib").unwrap()["calls"].as_u64().unwrap();
    let is_statement = |row: &&Value| row["line"].as_str().is_some_and(|line| line.ends_with("/fib.c:7"));
    let statement = rows.iter().find(is_statement).unwrap();
    assert_eq!(statement["executions"], calls, "the one statement of fib");
    assert_eq!(statement["function"], "fib");
}

#[test]
fn one_call_of_a_function() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let instructions =
        |call: &str| report(&["--call", call], &recording)["summary"]["instructions"].as_u64().unwrap();
    let (_, functions) = table("functions", &[], &recording);
    let main = functions.iter().find(|row| row["function"] == "main").unwrap();
    assert_eq!(main["total_instructions"], instructions("main#1"));
    let (first, second) = (instructions("fib#1"), instructions("fib#2"));
    assert!(second < first, "the second is a part of the first");
    assert_eq!(instructions("fib#1..2"), first);
    let script = hodo(&["script", "--insns", "--fields", "sym", "--call", "fib#2", &recording]).fine();
    assert_eq!(script.stdout.lines().count() as u64, second);
    assert!(script.stdout.starts_with("fib+0x0\n"), "{}", &script.stdout[..100]);
    let calls = hodo(&["script", "--calls", "--format", "jsonl", "--call", "fib#2", &recording]).fine();
    let outermost: Value = serde_json::from_str(calls.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&outermost["function"], &outermost["instructions"]), (&"fib".into(), &second.into()));
    for options in [&["-j1"][..], &["-j2", "--chunk-size", "1K"]] {
        let again =
            [&["script", "--insns", "--fields", "sym", "--call", "fib#2", &recording], options].concat();
        assert!(hodo(&again).fine().stdout == script.stdout, "{options:?}");
    }
    for (call, expected) in [
        ("nothing", "no function"),
        ("fib#0", "from 1"),
        ("fib#9..3", "from 1"),
        ("main#2", "no thread calls main"),
    ] {
        let ran = hodo(&["report", "functions", "--call", call, &recording]);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{call}: {ran:?}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 100, 1);
    let (recording, _) = record(&folder, &[], &[&program]);
    for (option, value, expected) in [
        ("--tid", "1", "no matching thread"),
        ("--pid", "1", "no matching thread"),
        ("--time", "2,1", "ends before it begins"),
        ("--time", "500,600", "outside of the recording"),
    ] {
        let ran = hodo(&["report", "functions", option, value, &recording]);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{option} {value}: {ran:?}");
    }
}

#[test]
fn an_annotated_function() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let annotation = hodo(&["annotate", "fib", "--format", "json", &recording]).fine().json();
    let (_, functions) = table("functions", &[], &recording);
    let fib = functions.iter().find(|row| row["function"] == "fib").unwrap();
    assert_eq!(annotation["instructions"], fib["self_instructions"]);
    assert_eq!(annotation["time_ns"], fib["self_time_ns"]);
    let code = annotation["code"].as_array().unwrap();
    let count = |instruction: &Value, what: &str| instruction[what].as_u64().unwrap();
    assert_eq!(
        code.iter().map(|instruction| count(instruction, "executions")).sum::<u64>(),
        annotation["instructions"]
    );
    assert_eq!(code[0]["executions"], fib["calls"]);
    for branch in code.iter().filter(|instruction| !instruction["taken"].is_null()) {
        assert_eq!(
            count(branch, "taken") + count(branch, "not_taken"),
            count(branch, "executions"),
            "{branch}"
        );
    }
    let statement = annotation["lines"].as_array().unwrap().iter().find(|line| line["line"] == 7).unwrap();
    assert_eq!(statement["executions"], fib["calls"]);
    assert!(statement["source"].as_str().unwrap().contains("fib(n - 1)"), "{statement}");
    let text = hodo(&["annotate", "fib", "--color", "always", &recording]).fine().stdout;
    assert!(text.contains("fib.c:7") && text.contains("\u{1b}["), "{text}");
    assert!(annotation["cycles"].is_null(), "nothing counted cycles: {}", annotation["cycles"]);
    let moved = ["annotate", "fib", "--prefix", "/=/nowhere/", "--source-dir", "/nowhere", &recording];
    assert!(hodo(&moved).fine().stderr.is_empty(), "the path itself is tried last");
    assert_eq!(hodo(&["annotate", "no_such_function", &recording]).code, 2);
}

/// An instruction of the emulated processor takes one cycle.
#[test]
fn instructions_per_cycle() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = build(&folder, 1000, 1);
    let (recording, _) = record(&folder, &["-e", "intel_pt/cyc/u"], &[&program]);
    for kind in ["blocks", "lines"] {
        let (summary, rows) = table(kind, &[], &recording);
        let (instructions, cycles) =
            (summary["instructions"].as_u64().unwrap(), summary["cycles"].as_u64().unwrap());
        // Instructions before the first cycle count have no cycles.
        assert!(cycles <= instructions && cycles > instructions - 50, "{kind}: {summary}");
        assert!((summary["ipc"].as_f64().unwrap() - 1.0).abs() < 0.01, "{kind}: {summary}");
        assert!(rows.iter().all(|row| row["cycles"].as_u64().is_some()), "{kind}: {rows:?}");
    }
    let recording = record_source(&folder, "fib.c", &["-e", "intel_pt/cyc/u"]);
    let annotation = hodo(&["annotate", "fib", &recording]).fine().stdout;
    assert!(annotation.lines().next().unwrap().contains("cycles, IPC 1.0"), "{annotation}");
}

/// `report resolution` counts the trace bytes of a whole recording, but not those of a span, and intervals are as long
/// as the period of the packets allows.
#[test]
fn clock_readings_of_a_known_program() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let event = ["-e", "intel_pt/mtc_period=0,psb_period=0/u"];
    let recording = record_source(&folder, "fib.c", &event);
    let (summary, rows) = table("resolution", &["--strict"], &recording);
    let info = hodo(&["info", "--format", "json", &recording]).fine().json();
    let sum = |list: &str, field: &str| -> u64 {
        info[list].as_array().unwrap().iter().map(|entry| entry[field].as_u64().unwrap()).sum()
    };
    assert_eq!(summary["instructions"], sum("truth", "instructions"));
    assert_eq!(summary["calls"], sum("truth", "calls"));
    assert_eq!(summary["trace_bytes"], sum("streams", "bytes"));
    assert_eq!(table("resolution", &["--time", "10%-90%"], &recording).0["trace_bytes"], Value::Null);
    assert_eq!(rows[0]["measure"], "interval_ns");
    // One instruction takes a nanosecond, so a tick of 40 ns and the branches that wait for a packet bound the median.
    let median = rows[0]["p50"].as_u64().unwrap();
    assert!((20..400).contains(&median), "{rows:?}");

    let part = |number: &str| {
        let out = folder.file(&format!("{}.part", &number[..1]));
        hodo(&["fold", "resolution", "--part", number, "-o", &out, &recording]).fine();
        out
    };
    let merged = hodo(&["merge", "--format", "json", &part("1/2"), &part("2/2")]).fine().json();
    assert_eq!(merged, hodo(&["report", "resolution", "--format", "json", &recording]).fine().json());
}
