//! Parts folded by separate processes and merged equal the result of a single process.

use serde_json::Value;

use crate::run::{Folder, fixture, hodo, reports};

const PARTS: usize = 3;

fn trace() -> String {
    fixture("ctf/lttng2.13-kernel")
}

/// Returns the names of the reports, and whether they are about control flow.
fn names() -> Vec<(String, bool)> {
    let name =
        |report: &Value| (report["name"].as_str().unwrap().to_owned(), report["reads"] == "control flow");
    reports().iter().map(name).collect()
}

/// Returns the names of the reports of events.
fn event_reports() -> Vec<String> {
    names().into_iter().filter(|(_, is_of_flow)| !is_of_flow).map(|(name, _)| name).collect()
}

/// Folds a part and returns its file.
fn fold(folder: &Folder, analysis: &str, part: &str, more: &[&str]) -> String {
    let file = folder.file(&format!("{}.part", part.replace('/', "-of-")));
    let fixed = ["fold", "-q", analysis, "--part", part, "-o", &file, "--chunk-size", "16K"];
    hodo(&[&fixed, more, &[&trace()]].concat()).fine();
    file
}

#[test]
fn merged_parts_are_the_whole() {
    let names = event_reports();
    assert!(names.len() >= 5, "{names:?}");
    let folder = Folder::new();
    for name in &names {
        let parts: Vec<String> =
            (1..=PARTS).map(|number| fold(&folder, name, &format!("{number}/{PARTS}"), &[])).collect();
        let [first, second, third] = &parts[..] else { unreachable!() };
        let merged = hodo(&["merge", third, first, second, "--format", "json"]).fine().stdout;
        let whole = hodo(&["report", name, "-q", "--format", "json", &trace()]).fine().stdout;
        assert_eq!(merged, whole, "{name}");
    }
}

/// A trace of one chunk: all portions but the first are empty.
#[test]
fn empty_parts_change_nothing() {
    let folder = Folder::new();
    for name in event_reports() {
        let part = |number: usize| {
            let file = folder.file(&format!("{number}.part"));
            let part = format!("{number}/{PARTS}");
            hodo(&["fold", "-q", &name, "--part", &part, "-o", &file, &trace()]).fine();
            file
        };
        let parts: Vec<String> = (1..=PARTS).map(part).collect();
        let merged = hodo(&["merge", "--format", "json", &parts[0], &parts[1], &parts[2]]).fine().stdout;
        let whole = hodo(&["report", &name, "-q", "--format", "json", &trace()]).fine().stdout;
        assert_eq!(merged, whole, "{name}");
    }
}

#[test]
fn all_reports_in_one_pass_equal_each_by_itself() {
    let all = hodo(&["report", "all", "-q", "--format", "json", &trace()]).fine().json();
    let tables = all.as_array().expect("several tables");
    assert!(tables.len() >= 10, "{}", tables.len());
    for table in tables {
        let name = table["table"].as_str().expect("a name");
        assert_eq!(*table, hodo(&["report", name, "-q", "--format", "json", &trace()]).fine().json());
    }
    let folder = Folder::new();
    let parts = [fold(&folder, "all", "1/2", &[]), fold(&folder, "all", "2/2", &[])];
    assert_eq!(hodo(&["merge", &parts[0], &parts[1], "--format", "json"]).fine().json(), all);
}

#[test]
fn what_to_show_is_chosen_when_parts_are_merged() {
    let folder = Folder::new();
    let part = fold(&folder, "cpu", "1/1", &[]);
    let chosen = ["--by", "process", "--top", "3", "--cpu-list", "0-1", "--format", "csv"];
    let merged = hodo(&[&["merge", &part], &chosen[..]].concat()).fine().stdout;
    let whole = hodo(&[&["report", "cpu", "-q", &trace()], &chosen[..]].concat()).fine().stdout;
    assert_eq!(merged, whole);
    let part = fold(&folder, "count,cpu", "1/1", &[]);
    let both = hodo(&["merge", &part, "--format", "json"]).fine().json();
    let kinds = both.as_array().unwrap().iter().map(|table| table["table"].as_str().unwrap());
    assert_eq!(kinds.collect::<Vec<_>>(), ["count", "cpu"]);
}

/// Sums a column of a table.
fn sum(table: &serde_json::Value, column: &str) -> u64 {
    let columns = table["columns"].as_array().unwrap();
    let index = columns.iter().position(|found| found["name"] == column).unwrap();
    table["rows"].as_array().unwrap().iter().map(|row| row[index].as_u64().unwrap()).sum()
}

