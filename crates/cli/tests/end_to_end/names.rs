//! Functions and system calls by short names, and suggestions for misspelt ones.

use std::process::Command;

use crate::{
    profiles::table,
    recorded::{can_record, record},
    run::{Folder, Ran, fixture, hodo},
};

/// Members of classes and namespaces, some of which have equal last names.
const SOURCE: &str = "#include <cstdio>
namespace app {
struct Store {
    __attribute__((noinline)) int lookup(int k) { volatile int s = 0; for (int i = 0; i < k; i++) s = s + i; return s; }
    __attribute__((noinline)) int size() { volatile int s = 1; return s; }
};
struct Cache { __attribute__((noinline)) int size() { volatile int s = 2; return s; } };
template <typename T> __attribute__((noinline)) T twice(T x) { volatile T y = x; return y + y; }
}
int main() {
    app::Store store; app::Cache cache; int t = 0;
    for (int i = 0; i < 500; i++) t += store.lookup(i % 50 == 3 ? 9000 : 20);
    printf(\"%d %d\\n\", t + app::twice<long>(1) > 0, store.size() + cache.size());
}
";

fn recorded(folder: &Folder) -> String {
    let (source, program) = (folder.write("members.cpp", SOURCE.as_bytes()), folder.file("members"));
    let compiled = Command::new("g++").args(["-O1", "-g", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "g++ compiles {source}");
    let (recording, ran) = record(folder, &[], &[&program]);
    ran.fine();
    recording
}

#[test]
fn members_are_found_by_short_names() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = recorded(&folder);
    for name in ["lookup", "Store::lookup", "lookup(int)", "app::Store::lookup", "lookup@members"] {
        let json = hodo(&["latency", "--function", name, "--format", "json", &recording]).fine().json();
        assert_eq!(json["summary"]["function"], "app::Store::lookup(int)", "{name}");
        assert_eq!(json["summary"]["count"], 500, "{name}");
        let (summary, rows) = table("paths", &["--function", name], &recording);
        assert_eq!(summary["executions"], 500, "{name}");
        assert_eq!(rows[0]["function"], "app::Store::lookup(int)", "{name}");
    }
    assert_eq!(table("paths", &["--function", "twice"], &recording).0["executions"], 1);
    let annotated = hodo(&["annotate", "lookup", &recording]).fine().stdout;
    assert!(annotated.starts_with("app::Store::lookup(int) in "), "{annotated}");
    let third = table("functions", &["--call", "lookup#3"], &recording).0;
    assert!(third["instructions"].as_u64().is_some_and(|count| count > 20), "{third}");
    let count = "select sum(entries) as n from paths where depth = 0";
    let json = hodo(&["sql", "--function", "lookup", "--format", "json", &recording, count]).fine().json();
    assert_eq!(json["rows"][0][0], 500);
    let per = hodo(&["diff", "--per", "lookup", "--format", "json", &recording, &recording]).fine().json();
    assert_eq!(per["summary"]["a_executions"], 500);
    let markers =
        ["latency", "--from", "entry:lookup", "--to", "exit:lookup", "--format", "json", &recording];
    assert_eq!(hodo(&markers).fine().json()["summary"]["count"], 500);
}

#[test]
fn a_short_name_of_several_functions_is_refused() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = recorded(&folder);
    for command in [
        &["latency", "--function", "size"][..],
        &["annotate", "size"],
        &["report", "paths", "--function", "size"],
        &["diff", "--per", "size", &recording],
    ] {
        let ran = hodo(&[command, &[&recording]].concat());
        assert_eq!(ran.code, 2, "{command:?}: {ran:?}");
        for text in ["2 functions are called `size`", "app::Store::size()", "app::Cache::size()"] {
            assert!(ran.stderr.contains(text), "{command:?}: {ran:?}");
        }
    }
    let cache = hodo(&["latency", "--function", "Cache::size", "--format", "json", &recording]).fine().json();
    assert_eq!(cache["summary"]["count"], 1);
}

#[test]
fn misspelt_names_get_suggestions() {
    let kernel = &fixture("ctf/lttng2.13-kernel");
    let call = hodo(&["latency", "--syscall", "wriet", kernel]).fine();
    assert!(call.stderr.contains("wriet never ran; the nearest that did: write"), "{call:?}");
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = recorded(&folder);
    let suggested = |ran: Ran| {
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("did you mean app::Store::lookup(int)"), "{ran:?}");
    };
    for name in ["lokup", "lookpu", "app::Store::lokup"] {
        suggested(hodo(&["latency", "--function", name, &recording]));
        suggested(hodo(&["report", "paths", "--function", name, &recording]));
        suggested(hodo(&["annotate", name, &recording]));
        suggested(hodo(&["diff", "--per", name, &recording, &recording]));
    }
}
