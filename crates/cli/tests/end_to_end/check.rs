//! `hodo check`: a program is measured, changed, and measured again.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::run::{Folder, Ran, hodo};

/// A list that `push` makes larger: by half, or by one if `GROWS_BY_ONE`.
pub(crate) const PROGRAM: &str = r#"
#include <stdlib.h>
static int *list;
static int room, length;
__attribute__((noinline)) void grow(void) {
#ifdef GROWS_BY_ONE
    room += 1;
#else
    room += room / 2 + 8;
#endif
    list = realloc(list, room * sizeof *list);
}
__attribute__((noinline)) void push(int value) {
    if (length == room) grow();
    list[length++] = value;
}
int main(int count, char **words) {
    int rounds = words[1] ? atoi(words[1]) : 1000;
    for (int n = 0; n < rounds; n++) push(n);
    return list[length - 1] != rounds - 1;
}
"#;

/// Compiles the program into a folder as `prog`.
fn compile(folder: &Folder, flags: &[&str]) {
    let source = folder.write("prog.c", PROGRAM.as_bytes());
    let compiled = Command::new("cc")
        .args(["-O1", "-g"])
        .args(flags)
        .args(["-o", &folder.file("prog"), &source])
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc compiles it");
}

/// `hodo check` with the configuration of a folder.
fn check(folder: &Folder, options: &[&str]) -> Ran {
    hodo(&[&["check", "--quiet", "--config", &folder.file("hodo.toml")], options].concat())
}

const CASE: &str = r#"
[[case]]
name = "push"
command = ["./prog"]
functions = { push = "1%" }
limits = { allocations = 0 }
"#;

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.write("hodo.toml", CASE.as_bytes());
    compile(&folder, &[]);
    check(&folder, &["--save"]).fine();
    folder
}

