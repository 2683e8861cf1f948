//! `hodo explain`: findings, and the commands that show their evidence.

use std::path::Path;

use crate::{
    latency::planted,
    recorded::{can_record, compile, record},
    run::{Folder, hodo},
};

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    fixtures.join(name).to_string_lossy().into_owned()
}

#[test]
fn each_finding_says_how_to_see_it() {
    let input = fixture("ctf/lttng2.13-kernel");
    let text = hodo(&["explain", &input]).fine().stdout;
    assert!(text.starts_with(" 1. Interrupts take much of a CPU: hard virtio2-req.2 ran 44 times"), "{text}");
    let table = hodo(&["explain", "--format", "json", &input]).fine().json();
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(table["summary"]["findings"], rows.len());
    for row in rows {
        let command = row[3].as_str().expect("a command");
        let arguments: Vec<&str> = command.split(' ').chain([input.as_str()]).collect();
        hodo(&arguments).fine();
        assert!(text.contains(&format!("hodo {command} {input}")), "{text}");
    }
}

#[test]
fn a_quiet_span_has_no_findings() {
    let text = hodo(&["explain", "--time", "99.9%-100%", &fixture("ctf/ust2.16-ctf2")]).fine().stdout;
    assert!(text.starts_with("Nothing stands out: no number of "), "{text}");
}

#[test]
fn rules_are_listed_with_their_thresholds() {
    let list = hodo(&["explain", "--list"]).fine().stdout;
    assert!(list.contains("cpu-contention") && list.contains("20 %"), "{list}");
}

#[test]
fn planted_causes_of_a_heavy_tail_are_named_exactly() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = planted(&folder, "20000", "1000");
    let table = hodo(&["explain", "--format", "json", &recording]).fine().json();
    let (rule, sentence) = (&table["rows"][0][1], table["rows"][0][2].as_str().unwrap());
    assert_eq!((rule, table["rows"].as_array().unwrap().len()), (&"heavy-tail".into(), 1));
    let expected = [
        "serve has a heavy tail: the longest of 20,000 executions ran 4,010 instructions, 1,002 times the median of 4 ",
        "7 ran 4,006 more instructions than the median, 4,002 of them in serve → grow;",
        "7 ran 2,007 more instructions than the median, 2,002 of them in serve → flush → copy;",
        "6 ran 804 more instructions than the median, 804 of them in its own code.",
    ];
    for words in expected {
        assert!(sentence.contains(words), "{words}\n{sentence}");
    }
}

#[test]
fn one_of_four_threads_works_most() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "threads.c", &["-O2", "-pthread"]);
    let (recording, ran) = record(&folder, &[], &[&program]);
    ran.fine();
    let text = hodo(&["explain", &recording]).fine().stdout;
    assert!(
        text.starts_with(" 1. Threads have unequal shares: thread ") && text.contains("1.75 times"),
        "{text}"
    );
    let table = hodo(&["report", "threads", "--format", "json", &recording]).fine().json();
    let functions = hodo(&["report", "functions", "--format", "json", &recording]).fine().json();
    assert_eq!(table["summary"]["instructions"], functions["summary"]["instructions"]);
    assert_eq!(table["rows"].as_array().unwrap().len(), 5);
    // Threads have the name of the program that started them, and are selected by it.
    let info = hodo(&["info", "--format", "json", &recording]).fine().json();
    let streams = info["streams"].as_array().unwrap();
    let names: Vec<&str> = streams.iter().filter_map(|stream| stream["command"].as_str()).collect();
    assert!(names.len() == 5 && names.iter().all(|name| *name == names[0]), "{names:?}");
    assert!(table["rows"].as_array().unwrap().iter().all(|row| row[2] == names[0]), "{table:#}");
    let of_name = ["report", "threads", "--comm", names[0], "--format", "json", &recording];
    assert_eq!(hodo(&of_name).fine().json()["rows"], table["rows"]);
}

#[test]
fn nothing_stands_out_of_a_plain_recursion() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "fib.c", &["-O1"]);
    let (recording, ran) = record(&folder, &[], &[&program, "24"]);
    ran.fine();
    let text = hodo(&["explain", &recording]).fine().stdout;
    assert!(text.starts_with("Nothing stands out"), "{text}");
}
