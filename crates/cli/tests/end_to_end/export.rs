//! Traces written anew.

use std::{fs, path::Path};

use crate::run::{Folder, hodo};

/// Traces in the folder of fixtures, with how many events they have and how many were lost.
const FIXTURES: &[(&str, u64, u64)] = &[
    ("barectf3.1", 976, 19),
    ("lttng2.13-kernel", 3751, 0),
    ("lttng2.16-kernel-ctf2", 3076, 0),
    ("ust2.13-per-pid", 1800, 4610),
    ("ust2.16-ctf2", 1707, 0),
];

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ctf").join(name);
    path.into_os_string().into_string().unwrap()
}

/// All events, without the names of the traces, which are those of their folders.
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
    for &(name, count, lost) in FIXTURES {
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
fn what_is_wanted_is_what_is_written() {
    let input = fixture("lttng2.13-kernel");
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

#[test]
fn a_folder_that_is_there_stays_as_it_is() {
    let folder = Folder::new();
    folder.write("file", b"mine");
    let output = folder.path().into_os_string().into_string().unwrap();
    let ran = hodo(&["export", "--to", "ctf", "-o", &output, &fixture("barectf3.1")]);
    assert!(ran.code == 2 && ran.stderr.contains("is there already"), "{ran:?}");
    assert_eq!(folder.names(), ["file"]);
    assert_eq!(fs::read(folder.file("file")).unwrap(), b"mine");
}