#[test]
fn counts_by_name_by_stream_and_over_time_agree() {
    let count = |more: &[&str]| {
        hodo(&[&["report", "count", "-q", "--format", "json", &trace()], more].concat()).fine().json()
    };
    let events = count(&[])["summary"]["events"].as_u64().unwrap();
    for more in [&["--by", "event"][..], &["--by", "stream"], &["--by", "time"]] {
        assert_eq!(sum(&count(more), "count"), events, "{more:?}");
    }
    let fine = count(&["--by", "time", "--every", "100us"]);
    assert_eq!((sum(&fine, "count"), &fine["summary"]["width_ns"]), (events, &100_000.into()));
    let begins = fine["rows"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap());
    let begins: Vec<u64> = begins.collect();
    assert!(begins.windows(2).all(|pair| pair[0] + 100_000 == pair[1]), "{begins:?}");
    let in_chunks = count(&["--by", "stream", "--chunk-size", "4K", "-j", "3"]);
    assert_eq!(in_chunks, count(&["--by", "stream"]));
    let refused = hodo(&["report", "count", "--by", "time", "--every", "1ns", &trace()]);
    assert!(refused.code == 2 && refused.stderr.contains("1048576"), "{refused:?}");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let folder = Folder::new();
    let first = fold(&folder, "cpu", "1/2", &[]);
    let refuse = |parts: &[&str], code: i32, expected: &str| {
        let ran = hodo(&[&["merge"], parts].concat());
        assert!(ran.code == code && ran.stderr.contains(expected), "{parts:?} {ran:?}");
    };
    refuse(&[&first], 2, "parts are missing: number 2");
    refuse(&[&first, &first], 2, "part 1 is there twice");
    let other = fold(&folder, "irq", "2/2", &[]);
    refuse(&[&first, &other], 2, "KIND differs");
    let other = fold(&folder, "cpu", "2/2", &["--time", "0%-50%"]);
    refuse(&[&first, &other], 2, "--time or --call differs");
    let other = fold(&folder, "cpu", "3/3", &[]);
    refuse(&[&first, &other], 2, "the number of parts differs");
    refuse(&[&first, "--by", "handler"], 2, "expected thread, process, cpu");
    let whole = std::fs::read(&first).unwrap();
    for (name, bytes) in [("cut", &whole[..whole.len() / 2]), ("empty", &[]), ("none", b"not a part")] {
        let damaged = folder.write(name, bytes);
        refuse(&[&first, &damaged], 3, "not written by `hodo fold`, or it is damaged");
    }
    let file = folder.file("unused");
    let wrong = hodo(&["fold", "cpu", "--part", "0/2", "-o", &file, &trace()]);
    assert!(wrong.code == 2 && wrong.stderr.contains("1/4"), "{wrong:?}");
}

#[test]
fn tables_are_the_same_however_traces_are_cut() {
    let report = |kind: &str, more: &[&str]| {
        hodo(&[&["report", kind, "-q", "--format", "json", &trace()], more].concat()).fine().stdout
    };
    for kind in ["count", "cpu", "io"] {
        let whole = report(kind, &["-j1", "--chunk-size", "1G"]);
        for cut in ["16K", "0.001s", "300us"] {
            assert_eq!(report(kind, &["-j3", "--chunk-size", cut]), whole, "{kind}, {cut}");
        }
    }
    assert_eq!(report("count", &["--chunk-size", "stream"]), report("count", &[]));
    let merged = hodo(&["report", "cpu", "--chunk-size", "stream", &trace()]);
    assert!(merged.stderr.contains("merges the streams"), "{}", merged.stderr);
}

fn recording() -> [String; 2] {
    ["perf/tiny.data", "perf/symfs"].map(fixture)
}

