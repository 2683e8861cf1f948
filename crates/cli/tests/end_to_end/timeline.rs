//! Several inputs at once: which clocks are one, offsets by hand, and files that hold both kinds of trace.

use std::collections::BTreeMap;

use hodo_repack::Recorded;
use serde_json::Value;

use crate::run::{Folder, fixture, hodo};

/// A perf.data that has the Intel PT of one file and the tracepoints of another.
fn joined(folder: &Folder) -> String {
    let read = |name: &str| Recorded::read(&std::fs::read(fixture(name)).unwrap());
    let (flow, events) = (read("perf/tiny.data"), read("perf/events.data"));
    let size = flow.attrs.iter().chain(&events.attrs).map(|(attr, _)| attr.len()).max().unwrap();
    let widened = |(attr, ids): &(Vec<u8>, Vec<u64>)| {
        let mut attr = attr.clone();
        attr.resize(size, 0);
        attr[4..8].copy_from_slice(&(size as u32).to_le_bytes());
        (attr, ids.clone())
    };
    let attrs = flow.attrs.iter().chain(&events.attrs).map(widened).collect();
    let records = flow.records.into_iter().chain(events.records).collect();
    // Events refer to names by number, and each file knows its own only.
    let mut features: BTreeMap<_, _> = events.features.clone();
    features.extend(flow.features);
    features.remove(&hodo_formats::perf::layout::feature::EVENT_DESC);
    let joined = Recorded { attrs, records, features };
    folder.write("both.data", &hodo_repack::file(&joined))
}

fn json(arguments: &[&str]) -> Value {
    hodo(&[arguments, &["-q", "--format", "json"]].concat()).fine().json()
}

#[test]
fn one_perf_data_holds_control_flow_and_events() {
    let folder = Folder::new();
    let both = joined(&folder);
    let symfs = fixture("perf/symfs");
    let info = json(&["info", &both, "--symfs", &symfs]);
    assert_eq!(info["recordings"].as_array().unwrap().len(), 1, "{info}");
    assert_eq!(info["traces"][0]["format"], "perf.data");
    let relations: Vec<&Value> =
        info["clocks"].as_array().unwrap().iter().map(|clock| &clock["relation"]).collect();
    assert_eq!(relations, ["reference", "reference"]);
    let functions = json(&["report", "functions", &both, "--symfs", &symfs]);
    let alone = json(&["report", "functions", &fixture("perf/tiny.data"), "--symfs", &symfs]);
    assert_eq!(functions["rows"], alone["rows"]);
    let all = json(&["report", "all", &both, "--symfs", &symfs]);
    let tables: Vec<&str> =
        all.as_array().unwrap().iter().map(|table| table["table"].as_str().unwrap()).collect();
    assert!(tables.contains(&"functions") && tables.contains(&"cpu"), "{tables:?}");
    let events = |file: &str| {
        let ran = hodo(&["script", "--events", "-q", "--format", "jsonl", file]).fine();
        ran.stdout.lines().count()
    };
    assert_eq!(events(&both), events(&fixture("perf/events.data")));
    let ran = hodo(&["script", "--events", "--limit", "1", &both]);
    assert!(ran.stderr.contains("hodo script --marks"), "{ran:?}");
    assert!(
        hodo(&["script", "--marks", "-q", &both, "--symfs", &symfs]).fine().stdout.contains("tracing on")
    );
}

#[test]
fn control_flow_and_a_kernel_trace_are_read_together() {
    let (flow, kernel, symfs) =
        (fixture("perf/tiny.data"), fixture("ctf/lttng2.13-kernel"), fixture("perf/symfs"));
    let inputs = [flow.as_str(), kernel.as_str(), "--symfs", &symfs];
    let functions = json(&[&["report", "functions"][..], &inputs].concat());
    assert_eq!(functions["rows"], json(&["report", "functions", &flow, "--symfs", &symfs])["rows"]);
    let all = json(&[&["report", "all"][..], &inputs].concat());
    assert!(all.as_array().unwrap().len() > 5);
    let ran = hodo(&[&["report", "all"][..], &inputs].concat()).fine();
    assert!(ran.stderr.contains("unrelated clocks") && ran.stderr.contains("virtual time"), "{ran:?}");
    let info = hodo(&[&["info", "-q"][..], &inputs].concat()).fine().stdout;
    assert!(info.contains("CLOCK_MONOTONIC") && info.contains("unrelated") && info.contains("the timeline"));
}

