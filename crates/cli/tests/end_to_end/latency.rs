//! `hodo latency` of programs of which everything is known.

use std::fs;

use hodo_formats::perf::layout::{misc, record as record_type};
use hodo_intel_pt::packet::{IpPayload, Packet};
use hodo_repack::{RawRecord, Recorded, file};
use serde_json::Value;

use crate::{
    recorded::{can_record, compile, record},
    run::{Folder, fixture, hodo},
};

/// Builds and records `planted.c` with this number of calls, of which one in `distance` is slow.
pub(crate) fn planted(folder: &Folder, calls: &str, distance: &str) -> String {
    let program = compile(folder, "planted.c", &["-O1", "-g", "-fcf-protection=none"]);
    let (recording, ran) = record(folder, &[], &[&program, calls, distance]);
    ran.fine();
    recording
}

fn latency(arguments: &[&str], recording: &str) -> Value {
    hodo(&[&["latency", "--format", "json"], arguments, &[recording]].concat()).fine().json()
}

/// Instructions of a fast execution, and of those that each cause slows down.
const FAST: u64 = 4;
const SLOW: [u64; 3] = [4010, 2011, 808];

#[test]
fn planted_executions_are_found_and_explained_exactly() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = planted(&folder, "20000", "1000");
    let arguments = ["--function", "serve", "--outliers", "20", "--compare"];
    let found = latency(&arguments, &recording);
    let summary = &found["summary"];
    assert_eq!(summary["count"], 20_000);
    assert_eq!(["unmatched", "incomplete", "unwound"].map(|name| summary[name].as_u64().unwrap()), [0; 3]);
    assert_eq!(
        summary["instructions_total"],
        20_000 * FAST + 7 * (SLOW[0] - FAST) + 7 * (SLOW[1] - FAST) + 6 * (SLOW[2] - FAST)
    );
    assert_eq!((&summary["instructions_p50"], &summary["instructions_max"]), (&FAST.into(), &SLOW[0].into()));
    let outliers = found["outliers"].as_array().unwrap();
    let mut reported: Vec<(u64, u64)> = outliers
        .iter()
        .map(|outlier| (outlier["number"].as_u64().unwrap(), outlier["instructions"].as_u64().unwrap()))
        .collect();
    reported.sort_unstable();
    let expected: Vec<(u64, u64)> =
        (0..20).map(|slow| (slow * 1000 + 501, SLOW[slow as usize % 3])).collect();
    assert_eq!(reported, expected);
    for outlier in outliers {
        let tree = outlier["tree"].as_array().unwrap();
        assert_eq!(tree[0]["instructions"], outlier["instructions"]);
        let callee = tree
            .get(1)
            .map(|node| (node["function"].as_str().unwrap(), node["instructions"].as_u64().unwrap()));
        let expected = match outlier["instructions"].as_u64() {
            Some(4010) => Some(("grow", 4002)),
            Some(2011) => Some(("flush", 2004)),
            _ => None,
        };
        assert_eq!(callee, expected);
    }
    let paths = found["compare"]["rows"].as_array().unwrap();
    let path = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap();
        let extra = ["executions", "extra_min", "extra_max", "extra_self_min", "extra_self_max"].map(number);
        (row["function"].as_str().unwrap().to_owned(), extra)
    };
    let paths: Vec<_> = paths.iter().map(path).collect();
    let expected = [
        ("serve".to_owned(), [20, 804, 4006, 3, 804]),
        ("grow".to_owned(), [7, 4002, 4002, 4002, 4002]),
        ("flush".to_owned(), [7, 2004, 2004, 2, 2]),
        ("copy".to_owned(), [7, 2002, 2002, 2002, 2002]),
    ];
    assert_eq!(paths, expected);
    let cause = |row: &Value| {
        let numbers = ["executions", "extra_min", "extra_max"].map(|name| row[name].as_u64().unwrap());
        (row["path"].as_str().unwrap().to_owned(), numbers)
    };
    let causes: Vec<_> = found["causes"]["rows"].as_array().unwrap().iter().map(cause).collect();
    let expected = [
        ("serve → grow".to_owned(), [7, 4006, 4006]),
        ("serve → flush → copy".to_owned(), [7, 2007, 2007]),
        ("serve".to_owned(), [6, 804, 804]),
    ];
    assert_eq!(causes, expected);
}

