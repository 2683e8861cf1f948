//! `hodo report paths`: all call paths, or those of a function's executions.

use serde_json::Value;

use crate::{
    profiles::{record_source, table},
    recorded::{can_record, record},
    run::{Folder, hodo},
};

fn sum(rows: &[Value], column: &str) -> u64 {
    rows.iter().map(|row| row[column].as_u64().unwrap()).sum()
}

/// Returns the paths and numbers in folded output.
fn folded(arguments: &[&str], recording: &str) -> Vec<(String, u64)> {
    let text = hodo(&[&["report", "paths", "--format", "folded"], arguments, &[recording]].concat()).fine();
    let split = |line: &str| {
        let (path, number) = line.rsplit_once(' ').unwrap();
        (path.to_owned(), number.parse().unwrap())
    };
    text.stdout.lines().map(split).collect()
}

#[test]
fn paths_of_a_function_are_its_executions() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "slowpath.c", &[]);
    let (_, functions) = table("functions", &[], &recording);
    let of = |name: &str| functions.iter().find(|row| row["function"] == name).unwrap();
    let (summary, rows) = table("paths", &["--function", "insert"], &recording);
    assert_eq!(summary["executions"], of("insert")["calls"]);
    assert_eq!(summary["instructions"], of("insert")["total_instructions"]);
    assert_eq!(summary["cut_instructions"], 0);
    assert_eq!(sum(&rows, "self_instructions"), summary["instructions"].as_u64().unwrap());
    assert_eq!((&rows[0]["function"], &rows[0]["depth"]), (&"insert".into(), &0.into()));
    let with_file = table("paths", &["--function", "insert@program"], &recording);
    assert_eq!(with_file.0["executions"], summary["executions"]);

    let by_instructions = folded(&["--function", "insert"], &recording);
    assert_eq!(
        by_instructions[0],
        ("insert".to_owned(), of("insert")["self_instructions"].as_u64().unwrap())
    );
    assert!(by_instructions.iter().any(|(path, _)| path == "insert;rehash;place"), "{by_instructions:?}");
    let total: u64 = by_instructions.iter().map(|(_, number)| number).sum();
    assert_eq!(total, summary["instructions"].as_u64().unwrap());
    let by_time: u64 = folded(&["--by", "time"], &recording).iter().map(|(_, number)| number).sum();
    let (all, rows) = table("paths", &["--by", "time"], &recording);
    assert_eq!(by_time, sum(&rows, "self_time_ns"));
    assert_eq!(all["instructions"], table("tree", &[], &recording).0["instructions"]);

    let part = |number: &str| {
        let out = folder.file(&format!("{}.part", &number[..1]));
        hodo(&["fold", "--analysis", "paths", "--part", number, "-o", &out, &recording]).fine();
        out
    };
    let parts = [part("1/2"), part("2/2")];
    let merged =
        hodo(&["merge", "--function", "insert", "--format", "folded", &parts[0], &parts[1]]).fine().stdout;
    let whole = hodo(&["report", "paths", "--function", "insert", "--format", "folded", &recording]).fine();
    assert_eq!(merged, whole.stdout);
}

#[test]
fn a_root_that_is_not_there_is_said() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    for (arguments, expected) in [
        (
            &["paths", "--function", "fibb"][..],
            "no function `fibb` in the programs of the recording; did you mean fib?",
        ),
        (&["paths", "--syscall", "mmap"], "--engine machine"),
        (&["paths", "--syscall", "mmap", "--function", "fib"], "cannot be used with"),
        (&["functions", "--function", "fib"], "for `hodo report paths`"),
        (&["paths", "--by", "calls"], "expected instructions, time"),
    ] {
        let ran = hodo(&[&["report"], arguments, &[&recording]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    }
}

/// The functions that implement system calls are identified by the kernel's naming scheme.
#[test]
fn paths_of_a_system_call_begin_at_the_function_that_does_it() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let source = folder.write(
        "calls.c",
        b"#define CALL(name) __attribute__((noinline)) long name(long x)\n\
        CALL(__se_sys_first) { return x * 3; }\nCALL(__x64_sys_first) { return __se_sys_first(x) + 1; }\n\
        CALL(__x64_sys_second) { return x + 7; }\nint main(void)\n{\n    volatile long x = 1;\n    \
        for (int i = 0; i < 7; i++)\n        x = __x64_sys_first(x);\n    x = __x64_sys_second(x);\n    return 0;\n}\n",
    );
    let program = folder.file("calls");
    let compiled = std::process::Command::new("cc").args(["-O1", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let (recording, _) = record(&folder, &[], &[&program]);
    let (summary, rows) = table("paths", &["--syscall", "first"], &recording);
    assert_eq!(summary["executions"], 7);
    assert_eq!(
        rows.iter().map(|row| &row["function"]).collect::<Vec<_>>(),
        ["__x64_sys_first", "__se_sys_first"]
    );
    for (per, executions) in [("syscall:second", 1), ("syscall:first", 7), ("syscall", 8)] {
        let diff = ["diff", "-q", "--format", "json", "--per", per, &recording, &recording];
        assert_eq!(hodo(&diff).fine().json()["summary"]["b_executions"], executions, "{per}");
    }
}