#[test]
fn traces_of_one_boot_share_a_clock() {
    let (pid, uid) = (fixture("ctf/ust2.13-per-pid"), fixture("ctf/ust2.16-ctf2"));
    let info = json(&["info", &pid, &uid]);
    assert_eq!(info["clocks"][2]["relation"], "related");
    assert!(info["clocks"][2]["how"].as_str().unwrap().contains("within 1 ns"), "{info}");
    let times = |inputs: &[&str]| {
        let ran = hodo(&[&["script", "--events", "-q", "--format", "jsonl"], inputs].concat()).fine();
        let time = |line: &str| serde_json::from_str::<Value>(line).unwrap()["ts"].as_i64().unwrap();
        ran.stdout.lines().map(time).collect::<Vec<_>>()
    };
    let both = times(&[&pid, &uid]);
    assert_eq!(both.len(), times(&[&pid]).len() + times(&[&uid]).len());
    assert!(both.is_sorted());
}

#[test]
fn an_offset_by_hand_relates_what_nothing_else_does() {
    let (ftrace, kernel) = (fixture("ftrace/small-6.dat"), fixture("ctf/lttng2.13-kernel"));
    let ran = hodo(&["script", "--events", "-q", &ftrace, &kernel]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("different hosts") && ran.stderr.contains("--offset"), "{ran:?}");
    // So that it lies in the middle of the other.
    let offset = "small-6.dat=+1795154793.3s";
    let ran = hodo(&["script", "--events", "-q", "--offset", offset, &ftrace, &kernel]).fine();
    let time = |line: &str| line.get(1..19).unwrap().to_owned();
    let times: Vec<String> = ran.stdout.lines().filter(|line| line.starts_with('[')).map(time).collect();
    assert!(times.is_sorted() && times.len() > 2000, "{}", times.len());
    let info = json(&["info", "--offset", offset, &ftrace, &kernel]);
    assert_eq!(info["clocks"][0]["relation"], "by_hand");
    assert_eq!(info["clocks"][0]["offset_ns"], 1_795_154_793_300_000_000i64);
    let count = json(&["report", "count", "--offset", offset, &ftrace, &kernel]);
    assert_eq!(count["loss"], serde_json::json!([]));
    let count = json(&["report", "count", &ftrace, &kernel]);
    assert_eq!(count["loss"][0]["cause"], "unrelated_clocks", "{count}");
    let ran = hodo(&["info", "--offset", "other=1s", &ftrace, &kernel]);
    assert!(ran.code == 2 && ran.stderr.contains("no input of this name"), "{ran:?}");
    // An input may be named that the report does not read.
    let calls =
        |arguments: &[&str]| json(&[&["report", "syscalls", &kernel], arguments].concat())["rows"].clone();
    assert_eq!(calls(&["--offset", "tiny.data=1s", &fixture("perf/tiny.data")]), calls(&[]));
    // Control flow is shifted as well.
    let (flow, symfs) = (fixture("perf/tiny.data"), fixture("perf/symfs"));
    let begin = |arguments: &[&str]| {
        let ran =
            hodo(&[&["script", "--calls", "-q", "--format", "jsonl", "--limit", "1"], arguments].concat());
        serde_json::from_str::<Value>(ran.fine().stdout.lines().next().unwrap()).unwrap()["time_ns"].as_u64()
    };
    let plain = begin(&[&flow, "--symfs", &symfs]).unwrap();
    let shifted = begin(&[&flow, "--symfs", &symfs, "--offset", "tiny.data=+5s"]).unwrap();
    assert_eq!(shifted, plain + 5_000_000_000);
    let ran = hodo(&["report", "functions", &flow, "--offset", "tiny.data=-5s"]);
    assert!(ran.code == 2 && ran.stderr.contains("before zero"), "{ran:?}");
}

