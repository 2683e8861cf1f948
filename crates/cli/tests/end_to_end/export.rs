//! Traces exported as CTF.

use std::fs;

use serde_json::{Map, Value};

use crate::run::{Folder, fixture, hodo};

struct Fixture {
    name: &'static str,
    events: u64,
    lost: u64,
}

const FIXTURES: &[Fixture] = &[
    Fixture { name: "ctf/barectf3.1", events: 976, lost: 19 },
    Fixture { name: "ctf/board", events: 6996, lost: 0 },
    Fixture { name: "ctf/lttng2.13-kernel", events: 3751, lost: 0 },
    Fixture { name: "ctf/lttng2.16-kernel-ctf2", events: 3076, lost: 0 },
    Fixture { name: "ctf/ust2.13-per-pid", events: 1800, lost: 4610 },
    Fixture { name: "ctf/ust2.16-ctf2", events: 1707, lost: 0 },
];

/// Returns all events, without the names of the traces, which are those of their folders.
fn events(input: &str, arguments: &[&str]) -> Vec<String> {
    let script = hodo(&[&["script", "--format", "jsonl", "-q"], arguments, &[input]].concat()).fine().stdout;
    let nameless = |line: &str| {
        let (before, after) = line.split_once("\"trace\":\"").expect("a trace");
        let (_, after) = after.split_once("\",").expect("its name");
        format!("{before}{after}")
    };
    script.lines().map(nameless).collect()
}

#[test]
fn fixtures_are_counted_and_written_in_both_versions_as_they_are_read() {
    for &Fixture { name, events: count, lost } in FIXTURES {
        let input = fixture(name);
        let table = hodo(&["report", "count", "--format", "json", &input]).fine().json();
        assert_eq!(table["summary"]["events"], count, "{name}");
        assert_eq!(table["summary"]["events_lost"], lost, "{name}");
        let whole = events(&input, &[]);
        for version in ["ctf", "ctf2"] {
            let folder = Folder::new();
            let output = folder.file("new");
            hodo(&["export", "--to", version, "-q", "-o", &output, &input]).fine();
            assert!(events(&output, &[]) == whole, "{name} as {version}");
        }
    }
}

#[test]
fn only_what_is_selected_is_written() {
    let input = fixture("ctf/lttng2.13-kernel");
    for arguments in [
        &["--event", "sched_*"][..],
        &["--where", "prev_tid == 0 or cpu_id == 2"],
        &["--cpu-list", "1,3"],
        &["--time", "20%-40%"],
        &["--time", "30%-60%", "--event", "irq_*"],
    ] {
        let folder = Folder::new();
        let output = folder.file("new");
        hodo(&[&["export", "--to", "ctf2", "-q", "-o", &output], arguments, &[&input]].concat()).fine();
        let wanted = events(&input, arguments);
        assert!(!wanted.is_empty(), "{arguments:?}");
        assert!(events(&output, &[]) == wanted, "{arguments:?}");
    }
}

/// Fixtures recorded by ftrace and perf.
const TRACERS: &[&str] = &["ftrace/small-6.dat", "ftrace/small-7.dat", "perf/events.data"];

/// Returns whether an event's fields equal those of its export. Only CTF has length fields and empty names; CTF 1.8 has
/// arrays of bytes in place of blobs.
fn same_fields(original: &Value, written: &Value) -> bool {
    let (Value::Object(original), Value::Object(written)) = (original, written) else { return false };
    let same = |name: &str, value: &Value| match (original.get(name), value) {
        (Some(Value::String(text)), Value::Array(bytes)) => {
            *text == bytes.iter().map(|byte| format!("{:02x}", byte.as_u64().unwrap())).collect::<String>()
        }
        (Some(original), written) => original == written,
        (None, Value::String(text)) => text.is_empty(),
        (None, Value::Number(_)) => name.starts_with('_') && name.ends_with("_length"),
        _ => false,
    };
    let is_there = |name: &String| written.contains_key(name);
    written.iter().all(|(name, value)| same(name, value)) && original.keys().all(is_there)
}

/// Returns whether an event equals its export.
fn same_event(original: &str, written: &str) -> bool {
    let [original, written] =
        [original, written].map(|line| serde_json::from_str::<Map<String, Value>>(line).unwrap());
    ["ts", "stream", "name"].iter().all(|member| original[*member] == written[*member])
        && ["fields", "context"].iter().all(|member| same_fields(&original[*member], &written[*member]))
}

#[test]
fn what_other_tracers_recorded_is_written_as_it_is_read() {
    for (name, version) in TRACERS.iter().flat_map(|name| [(name, "ctf"), (name, "ctf2")]) {
        let input = fixture(name);
        for arguments in [&[][..], &["--time", "20%-60%"], &["--event", "sched_*"], &["--cpu-list", "1"]] {
            let folder = Folder::new();
            let output = folder.file("new");
            hodo(&[&["export", "--to", version, "-q", "-o", &output], arguments, &[&input]].concat()).fine();
            let (original, written) = (events(&input, arguments), events(&output, &[]));
            assert!(!original.is_empty(), "{name} {arguments:?}");
            assert_eq!(original.len(), written.len(), "{name} as {version} {arguments:?}");
            for (original, written) in original.iter().zip(&written) {
                assert!(same_event(original, written), "{name} as {version}:\n{original}\n{written}");
            }
        }
    }
}

#[test]
fn reports_of_what_other_tracers_recorded_stay_as_they_are() {
    for name in TRACERS {
        let (folder, input) = (Folder::new(), fixture(name));
        let output = folder.file("new");
        hodo(&["export", "--to", "ctf", "-q", "-o", &output, &input]).fine();
        for kind in ["cpu", "syscalls", "irq", "sched", "io"] {
            let report = |input: &str| hodo(&["report", kind, "-q", "--format", "json", input]).fine().json();
            assert_eq!(report(&input), report(&output), "{name}: {kind}");
        }
    }
}

#[test]
fn a_folder_that_is_there_stays_as_it_is() {
    let folder = Folder::new();
    folder.write("file", b"mine");
    let output = folder.path().into_os_string().into_string().unwrap();
    let ran = hodo(&["export", "--to", "ctf", "-o", &output, &fixture("ctf/barectf3.1")]);
    assert!(ran.code == 2 && ran.stderr.contains("already exists"), "{ran:?}");
    assert_eq!(folder.names(), ["file"]);
    assert_eq!(fs::read(folder.file("file")).unwrap(), b"mine");
}