/// Adds context switches to a recording of one thread, which is off the CPU between two times.
fn with_absence(folder: &Folder, recording: &str, [from, to]: [u64; 2]) -> String {
    let mut recorded = Recorded::read(&fs::read(recording).expect("a recording"));
    let begins = recorded.records.iter().position(|kept| kept.kind == record_type::SWITCH);
    let begins = begins.expect("the thread begins");
    let switch = |misc, time: u64| {
        let mut body = recorded.records[begins].body.clone();
        // The time follows the process and the thread.
        body[8..16].copy_from_slice(&time.to_le_bytes());
        RawRecord::new(record_type::SWITCH, misc, body)
    };
    let switches = [switch(misc::SWITCH_OUT, from), switch(0, to)];
    recorded.records.splice(begins + 1..begins + 1, switches);
    folder.write("absent.data", &file(&recorded))
}

#[test]
fn time_off_the_cpu_is_reported_apart() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = planted(&folder, "300", "100");
    let arguments = ["--function", "serve", "--outliers", "3", "--compare"];
    let before = latency(&arguments, &recording);
    assert!(before["compare"]["summary"].get("extra_time_waiting_ns").is_none(), "{before}");
    let grows =
        before["outliers"].as_array().unwrap().iter().find(|outlier| outlier["number"] == 51).unwrap();
    let begin = grows["begin_ns"].as_u64().unwrap();
    let absent = with_absence(&folder, &recording, [begin + 1000, begin + 3000]);
    let after = latency(&arguments, &absent);
    let [time_before, time_after] = [&before, &after].map(|found| {
        let time = |name: &str| found["compare"]["summary"][name].as_i64().unwrap();
        ["extra_time_own_code_ns", "extra_time_callees_ns"].map(time)
    });
    assert_eq!(after["compare"]["summary"]["extra_time_waiting_ns"], 2000);
    assert_eq!(time_after, [time_before[0], time_before[1] - 2000]);
    let waiting = |row: &Value| {
        (row["function"].as_str().unwrap().to_owned(), row["extra_self_waiting_ns"].as_i64().unwrap())
    };
    let waited: Vec<_> = after["compare"]["rows"].as_array().unwrap().iter().map(waiting).collect();
    let expected = [("serve", 0), ("grow", 2000), ("flush", 0), ("copy", 0)];
    assert_eq!(waited, expected.map(|(function, time)| (function.to_owned(), time)));
}

#[test]
fn a_marker_that_never_occurs_has_near_names() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = planted(&folder, "300", "1000");
    let note = |from: &str| {
        hodo(&["latency", "--format", "csv", "--from", from, "--to", "exit:serve", &recording]).fine().stderr
    };
    let expected = [
        ("xadd", "xadd never ran; the nearest that did: add"),
        ("syscall; incq", "each of its instructions ran, but never all of them in this order"),
        ("incq %rax,%rbx", "its instruction ran, but never with this prefix and these operands"),
        ("entry:abort", "abort never ran; `hodo report functions` lists what did"),
    ];
    for (from, why) in expected {
        let note = note(from);
        assert!(note.contains(&format!("the marker of --from never occurs: {why}\n")), "{note}");
    }
}

#[test]
fn markers_measure_what_lies_between() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = planted(&folder, "300", "100");
    let figures = |arguments: &[&str]| {
        let found = latency(arguments, &recording);
        ["count", "unmatched", "instructions_max"].map(|name| found["summary"][name].as_u64().unwrap())
    };
    // From the first of the four instructions of a fast execution to its return.
    assert_eq!(figures(&["--from", "entry:serve", "--to", "exit:serve"]), [300, 0, 4010]);
    assert_eq!(figures(&["--from", "entry:grow", "--to", "exit:grow"]), [1, 0, 4002]);
    // A sequence of instructions that crosses the border of two blocks.
    assert_eq!(figures(&["--from", "incq; test %edi,%edi; jne", "--to", "exit:serve"]), [300, 0, 4007]);
    assert_eq!(figures(&["--from", "entry:grow", "--to", "exit:serve"]), [1, 299, 4003]);
    let by_line = latency(&["--by", "thread", "--from", "planted.c:61", "--to", "exit:main"], &recording);
    assert_eq!(by_line["summary"]["from_passed"], 1, "{by_line}");
    let pair = folder.write("pairs.toml", b"[growth]\nfrom = 'entry:grow'\nto = 'exit:grow'\n");
    assert_eq!(figures(&["--pairs", &pair, "--pair", "growth"]), [1, 0, 4002]);
}

