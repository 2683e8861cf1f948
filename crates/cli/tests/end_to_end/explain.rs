//! `hodo explain`: findings, and the commands that show their evidence.

use std::path::Path;

use serde_json::Value;

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
fn commands_of_findings_keep_the_selection() {
    let input = fixture("ctf/lttng2.13-kernel");
    let table = hodo(&["explain", "--time", "0%-50%", "--format", "json", &input]).fine().json();
    let rows = table["rows"].as_array().expect("rows");
    assert!(!rows.is_empty());
    for row in rows {
        let command = row[3].as_str().expect("a command");
        assert!(command.ends_with(" --time 0%-50%"), "{command}");
        hodo(&command.split(' ').chain([input.as_str()]).collect::<Vec<_>>()).fine();
    }
}

#[test]
fn what_is_cut_off_is_a_finding_and_is_listed() {
    let folder = Folder::new();
    let recording = recorded(&folder, "habits.c", &["even"]);
    let bytes = std::fs::read(&recording).expect("a recording");
    let cut = folder.file("cut.data");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).expect("room on the disk");
    let text = hodo(&["explain", "-q", &cut]).fine().stdout;
    assert!(text.contains("The input is cut short, and what follows is in no finding: once"), "{text}");
    assert!(text.contains("\nlost\n  1 × "), "{text}");
    let table = hodo(&["explain", "-q", "--format", "json", &cut]).fine().json();
    assert_eq!(table["rows"][0][1], "lost", "{table:#}");
    assert!(table["loss"].as_array().expect("losses").iter().any(|loss| loss["cause"] == "cut_short"));
    let strict = hodo(&["explain", "-q", "--strict", &cut]);
    assert!(strict.code == 1 && strict.stderr.contains("--strict: data is missing"), "{strict:?}");
    assert!(strict.stderr.contains("cut_short"), "{strict:?}");
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
    assert_eq!(rule, "heavy-tail");
    let others = table["rows"].as_array().unwrap()[1..].iter();
    assert!(others.clone().all(|row| row[1] == "hot"), "{table}");
    let expected = [
        "serve has a heavy tail: 19,980 executions run 4 instructions (median), 20 (every 1,000th) run 2,0",
        "7 ran 4,006 more, 4,002 in serve → grow;",
        "7 ran 2,007 more, 2,002 in serve → flush → copy;",
        "6 ran 804 more in its own code.",
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
fn a_plain_recursion_is_hot() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "fib.c", &["-O1"]);
    let (recording, ran) = record(&folder, &[], &[&program, "24"]);
    ran.fine();
    let table = hodo(&["explain", "--format", "json", &recording]).fine().json();
    let rules: Vec<&Value> = table["rows"].as_array().unwrap().iter().map(|row| &row[1]).collect();
    assert_eq!(rules, ["hot"], "{table:#}");
    assert!(table["rows"][0][2].as_str().unwrap().contains(" of the run is in fib"), "{table:#}");
}

/// Compiles a program and records it natively, with a habit or other arguments.
fn recorded(folder: &Folder, source: &str, arguments: &[&str]) -> String {
    let program = compile(folder, source, &["-O1", "-g", "-pthread"]);
    let out = folder.file(&format!("{}.data", arguments.join("-")));
    let record = ["record", "-q", "--engine", "native", "-o", &out, "--", &program];
    hodo(&[&record, arguments].concat()).fine();
    out
}

/// Returns the findings: rule and sentence.
fn explained(recording: &str) -> Vec<(String, String)> {
    let table = hodo(&["explain", "-q", "--format", "json", recording]).fine().json();
    let text = |cell: &Value| cell.as_str().expect("a text").to_owned();
    table["rows"].as_array().expect("rows").iter().map(|row| (text(&row[1]), text(&row[2]))).collect()
}

