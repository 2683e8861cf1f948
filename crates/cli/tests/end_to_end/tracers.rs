//! Events of ftrace and of perf, as files and in one vocabulary of analyses.

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    exports::{output, target},
    run::{fixture, hodo},
};

/// Returns the lines of JSON.
fn events(name: &str, arguments: &[&str]) -> Vec<Value> {
    let file = fixture(name);
    let script = ["script", "--events", "-q", "--format", "jsonl", &file];
    let ran = hodo(&[&script[..], arguments].concat()).fine();
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the number of events.
fn count(name: &str, arguments: &[&str]) -> u64 {
    let file = fixture(name);
    let report = ["report", "count", "-q", "--format", "json", &file];
    let table = hodo(&[&report[..], arguments].concat()).fine().json();
    table["summary"]["events"].as_u64().unwrap()
}

#[test]
fn both_versions_of_trace_dat_hold_the_same() {
    let (six, seven) = (events("ftrace/small-6.dat", &[]), events("ftrace/small-7.dat", &[]));
    assert_eq!(six.len(), 1310);
    assert_eq!(six, seven);
    assert!(six.is_sorted_by_key(|event| event["ts"].as_u64()));
    let switch = six.iter().find(|event| event["name"] == "sched_switch").unwrap();
    let fields: Vec<&String> = switch["fields"].as_object().unwrap().keys().collect();
    let expected = ["next_comm", "next_pid", "next_prio", "prev_comm", "prev_pid", "prev_prio", "prev_state"];
    assert_eq!(fields, expected);
    let context = switch["context"].as_object().unwrap();
    assert!(context.contains_key("cpu_id") && context.contains_key("common_pid"), "{context:?}");
}

/// The same events, written by Perfetto's own classes.
#[test]
fn a_trace_of_perfetto_holds_the_events_of_ftrace() {
    let (ftrace, perfetto) = (events("ftrace/small-6.dat", &[]), events("perfetto/small.pftrace", &[]));
    assert_eq!(perfetto.len(), 1310);
    // Perfetto has a field for the kernel's older `success`, and none for the depth of disabled preemption.
    let known = |event: &Value| {
        let fields = event["fields"].as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        let fields: Vec<(&String, &Value)> = fields.collect();
        let context = ["cpu_id", "common_pid", "common_flags", "comm"].map(|name| &event["context"][name]);
        serde_json::json!({ "ts": event["ts"], "name": event["name"], "fields": fields, "context": context })
    };
    for (of_ftrace, of_perfetto) in ftrace.iter().zip(&perfetto) {
        assert_eq!(known(of_ftrace), known(of_perfetto));
    }
    let report = |kind: &str, file: &str| {
        let mut table = hodo(&["report", kind, "-q", "--format", "json", &fixture(file)]).fine().json();
        // Only Perfetto knows the process of a thread.
        let process = table["columns"].as_array().unwrap().iter().position(|column| column["name"] == "pid");
        for row in table["rows"].as_array_mut().unwrap() {
            process.into_iter().for_each(|process| row[process] = Value::Null);
        }
        table
    };
    for kind in ["count", "sched", "cpu", "syscalls", "states", "queue", "irq", "wakers"] {
        assert_eq!(report(kind, "ftrace/small-6.dat"), report(kind, "perfetto/small.pftrace"), "{kind}");
    }
    let info = hodo(&["info", "--format", "json", &fixture("perfetto/small.pftrace")]).fine().json();
    assert_eq!(info["traces"][0]["format"], "Perfetto");
    let note = "only ftrace's packets are read, and these are not: 1 of track_event";
    assert_eq!(info["traces"][0]["notes"][0]["note"], note);
    let count = hodo(&["report", "count", "--pid", "3559", "-q", &fixture("perfetto/small.pftrace")]).fine();
    assert!(count.stdout.contains("sys_enter"), "{}", count.stdout);
}

/// Every value of a field, as Perfetto's own trace processor has them in its tables.
#[test]
fn perfetto_itself_reads_the_same_fields() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/trace_processor.py");
    // It has one row for all elements of an array.
    let statement = "select f.ts, f.cpu, f.name, t.tid, a.key, coalesce(a.int_value, a.string_value) \
                     from ftrace_event f join thread t using (utid) join args a on a.arg_set_id = f.arg_set_id \
                     where f.name is not null and a.key <> 'args'";
    let mut python = Command::new(target().join("python/bin/python"));
    let rows = output(python.args([script, &fixture("perfetto/small.pftrace"), statement]));
    let mut theirs: Vec<String> =
        rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap().to_string()).collect();
    let mut ours = Vec::new();
    for event in events("perfetto/small.pftrace", &[]) {
        let context = &event["context"];
        for (field, value) in event["fields"].as_object().unwrap() {
            if !value.is_null() && !value.is_array() {
                let row = [
                    &event["ts"],
                    &context["cpu_id"],
                    &event["name"],
                    &context["common_pid"],
                    &field.as_str().into(),
                    value,
                ];
                ours.push(Value::from_iter(row.map(Value::clone)).to_string());
            }
        }
    }
    theirs.sort();
    ours.sort();
    assert!(ours.len() > 2_000, "{}", ours.len());
    assert_eq!(ours, theirs);
}