#[test]
fn parts_of_a_recording_give_the_same_latencies() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = planted(&folder, "20000", "1000");
    let questions: [&[&str]; 2] = [&["--function", "serve"], &["--from", "incq; test", "--to", "ret"]];
    for question in questions {
        let whole =
            hodo(&[&["latency", "--by", "executions", "--format", "csv"], question, &[&recording]].concat())
                .fine();
        for chunk_size in ["1K", "5K"] {
            let arguments =
                ["latency", "--by", "executions", "--format", "csv", "--chunk-size", chunk_size, "-j", "2"];
            assert_eq!(hodo(&[&arguments, question, &[&recording]].concat()).fine().stdout, whole.stdout);
        }
        let mut parts = Vec::new();
        for part in ["1/3", "2/3", "3/3"] {
            let file = folder.file(&part.replace('/', "-"));
            let arguments = ["fold", "latency", "--chunk-size", "1K", "--part", part, "-o", &file];
            hodo(&[&arguments, question, &[&recording]].concat()).fine();
            parts.push(file);
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let merged = hodo(&[&["merge", "--by", "executions", "--format", "csv"], &parts[..]].concat()).fine();
        assert_eq!(merged.stdout, whole.stdout);
    }
}

#[test]
fn what_is_no_marker_is_shown_with_a_caret() {
    let ran = hodo(&["latency", "--from", "pushf; clli", "--to", "sti", "nothing.data"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("there is no instruction `clli`") && ran.stderr.ends_with("         ^\n"),
        "{ran:?}"
    );
}

#[test]
fn latencies_of_kernel_traces_equal_their_reports() {
    let mut compared = 0;
    for trace in ["ctf/lttng2.13-kernel", "ftrace/small-6.dat", "perf/events.data"] {
        let trace = fixture(trace);
        let rows = |kind: &str| {
            let table = hodo(&["report", kind, "--format", "json", &trace]).fine().json();
            table["rows"].as_array().unwrap().clone()
        };
        for row in rows("syscalls").iter().take(4) {
            let found = latency(&["--syscall", row[0].as_str().unwrap()], &trace);
            let summary = &found["summary"];
            // Rows of `syscalls` begin with name, count and total; the maximum is the last duration.
            let reported = [&summary["count"], &summary["time_total_ns"], &summary["time_max_ns"]];
            assert_eq!(reported, [&row[1], &row[2], &row[8]], "{row}");
            let executions = ["--by", "executions", "--format", "csv"];
            let call = ["latency", "--syscall", row[0].as_str().unwrap(), &trace];
            let all = hodo(&[&call[..], &executions].concat()).fine().stdout;
            let thread = all.lines().nth(1).unwrap().split(',').next().unwrap().to_owned();
            let own = hodo(&[&call[..], &executions, &["--tid", &thread]].concat()).fine().stdout;
            let of_thread = |text: &str| -> Vec<String> {
                let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{thread},")));
                lines.filter_map(|line| Some(line.split_once(',')?.1.to_owned())).collect()
            };
            assert_eq!(own.lines().count(), 1 + of_thread(&own).len());
            assert_eq!(of_thread(&own), of_thread(&all), "{row}");
            compared += 1;
        }
        for row in rows("irq").iter().filter(|row| row[0] == "hard") {
            // Rows of `irq` begin with kind, number, name, count and total.
            let found = latency(&["--irq", &row[1].to_string()], &trace);
            let summary = &found["summary"];
            assert_eq!([&summary["count"], &summary["time_total_ns"]], [&row[3], &row[4]], "{row}");
            let condition =
                format!("irq_handler_entry where irq == {0} -> irq_handler_exit where irq == {0}", row[1]);
            let same = latency(&["--period", &condition, "--match", "irq,cpu"], &trace);
            assert_eq!(same["summary"]["time_total_ns"], row[4], "{row}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn states_of_threads_are_intervals() {
    for trace in ["ctf/lttng2.13-kernel", "ftrace/small-6.dat", "perf/events.data"] {
        let trace = fixture(trace);
        let report = hodo(&["report", "states", "-q", "--format", "json", &trace]).fine().json();
        for (state, column) in [("running", "running_ns"), ("runnable", "runnable_ns")] {
            let arguments = ["latency", "--state", state, "--by", "executions", "--format", "json", &trace];
            let all = hodo(&arguments).fine().json();
            let column_of = |name: &str| {
                all["columns"].as_array().unwrap().iter().position(|column| column["name"] == name).unwrap()
            };
            let (time, thread, ended) = (column_of("time_ns"), column_of("thread"), column_of("ended"));
            let rows = all["rows"].as_array().unwrap();
            let total: u64 = rows.iter().map(|row| row[time].as_u64().unwrap()).sum();
            assert_eq!(report["summary"][column], total, "{trace} {state}");
            let returned = rows.iter().filter(|row| row[ended] == "returned").count() as u64;
            let found = latency(&["--state", state], &trace);
            assert!(returned > 0 && found["summary"]["count"] == returned, "{trace} {state}");
            let tid = rows[0][thread].as_str().unwrap();
            let own = rows.iter().filter(|row| row[thread] == tid && row[ended] == "returned").count() as u64;
            let found = latency(&["--state", state, "--tid", tid], &trace);
            assert_eq!(found["summary"]["count"], own, "{trace} {state} {tid}");
        }
        let blocked = latency(&["--state", "blocked"], &trace)["summary"]["time_total_ns"].as_u64().unwrap();
        let waits = ["interruptible", "uninterruptible", "idle", "stopped"];
        let each =
            waits.map(|state| latency(&["--state", state], &trace)["summary"]["time_total_ns"].as_u64());
        assert_eq!(blocked, each.into_iter().flatten().sum::<u64>(), "{trace}");
    }
}

#[test]
fn what_a_gap_cuts_is_in_no_percentile() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    planted(&folder, "10", "10");
    let program = folder.file("planted");
    let (recording, ran) = record(&folder, &["--overflow", "150000..150500"], &[&program, "20000", "1000"]);
    ran.fine();
    let whole = &latency(&["--from", "entry:main", "--to", "exit:main"], &recording)["summary"];
    // The end has lost its begin.
    assert_eq!(["count", "incomplete", "unmatched"].map(|name| whole[name].as_u64().unwrap()), [0, 1, 1]);
    assert!(whole.get("instructions_max").is_none(), "{whole}");
    let each = &latency(&["--function", "serve"], &recording)["summary"];
    let counted = each["count"].as_u64().unwrap();
    assert!((19_900..20_000).contains(&counted), "{each}");
    assert!(SLOW.map(serde_json::Value::from).contains(&each["instructions_max"]), "{each}");
}

#[test]
fn the_interrupt_flag_shows_which_popf_turned_interrupts_on() {
    let folder = Folder::new();
    // cli; popf; nop; popf; nop; syscall
    let code = format!("{}@0x1000", folder.write("code.bin", &[0xfa, 0x9d, 0x90, 0x9d, 0x90, 0x0f, 0x05]));
    let interrupts_enabled = |interrupt_flag| Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag };
    let at = |address| Packet::Fup(IpPayload::Full(address));
    let changes = [interrupts_enabled(false), at(0x1001), interrupts_enabled(true), at(0x1004)];
    let figures = |changes: &[Packet]| {
        let begin = [Packet::Psb, interrupts_enabled(true), at(0x1000), Packet::PsbEnd];
        let packets = [&begin[..], changes, &[Packet::TipPgd(IpPayload::Suppressed)]].concat();
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
        let trace = folder.write("trace.pt", &bytes);
        let words =
            ["latency", "--format", "json", "--pair", "interrupts-off", "--pt", &trace, "--code", &code];
        let summary = hodo(&words).fine().json()["summary"].clone();
        (summary["instructions_max"].as_u64(), summary["popf_decided_by"].as_str().map(str::to_owned))
    };
    assert_eq!(figures(&changes), (Some(3), Some("MODE.Exec.IF".to_owned())));
    assert_eq!(figures(&[]), (Some(1), Some("pairing".to_owned())));
}