#[test]
fn times_of_the_wall_clock_are_in_a_zone_that_is_reported() {
    let kernel = fixture("ctf/lttng2.13-kernel");
    let count = |time: &str| {
        let ran = hodo(&["report", "count", "--format", "json", "--time", time, &kernel]).fine();
        (ran.json()["summary"]["events"].as_u64().unwrap(), ran.stderr)
    };
    let whole = count("0%-100%").0;
    let (events, said) = count("10:37:58,10:37:59");
    assert!(events > 0 && events < whole, "{events} of {whole}");
    assert!(said.contains("times are in UTC (as the trace says)"), "{said}");
    assert_eq!(count("2026-11-20 10:37:58,2026-11-20T10:37:59").0, events);
    assert_eq!(count(",10:37:58").0 + events + count("10:37:59,").0, whole);
    let mut other =
        crate::run::command(&["report", "count", "--format", "json", "--time", "05:37:58,05:37:59", &kernel]);
    let ran = crate::run::wait(other.env("TZ", "EST5").spawn().unwrap()).unwrap().fine();
    assert_eq!(ran.json()["summary"]["events"].as_u64(), Some(events));
    assert!(ran.stderr.contains("by TZ"), "{}", ran.stderr);
    let ran = hodo(&["report", "count", "--time", "10:00,11:00", &fixture("ftrace/small-6.dat")]);
    assert!(ran.code == 2 && ran.stderr.contains("wall clock"), "{ran:?}");
    let ran = hodo(&["report", "count", "--time", "10:00", &kernel]);
    assert!(ran.code == 2 && ran.stderr.contains("10:38:00,10:38:01"), "{ran:?}");
}