#[test]
fn samples_of_perf_are_events() {
    let all = events("perf/events.data", &[]);
    assert_eq!(all.len(), 829);
    assert!(all.is_sorted_by_key(|event| event["ts"].as_u64()));
    let fault = all.iter().find(|event| event["name"] == "page-faults").unwrap();
    assert_eq!(fault["fields"].as_object().unwrap().len(), 0);
    assert!(fault["context"]["ip"].as_u64() > Some(0) && fault["context"]["period"].as_u64() > Some(0));
    let info = hodo(&["info", "--format", "json", &fixture("perf/events.data")]).fine().json();
    assert_eq!(info["traces"][0]["format"], "perf.data");
}

#[test]
fn one_selection_fits_every_tracer() {
    for (file, switches, opened) in [("ftrace/small-7.dat", 21, 68), ("perf/events.data", 6, 63)] {
        assert_eq!(count(file, &["--event", "sched_switch"]), switches, "{file}");
        assert_eq!(count(file, &["--event", "sched_switch", "--where", "prev_tid == next_tid"]), 0, "{file}");
        assert_eq!(count(file, &["--event", "sched_switch", "--where", "prev_tid >= 0"]), switches, "{file}");
        assert_eq!(count(file, &["--event", "syscall_entry_openat"]), opened, "{file}");
        assert_eq!(count(file, &["--event", "sys_enter_openat"]), opened, "{file}");
        let cpus = ["0", "1"].map(|cpu| count(file, &["--cpu-list", cpu]));
        // perf doesn't record the CPU of every event.
        assert!(cpus[0] > 0 && cpus[1] > 0 && cpus[0] + cpus[1] <= count(file, &[]), "{file}: {cpus:?}");
        let first = events(file, &["--limit", "1"]);
        let tid = first[0]["context"]["tid"].as_i64().or(first[0]["context"]["common_pid"].as_i64()).unwrap();
        assert!((1..1310).contains(&count(file, &["--tid", &tid.to_string()])), "{file}");
    }
    assert_eq!(count("perf/events.data", &["--event", "sched:sched_switch"]), 6);
}

#[test]
fn any_chunks_give_the_same() {
    for file in ["ftrace/small-6.dat", "perf/events.data"] {
        let whole = events(file, &["-j", "1"]);
        assert_eq!(events(file, &["-j", "3", "--chunk-size", "1K"]), whole, "{file}");
        let first = count(file, &["--time", "0%-50%"]);
        assert_eq!(first + count(file, &["--time", "50%-100%"]), whole.len() as u64, "{file}");
    }
}