#[test]
fn both_kinds_of_executions_are_found_however_many_are_slow() {
    const CALLS: u64 = 3000;
    let folder = Folder::new();
    for every in [1000, 200, 100, 99, 50, 20, 5, 2] {
        let recording = recorded(&folder, "modes.c", &["3000", &every.to_string()]);
        let slow = (0..CALLS).filter(|call| call % every == every / 2).count() as u64;
        let table = hodo(&["latency", "--functions", "--format", "json", &recording]).fine().json();
        let columns = table["columns"].as_array().expect("columns");
        let column = |name: &str| columns.iter().position(|column| column["name"] == name).expect("a column");
        let answer = table["rows"].as_array().expect("rows").iter();
        let answer = answer.clone().find(|row| row[0] == "answer").expect("it ran");
        let number = |name: &str| answer[column(name)].as_u64().expect("a number");
        assert_eq!((number("fast_count"), number("slow_count")), (CALLS - slow, slow), "{every}");
        assert!(number("fast_p50") < 20 && (4000..4100).contains(&number("slow_p50")), "{every}: {answer}");
        for row in table["rows"].as_array().expect("rows") {
            assert!(row[column("tail_share")].as_f64().unwrap_or(0.0) <= 1.0, "{row}");
        }
        let findings = explained(&recording);
        let (rule, sentence) = findings.first().expect("a finding");
        assert_eq!(rule, "heavy-tail", "{every}: {sentence}");
        let rhythm = match every {
            1000 => String::new(),
            2 => " (every 2nd)".to_owned(),
            _ => format!(" (every {every}th)"),
        };
        let grouped = |count: u64| match count {
            1000.. => format!("{},{:03}", count / 1000, count % 1000),
            _ => count.to_string(),
        };
        let counts = [
            format!(": {} executions run ", grouped(CALLS - slow)),
            format!(" {}{rhythm} run 4,0", grouped(slow)),
        ];
        assert!(counts.iter().all(|count| sentence.contains(count)), "{every}: {sentence}");
        assert!(sentence.contains("in answer → rebuild"), "{every}: {sentence}");
    }
}

#[test]
fn habits_of_programs_are_named() {
    let folder = Folder::new();
    for (habit, rule, words) in [
        ("grows", "growth", &["append costs more with each call: ", "in 600 executions"][..]),
        ("first", "first-call", &["lookup is slow in its first call only", "the 149 others"]),
        ("retries", "heavy-tail", &["10 ran ", "in request → transmit, which ran 41 times instead of once"]),
        ("deep", "heavy-tail", &["sort_batch has ", "in sort_batch → quick_sort ×280"]),
        ("beats", "rhythm", &["Slow executions of handle come in a rhythm, every 100th"]),
        ("roles", "hot", &["parse_all", "Threads have roles of their own: parser "]),
        ("even", "hot", &["is in step, called by main 3,000 times"]),
    ] {
        let recording = recorded(&folder, "habits.c", &[habit]);
        let findings = explained(&recording);
        let found = findings.iter().find(|(own, _)| own == rule);
        let (_, sentence) = found.unwrap_or_else(|| panic!("{habit}: {findings:?}"));
        assert!(words.iter().all(|words| sentence.contains(words)), "{habit}: {sentence}");
        let is_expected = |(own, _): &(String, String)| own == rule || own == "hot";
        assert!(findings.iter().all(is_expected), "{habit}: {findings:?}");
        let text = hodo(&["explain", "-q", &recording]).fine().stdout;
        for finding in text.split("\n\n") {
            assert!(finding.lines().count() <= 4, "{finding}");
        }
    }
}