/// Every report, of control flow and of events, in separate processes: tasks as printed by `hodo plan`, merged as a
/// chain and as a tree.
#[test]
fn tasks_of_a_plan_are_the_whole_merged_as_a_chain_and_as_a_tree() {
    let ([recording, symfs], trace) = (recording(), trace());
    for (name, is_of_flow) in names() {
        let input: Vec<&str> = match is_of_flow {
            true => vec!["-q", "--chunk-size", "1K", "--symfs", &symfs, &recording],
            false => vec!["-q", "--chunk-size", "16K", &trace],
        };
        let whole = hodo(&[&["report", &name, "--format", "json"], &input[..]].concat()).fine().stdout;
        let folder = Folder::new();
        let plan = hodo(&[&["plan", &name, "--parts", "4"], &input[..]].concat()).fine().stdout;
        let fold = |(number, task): (usize, &str)| {
            let file = folder.file(&format!("{number}.part"));
            hodo(&["fold", "--task", task, "-o", &file]).fine();
            file
        };
        let parts: Vec<String> = plan.lines().enumerate().map(fold).collect();
        let [a, b, c, d] = &parts[..] else { panic!("{plan}") };
        let join = |one: &str, other: &str, name: &str| {
            let file = folder.file(name);
            hodo(&["merge", "--part", &file, one, other]).fine();
            file
        };
        let tables = |parts: &[&str]| hodo(&[&["merge", "--format", "json"], parts].concat()).fine().stdout;
        let chain = join(&join(&join(a, b, "ab"), c, "abc"), d, "abcd");
        assert_eq!(tables(&[&chain]), whole, "{name}: a chain");
        let (left, right) = (join(a, b, "left"), join(c, d, "right"));
        assert_eq!(tables(&[&right, &left]), whole, "{name}: a tree");
        let gap = hodo(&["merge", "--part", &folder.file("gap"), a, c]);
        assert!(gap.code == 2 && gap.stderr.contains("parts are missing: number 2"), "{gap:?}");
    }
}

#[test]
fn a_task_of_an_input_that_changed_is_refused() {
    let folder = Folder::new();
    let [recording, _] = recording();
    let bytes = std::fs::read(recording).unwrap();
    let copy = folder.write("copy.data", &bytes);
    let plan = hodo(&["plan", "functions", "--parts", "1", &copy]).fine().stdout;
    let fold = || hodo(&["fold", "--task", plan.trim(), "-o", &folder.file("part")]);
    let longer = [&bytes[..], &[0]].concat();
    // The last byte belongs to the counts of the emulator, which no stream contains.
    let mut other = bytes.clone();
    *other.last_mut().expect("a recording has bytes") ^= 1;
    for changed in [&bytes[..bytes.len() / 2], &longer, &other] {
        folder.write("copy.data", changed);
        let ran = fold();
        assert!(ran.code == 3 && ran.stderr.contains("changed since it was planned"), "{ran:?}");
    }
    folder.write("copy.data", &bytes);
    fold().fine();
    let ran = hodo(&["fold", "--task", "{}", "-o", &folder.file("part")]);
    assert!(ran.code == 2 && ran.stderr.contains("not a task printed by `hodo plan`"), "{ran:?}");
}

/// One experiment with a recording of control flow and a kernel trace.
#[test]
fn control_flow_and_kernel_events_are_read_in_one_command() {
    let ([recording, symfs], trace) = (recording(), trace());
    let both = ["-q", "--format", "json", "--symfs", &symfs, &recording, &trace];
    let alone = |kind: &str, more: &[&str]| {
        hodo(&[&["report", kind, "-q", "--format", "json"], more].concat()).fine().json()
    };
    let functions = alone("functions", &["--symfs", &symfs, &recording]);
    assert_eq!(hodo(&[&["report", "functions"], &both[..]].concat()).fine().json(), functions);
    assert_eq!(hodo(&[&["report", "cpu"], &both[..]].concat()).fine().json(), alone("cpu", &[&trace]));
    let all = hodo(&[&["report", "all"], &both[..]].concat()).fine().json();
    let mut expected = vec![functions];
    expected.extend(alone("all", &[&trace]).as_array().unwrap().iter().cloned());
    assert_eq!(all, serde_json::Value::Array(expected));
    let info = hodo(&["info", "-q", "--format", "json", &recording, &trace]).fine().json();
    assert_eq!(info["recordings"].as_array().unwrap().len(), 1);
    assert_eq!(info["traces"].as_array().unwrap().len(), 1);
    let text = hodo(&["info", "-q", &recording, &trace]).fine().stdout;
    assert!(text.contains("tid ") && text.contains("lttng2.13-kernel"), "{text}");
}

#[test]
fn an_input_that_can_not_be_read_hides_no_other() {
    let folder = Folder::new();
    let missing = folder.file("missing.data");
    let ran = hodo(&["report", "cpu", "--format", "json", &missing, &trace()]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(&format!("hodo: {missing}: ")), "{ran:?}");
    assert_eq!(ran.json(), hodo(&["report", "cpu", "--format", "json", &trace()]).fine().json());
}