#[test]
fn an_unchanged_program_passes_and_a_slower_one_fails_with_the_function() {
    let folder = prepared();
    let text = check(&folder, &[]).fine().stdout;
    assert_eq!(text, "ok   push (3 runs)\n1 passed, 0 failed\n");
    compile(&folder, &["-DGROWS_BY_ONE"]);
    let failed = check(&folder, &[]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let lines: Vec<&str> = failed.stdout.lines().collect();
    assert_eq!(lines[0], "FAIL push (3 runs)");
    assert!(lines[1].starts_with("FAIL   instructions +"), "{failed:?}");
    assert!(failed.stdout.contains("more calls of `grow` from `push`"), "{failed:?}");
    let verdict = check(&folder, &["--format", "json"]).json();
    let causes = verdict["cases"][0]["causes"].as_array().expect("causes");
    assert_eq!(
        (&causes[0]["function"]["name"], &causes[0]["what"]["callee"]["name"]),
        (&"push".into(), &"grow".into())
    );
    let allocations = verdict["cases"][0]["counts"].as_array().expect("counts").iter();
    let allocations =
        allocations.clone().find(|count| count["quantity"] == "allocations").expect("allocations");
    // One for each number, beside a few of the loader and the C library.
    let made = allocations["now"]["low"].as_u64().expect("a count");
    assert!((1000..1010).contains(&made), "{made}");
    assert_eq!(allocations["outcome"], "over");
}

#[test]
fn the_new_baseline_is_saved_and_a_missing_one_fails() {
    let folder = prepared();
    compile(&folder, &["-DGROWS_BY_ONE"]);
    let saved = check(&folder, &["--save"]).fine();
    assert!(saved.stdout.starts_with("FAIL push"), "{saved:?}");
    check(&folder, &[]).fine();
    fs::remove_file(folder.file("hodo.baseline")).expect("it was written");
    let missing = check(&folder, &[]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("has no counts of push: `hodo check --save` writes them"), "{missing:?}");
}

#[test]
fn a_function_alone_and_its_input_are_measured() {
    let folder = prepared();
    let case = r#"
        [[case]]
        name = "grow"
        command = "read rounds; exec ./prog $rounds"
        input = "rounds"
        function = "push"
        runs = 2
    "#;
    folder.write("hodo.toml", case.as_bytes());
    folder.write("rounds", b"100\n");
    check(&folder, &["--save"]).fine();
    let verdict = check(&folder, &["--format", "json"]).fine().json();
    let calls = count(&verdict, "calls");
    folder.write("rounds", b"200\n");
    let more = check(&folder, &["--format", "json"]);
    assert_eq!(more.code, 1, "{more:?}");
    assert!(count(&more.json(), "calls") > calls);
    let instructions = count(&more.json(), "instructions");
    assert!((100..20_000).contains(&instructions), "{instructions} are more than those of `push`");
}

/// The median of a count of the first case.
fn count(verdict: &Value, quantity: &str) -> u64 {
    let counts = verdict["cases"][0]["counts"].as_array().expect("counts");
    let count = counts.iter().find(|count| count["quantity"] == quantity).expect("the quantity");
    count["now"]["median"].as_u64().expect("a number")
}

#[test]
fn the_baseline_of_the_merge_base_is_read_from_git() {
    let folder = prepared();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(folder.path()).args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=trunk",
        ]);
        let answer = git.args(words).output().expect("git");
        assert!(answer.status.success(), "{answer:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "hodo.toml", "hodo.baseline"]);
    git(&["commit", "--quiet", "-m", "baseline"]);
    git(&["checkout", "--quiet", "-b", "change"]);
    fs::remove_file(folder.file("hodo.baseline")).expect("it was written");
    check(&folder, &["--against", "trunk"]).fine();
    let unknown = check(&folder, &["--against", "nothing"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(unknown.stderr.contains("git merge-base"), "{unknown:?}");
}

#[test]
fn a_case_that_fails_leaves_the_others_and_costly_counts_need_a_limit() {
    let folder = prepared();
    let failing = "[[case]]\nname = \"no\"\ncommand = \"exit 7\"\n";
    folder.write("hodo.toml", format!("{failing}{CASE}").as_bytes());
    fs::remove_file(folder.file("hodo.baseline")).expect("it was written");
    let saved = check(&folder, &["--save"]);
    assert!(saved.code == 3 && saved.stderr.contains("expected exit code 0"), "{saved:?}");
    let judged = check(&folder, &["--format", "json"]);
    assert_eq!(judged.code, 3, "{judged:?}");
    let verdict = judged.json();
    assert!(verdict["cases"][0]["name"] == "push" && verdict["cases"][0]["passed"] == true, "{verdict}");
    let quantities = |verdict: &Value| -> Vec<String> {
        let counts = verdict["cases"][0]["counts"].as_array().expect("counts").iter();
        counts.map(|count| count["quantity"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(quantities(&verdict), ["instructions", "calls", "allocations", "instructions"]);
    folder
        .write("hodo.toml", format!("limits = {{ branches = \"1%\", system-calls = 0 }}\n{CASE}").as_bytes());
    let unknown = check(&folder, &[]);
    assert!(unknown.code == 1 && unknown.stderr.contains("hodo check --save"), "{unknown:?}");
    check(&folder, &["--save"]).fine();
    let verdict = check(&folder, &["--format", "json"]).fine().json();
    assert!(count(&verdict, "branches") > 10_000 && count(&verdict, "system-calls") > 5, "{verdict}");
}

#[test]
fn mistakes_and_failing_commands_are_named() {
    let folder = Folder::new();
    let cases = [
        ("", "no [[case]]"),
        ("[[case]]\nname = \"a\"\ncommand = [\"/no/such/program\"]\n", "/no/such/program"),
        ("[[case]]\nname = \"a\"\ncommand = \"exit 7\"\n", "expected exit code 0"),
        ("[[case]]\nname = \"a\"\ncommand = [\"true\"]\nfunction = \"nothing\"\n", "nothing"),
    ];
    for (text, expected) in cases {
        folder.write("hodo.toml", text.as_bytes());
        let ran = check(&folder, &[]);
        assert!(ran.code >= 2 && ran.stderr.contains(expected), "{text}: {ran:?}");
    }
    folder.write("hodo.toml", b"[[case]]\nname = \"a\"\ncommand = \"exit 7\"\nexit_code = 7\n");
    check(&folder, &["--save"]).fine();
    let kept = folder.file("kept");
    check(&folder, &["--keep", &kept]).fine();
    let names: Vec<_> = (1..=3).map(|run| Path::new(&kept).join(format!("a-{run}.data"))).collect();
    assert!(names.iter().all(|path| path.exists()), "{names:?}");
}
