//! Code of a run-time compiler, with the names in the compiler's files.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    recorded::{can_record, compile},
    run::{Folder, hodo, rows},
};

/// Records the lab's small compiler with the file that it writes. Returns the instruction count of each function of
/// that file.
fn run(engine: &str, kind: &str, module: &str) -> Option<BTreeMap<String, u64>> {
    if engine == "emulate" && !can_record() {
        return None;
    }
    let folder = Folder::new();
    let program = compile(&folder, "jitted.c", &["-O1"]);
    let files = folder.path().into_os_string().into_string().expect("a path of UTF-8");
    let recording = folder.file("jitted.data");
    let ran = hodo(&["record", "--engine", engine, "-o", &recording, "--", &program, kind, &files]);
    assert_eq!(ran.fine().stdout, "sum 57\n");
    let table = hodo(&["report", "functions", "--strict", "--format", "json", &recording]).fine().json();
    let info = hodo(&["info", "--format", "json", &recording]).fine().json();
    if engine == "emulate" {
        let truth = &info["truth"][0];
        assert_eq!(table["summary"]["instructions"], truth["instructions"]);
        assert_eq!(table["summary"]["calls"], truth["calls"]);
    }
    let modules = info["modules"].as_array().expect("a list of modules");
    let listed =
        modules.iter().find(|found| found["name"].as_str().is_some_and(|name| name.contains(module)));
    assert_eq!(
        listed.map(|module| (&module["symbols"], &module["problem"])),
        Some((&3.into(), &Value::Null))
    );
    let mut counts = BTreeMap::new();
    for row in rows(&table).iter().filter(|row| row["module"].as_str().unwrap().contains(module)) {
        let count = row["self_instructions"].as_u64().expect("a count");
        let function = row["function"].as_str().expect("a name");
        counts.insert(function.to_owned(), count);
        // The recording has the code that ran, and a jitdump all of it.
        let annotated = hodo(&["annotate", function, &recording]).fine().stdout;
        let code: Vec<&str> = annotated.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        assert_eq!(code[1..], *code_of(function, kind), "{annotated}");
    }
    Some(counts)
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

/// The instructions of a function of the compiler, as far as they are known.
fn code_of(function: &str, kind: &str) -> &'static [&'static str] {
    match (function, kind) {
        ("double", _) => &["lea (%rdi,%rdi),%rax", "ret"],
        ("sum", _) => &["lea (%rdi,%rdi),%rax", "add %rdi,%rax", "ret"],
        (_, "dump") => &["mov %rdi,%rax", "ret", "nop"],
        _ => &["mov %rdi,%rax", "ret", "(code that is not kept)"],
    }
}

#[test]
fn a_jitdump_names_each_function_at_its_time() {
    for engine in ["emulate", "native"] {
        let Some(counts) = run(engine, "dump", "jit-") else { continue };
        assert_eq!(counts, expected(&[("double", 6), ("sum", 15), ("quick", 14)]), "{engine}");
    }
}

/// A perf map has no times: the last function at an address gets everything that ran there.
#[test]
fn a_perf_map_names_by_address_alone() {
    for engine in ["emulate", "native"] {
        let Some(counts) = run(engine, "map", "perf-") else { continue };
        assert_eq!(counts, expected(&[("sum", 21), ("quick", 14)]), "{engine}");
    }
}
