//! Code of a run-time compiler, with the names in the compiler's files.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    recorded::{can_record, compile, record},
    run::{Folder, hodo, rows},
};

/// Records the lab's small compiler with the file that it writes. Returns the instruction count of each function of
/// that file.
fn run(kind: &str, module: &str) -> Option<BTreeMap<String, u64>> {
    if !can_record() {
        return None;
    }
    let folder = Folder::new();
    let program = compile(&folder, "jitted.c", &["-O1"]);
    let files = folder.path().into_os_string().into_string().expect("a path of UTF-8");
    let (recording, ran) = record(&folder, &[], &[&program, kind, &files]);
    assert_eq!(ran.fine().stdout, "sum 57\n");
    let table = hodo(&["report", "functions", "--strict", "--format", "json", &recording]).fine().json();
    let info = hodo(&["info", "--format", "json", &recording]).fine().json();
    let truth = &info["truth"][0];
    assert_eq!(table["summary"]["instructions"], truth["instructions"]);
    assert_eq!(table["summary"]["calls"], truth["calls"]);
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
        counts.insert(row["function"].as_str().expect("a name").to_owned(), count);
    }
    Some(counts)
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn a_jitdump_names_each_function_at_its_time() {
    let Some(counts) = run("dump", "jit-") else { return };
    assert_eq!(counts, expected(&[("double", 6), ("sum", 15), ("quick", 14)]));
}

/// A perf map has no times: the last function at an address gets everything that ran there.
#[test]
fn a_perf_map_names_by_address_alone() {
    let Some(counts) = run("map", "perf-") else { return };
    assert_eq!(counts, expected(&[("sum", 21), ("quick", 14)]));
}