#[test]
fn recursion_folds_in_trees() {
    let folder = Folder::new();
    let recording = recorded(&folder, "habits.c", &["deep"]);
    let text = hodo(&["report", "tree", "-q", &recording]).fine().stdout;
    assert!(text.contains("quick_sort ×280"), "{text}");
    let sum = |view: &[&str]| {
        let report = ["report", "tree", "-q", "--format", "json", "--limit", "100000", &recording];
        let table = hodo(&[&report, view].concat()).fine().json();
        let own = table["columns"].as_array().expect("columns").iter();
        let own = own.clone().position(|column| column["name"] == "self_instructions").expect("a column");
        let rows = table["rows"].as_array().expect("rows");
        (rows.len(), rows.iter().map(|row| row[own].as_u64().expect("a number")).sum::<u64>())
    };
    let (folded, by_path) = (sum(&[]), sum(&["--by", "path"]));
    assert!(folded.0 + 279 == by_path.0 && folded.1 == by_path.1, "{folded:?} {by_path:?}");
    // By instructions: a busy machine makes any execution the longest in time.
    let compare = ["latency", "-q", "--function", "sort_batch", "--compare", "--worst-by", "instructions"];
    let text = hodo(&[&compare[..], &[&recording]].concat()).fine().stdout;
    assert!(text.contains("quick_sort ×280") && text.lines().count() < 50, "{text}");
}

#[test]
fn a_rule_says_why_it_did_not_fire() {
    let folder = Folder::new();
    let recording = recorded(&folder, "habits.c", &["even"]);
    let why = |rule: &str| hodo(&["explain", "-q", "--why", rule, &recording]);
    let text = why("heavy-tail").fine().stdout;
    assert!(text.starts_with("heavy-tail: ") && text.contains("It did not fire: the tail of "), "{text}");
    assert!(why("hot").fine().stdout.contains("It fired: "));
    let refused = why("no-such-rule");
    assert!(refused.code == 2 && refused.stderr.contains("heavy-tail"), "{refused:?}");
}

#[test]
fn findings_have_numbers_and_links_for_programs() {
    let folder = Folder::new();
    let recording = recorded(&folder, "habits.c", &["retries"]);
    let table = hodo(&["explain", "-q", "--format", "json", &recording]).fine().json();
    let first = &table["findings"][0];
    assert_eq!((&first["rule"], &first["sentence"]), (&table["rows"][0][1], &table["rows"][0][2]));
    assert_eq!(
        (&first["numbers"]["fast"], &first["numbers"]["slow"]),
        (&990.into(), &10.into()),
        "{first:#}"
    );
    assert_eq!(first["numbers"]["cause_path"], "request → transmit");
    let link = first["link"].as_str().expect("a link");
    assert!(link.starts_with("#view=timeline&t0=") && link.contains("&c1="), "{link}");
    let text = hodo(&["explain", "-q", &recording]).fine().stdout;
    assert!(text.contains(&format!("{recording}  {link}\n")), "{text}");
}

#[test]
fn two_recordings_are_explained_by_their_difference() {
    let folder = Folder::new();
    let [old, new] = ["50", "10"].map(|every| recorded(&folder, "modes.c", &["3000", every]));
    let text = hodo(&["explain", "-q", &old, &new]).fine().stdout;
    let expected = " 1. rebuild ran 300 times instead of 60, 4,002 instructions each as before, in … → answer → rebuild.";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("They diverge at answer (modes.c:"), "{text}");
    let table = hodo(&["explain", "-q", "--format", "json", &old, &new]).fine().json();
    assert_eq!(table["rows"][0][1], "runs-more-often");
    let why = hodo(&["explain", "-q", "--why", "costs-more", &old, &new]).fine().stdout;
    assert!(why.contains("It did not fire"), "{why}");
    let same = hodo(&["explain", "-q", &old, &old]).fine().stdout;
    assert!(same.starts_with("No difference stands out: no difference: "), "{same}");
}

#[test]
fn traces_of_events_are_compared_with_a_baseline() {
    let trace = fixture("ctf/lttng2.13-kernel");
    let same = hodo(&["explain", "-q", "--baseline", &trace, &trace]).fine().stdout;
    assert!(same.starts_with("No difference stands out"), "{same}");
    let several = hodo(&["explain", "--baseline", &trace, &trace, &trace]);
    assert!(several.stderr.contains("--baseline compares one input with another"), "{several:?}");
}