#[test]
fn what_is_missing_from_a_file_is_reported() {
    let bytes = fs::read(fixture("ftrace/small-6.dat")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.dat");
    fs::write(&file, &bytes[..bytes.len() - 5000]).unwrap();
    let ran = hodo(&["report", "count", "--strict", "-q", file.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("cut_short") || ran.stdout.contains("cut short"), "{ran:?}");
    fs::write(&file, &bytes[..5000]).unwrap();
    let ran = hodo(&["report", "count", file.to_str().unwrap()]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn recording_with_ftrace_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace.dat");
    let record = ["record", "--engine", "ftrace", "-o", output.to_str().unwrap()];
    let ran = hodo(&[&record[..], &["-e", "sched", "--", "true"]].concat());
    if ran.code != 0 {
        // Without root or tracefs, the error contains the remedy.
        assert!(ran.stderr.contains("root"), "{ran:?}");
        return;
    }
    let ran =
        hodo(&["report", "count", "-q", "--event", "sched_*", "--format", "json", output.to_str().unwrap()]);
    assert!(ran.fine().json()["summary"]["events"].as_u64() > Some(0));
    let ran = hodo(&[&record[..], &["-e", "no-such-event", "--", "true"]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("available_events"), "{ran:?}");
}

/// Returns the rows of a report as objects.
fn report(file: &str, arguments: &[&str]) -> Vec<Value> {
    let common = ["-q", "--format", "jsonl", file];
    let ran = hodo(&[&["report"], arguments, &common].concat()).fine();
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn system_calls_have_names_whatever_the_tracer() {
    for file in ["ftrace/small-6.dat", "ftrace/small-7.dat", "perf/events.data"] {
        let calls = report(&fixture(file), &["syscalls"]);
        let openat = calls.iter().find(|row| row["call"] == "openat").unwrap();
        let ended = count(file, &["--event", "syscall_exit_openat"]);
        let failed = count(file, &["--event", "syscall_exit_openat", "--where", "ret < 0"]);
        assert_eq!(
            (openat["count"].as_u64(), openat["errors"].as_u64()),
            (Some(ended), Some(failed)),
            "{file}"
        );
        let opens = report(&fixture(file), &["io", "--by", "operation"]);
        let opens = opens.iter().find(|row| row["operation"] == "open").unwrap();
        assert_eq!(opens["count"].as_u64(), Some(ended), "{file}");
        let descriptors = report(&fixture(file), &["io", "--by", "descriptor"]);
        let opened: u64 = descriptors.iter().map(|row| row["opens"].as_u64().unwrap()).sum();
        assert_eq!(opened, ended - failed, "{file}");
        let slowest = report(&fixture(file), &["syscalls", "--by", "slowest"]);
        assert!(slowest[0]["arguments"].as_str().unwrap().starts_with("args = ["), "{file}");
        assert_eq!(report(&fixture(file), &["cpu", "--by", "cpu"]).len(), 2, "{file}");
    }
}

#[test]
fn a_report_without_events_says_what_it_needs() {
    let ran = hodo(&["report", "irqoff", &fixture("ftrace/small-7.dat")]).fine();
    assert!(ran.stderr.contains("preemptirq_irq_disable (of ftrace and perf: irq_disable)"), "{ran:?}");
}

#[test]
fn what_ftrace_and_perf_record_is_analysed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ftrace, perf) = (file("trace.dat"), file("perf.data"));
    let events = ["sched", "irq", "syscalls", "block"].map(|system| ["-e", system]).concat();
    let by_ftrace = || {
        let record = ["record", "-q", "--engine", "ftrace", "-o", &ftrace];
        hodo(&[&record[..], &events, &["--", "cat", &fixture("README.md")]].concat()).code == 0
    };
    let by_perf = || {
        let mut record = std::process::Command::new("perf");
        record.args(["record", "-q", "-a", "-g", "-e", "sched:*,raw_syscalls:*,irq:*,block:*", "-o", &perf]);
        let ran = record.args(["--", "cat", &fixture("README.md")]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    // On a busy machine the kernel may lose events and report that; this test needs a recording without loss.
    let is_whole = |file: &str| {
        let lost = report(file, &["count", "--by", "stream"]);
        lost.iter().all(|row| row["events_lost"] == 0 && row["packets_lost"] == 0)
    };
    let record = |by: &dyn Fn() -> bool, file: &str| (0..5).any(|_| by() && is_whole(file));
    let recorded = [(&by_ftrace as &dyn Fn() -> bool, &ftrace), (&by_perf, &perf)];
    // Without permission to record, there is nothing to test.
    for (_, file) in recorded.into_iter().filter(|(by, file)| record(by, file)) {
        let of_cat = ["--comm", "cat"];
        let bytes = fs::metadata(fixture("README.md")).unwrap().len();
        let read = report(file, &[&["io"], &of_cat[..]].concat());
        assert!(read.iter().any(|row| row["written_bytes"].as_u64() == Some(bytes)), "{read:?}");
        let ran = report(file, &[&["cpu"], &of_cat[..]].concat());
        let states = report(file, &[&["states"], &of_cat[..]].concat());
        let time =
            |rows: &[Value], name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
        assert!(time(&report(file, &["cpu"]), "time_ns") > 0, "{ran:?}");
        assert_eq!(time(&ran, "time_ns"), time(&states, "running_ns"), "{ran:?} {states:?}");
        assert!(!report(file, &["queue"]).is_empty());
        let written = format!("{file}.ctf");
        hodo(&["export", "--to", "ctf", "-q", "-o", &written, file]).fine();
        assert_eq!(report(&written, &["cpu"]), report(file, &["cpu"]));
        let metadata = fs::read_to_string(format!("{written}/metadata")).unwrap();
        // babeltrace2 2.0 doesn't read arrays in event contexts, only in the stream's event context.
        let of_stream = metadata.split("\nevent {").next().unwrap();
        assert_eq!(of_stream.contains("_callchain["), file == &perf);
    }
}
