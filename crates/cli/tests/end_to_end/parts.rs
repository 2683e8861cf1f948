//! What processes fold by themselves is, merged, what one makes of the whole.

use std::path::Path;

use crate::run::{Folder, hodo};

const PARTS: usize = 3;

fn trace() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ctf/lttng2.13-kernel");
    folder.to_str().unwrap().to_owned()
}

/// The names of analyses of kernel events, as the list of reports tells them.
fn analyses() -> Vec<String> {
    let list = hodo(&["report", "--list"]).fine().stdout;
    let names = list.lines().filter_map(|line| line.split_once(" kernel events: "));
    names.map(|(name, _)| name.trim().to_owned()).filter(|name| name != "all").collect()
}

/// Folds a part; its file.
fn fold(folder: &Folder, analysis: &str, part: &str, more: &[&str]) -> String {
    let file = folder.file(&format!("{}.part", part.replace('/', "-of-")));
    let fixed = ["fold", "-q", "--analysis", analysis, "--part", part, "-o", &file, "--chunk-size", "16K"];
    hodo(&[&fixed, more, &[&trace()]].concat()).fine();
    file
}

#[test]
fn merged_parts_are_the_whole() {
    let names = analyses();
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

#[test]
fn all_analyses_in_one_pass_are_each_by_itself() {
    let all = hodo(&["report", "all", "-q", "--format", "json", &trace()]).fine().json();
    let each = analyses().into_iter().map(|name| {
        let table = hodo(&["report", &name, "-q", "--format", "json", &trace()]).fine().json();
        assert_eq!(table["table"], name);
        table
    });
    assert_eq!(all, each.collect::<serde_json::Value>());
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
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let folder = Folder::new();
    let first = fold(&folder, "cpu", "1/2", &[]);
    let refuse = |parts: &[&str], code: i32, expected: &str| {
        let ran = hodo(&[&["merge"], parts].concat());
        assert!(ran.code == code && ran.stderr.contains(expected), "{parts:?} {ran:?}");
    };
    refuse(&[&first], 2, "2 missing");
    refuse(&[&first, &first], 2, "part 1 is there twice");
    let other = fold(&folder, "irq", "2/2", &[]);
    refuse(&[&first, &other], 2, "--analysis differs");
    let other = fold(&folder, "cpu", "2/2", &["--time", "0%-50%"]);
    refuse(&[&first, &other], 2, "--time differs");
    let other = fold(&folder, "cpu", "3/3", &[]);
    refuse(&[&first, &other], 2, "the number of parts differs");
    refuse(&[&first, "--by", "handler"], 2, "expected thread, process, cpu");
    let whole = std::fs::read(&first).unwrap();
    for (name, bytes) in [("cut", &whole[..whole.len() / 2]), ("empty", &[]), ("none", b"not a part")] {
        let damaged = folder.write(name, bytes);
        refuse(&[&first, &damaged], 3, "no part that `hodo fold` wrote, or it is damaged");
    }
    let file = folder.file("unused");
    let wrong = hodo(&["fold", "--analysis", "cpu", "--part", "0/2", "-o", &file, &trace()]);
    assert!(wrong.code == 2 && wrong.stderr.contains("1/4"), "{wrong:?}");
}