#[test]
fn one_selection_means_the_same_in_every_command() {
    let (flow, symfs) = (fixture("perf/tiny.data"), fixture("perf/symfs"));
    let (ftrace, perf) = (fixture("ftrace/small-6.dat"), fixture("perf/events.data"));
    // Control flow by the thread's name.
    let whole = json(&["report", "functions", "--symfs", &symfs, &flow]);
    assert_eq!(json(&["report", "functions", "--symfs", &symfs, "--comm", "tiny", &flow]), whole);
    let ran = hodo(&["report", "functions", "--symfs", &symfs, "--comm", "other", &flow]);
    assert!(ran.code == 2 && ran.stderr.contains("--comm: no matching thread"), "{ran:?}");
    // Events: as many lines as are counted.
    let lines = hodo(&["script", "--events", "-q", "--format", "jsonl", "--comm", "cat", &ftrace]).fine();
    let lines: Vec<&str> = lines.stdout.lines().collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("\"comm\":\"cat\"")), "{lines:?}");
    let count = json(&["report", "count", "--comm", "cat", &ftrace]);
    assert_eq!(count["summary"]["events"], lines.len());
    // What does not apply is said before anything is read.
    for (arguments, expected) in [
        (&["script", "--events", "--comm", "cat", &perf][..], "no event has the context `procname`"),
        (&["info", "--tid", "1", &ftrace], "do not apply"),
        (&["info", "--time", "1,2", &ftrace], "do not apply"),
        (&["sync", "--comm", "cat", &ftrace, &perf], "do not apply"),
        (&["script", "--cpu-list", "0", &flow], "select software events"),
        (&["report", "functions", "--event", "x", &flow], "select single events"),
        (&["fold", "cpu", "--comm", "x", "--part", "1/1", "-o", "/nowhere", &ftrace], "hodo merge"),
    ] {
        let ran = hodo(arguments);
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn a_clock_of_any_tracer_is_known_by_its_uuid() {
    let folder = Folder::new();
    let write = |name: &str, uuid: &str| {
        let clock = format!("clock {{ name = c; uuid = \"{uuid}\"; absolute = true; }};");
        let metadata = crate::events::METADATA.replace("clock { name = c; absolute = true; };", &clock);
        std::fs::create_dir(folder.path().join(name)).unwrap();
        folder.write(&format!("{name}/metadata"), metadata.as_bytes());
        let packet = crate::events::packet(0, 0, 10..40, 0, &[&[1, 10, 7, 0xab, b'h', b'i', 0]]);
        folder.write(&format!("{name}/stream"), &packet);
        folder.file(name)
    };
    let (one, other) = ("00010203-0405-0607-0809-0a0b0c0d0e0f", "11010203-0405-0607-0809-0a0b0c0d0e0f");
    let (first, second, third) = (write("a", one), write("b", one), write("c", other));
    let relation = |inputs: &[&str]| {
        let info = json(&[&["info"], inputs].concat());
        let last = info["clocks"].as_array().unwrap().last().unwrap().clone();
        (last["relation"].as_str().unwrap().to_owned(), last["how"].as_str().unwrap().to_owned())
    };
    assert_eq!(relation(&[&first, &second]).0, "related");
    let (unrelated, why) = relation(&[&first, &third]);
    assert!(unrelated == "unrelated" && why.contains("different UUIDs"), "{why}");
    // A trace that is written again keeps it, in both versions.
    for version in ["ctf", "ctf2"] {
        let copy = folder.file(version);
        hodo(&["export", "-q", "--to", version, "-o", &copy, &second]).fine();
        assert_eq!(relation(&[&first, &copy]).0, "related", "{version}");
    }
}

/// Samples of perf on CLOCK_MONOTONIC, as `perf record -k CLOCK_MONOTONIC` marks them, of a boot that began then.
fn on_monotonic(folder: &Folder, name: &str, boot: u64) -> String {
    let mut recorded = Recorded::read(&std::fs::read(fixture("perf/events.data")).unwrap());
    for (attr, _) in &mut recorded.attrs {
        // `use_clockid` of the flags, and `clockid`.
        attr[43] |= 2;
        attr[92..96].copy_from_slice(&1u32.to_le_bytes());
    }
    let words = [1u32, 1].map(u32::to_le_bytes).concat();
    let times = [boot + 16_000_000_000_000, 16_000_000_000_000].map(u64::to_le_bytes).concat();
    recorded.features.insert(hodo_formats::perf::layout::feature::CLOCK_DATA, [words, times].concat());
    folder.write(name, &hodo_repack::file(&recorded))
}

#[test]
fn perf_on_lttngs_clock_joins_its_timeline() {
    let (folder, ust) = (Folder::new(), fixture("ctf/ust2.16-ctf2"));
    // That fixture's host is `vm` too, and it says when its clock was zero.
    let zero = 1_795_168_482_656_418_820;
    let perf = on_monotonic(&folder, "same.data", zero + 40_000);
    let info = json(&["info", &ust, &perf]);
    assert_eq!(
        (&info["clocks"][1]["clock"], &info["clocks"][1]["relation"]),
        (&"CLOCK_MONOTONIC".into(), &"related".into())
    );
    assert_eq!(info["clocks"][1]["offset_ns"], zero, "{info}");
    assert!(info["clocks"][1]["how"].as_str().unwrap().contains("within 40000 ns"), "{info}");
    hodo(&["script", "--events", "-q", &ust, &perf]).fine();
    let other = on_monotonic(&folder, "other.data", zero + 600_000_000_000);
    let info = json(&["info", &ust, &other]);
    assert!(info["clocks"][1]["how"].as_str().unwrap().contains("600 s apart: two boots"), "{info}");
    // A recording with perf's own clock is refused, and the message says how to record.
    let ran = hodo(&["script", "--events", "-q", &ust, &fixture("perf/events.data")]);
    assert!(ran.code == 2 && ran.stderr.contains("perf record -k CLOCK_MONOTONIC"), "{ran:?}");
}
