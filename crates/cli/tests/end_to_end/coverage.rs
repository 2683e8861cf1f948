//! Coverage: what ran, what did not, and several recordings together; models of branches and of an instruction cache.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use crate::{
    exports::output,
    profiles::table,
    recorded::{can_record, record},
    run::{Folder, fixture, hodo},
};

const SOURCE: &str = "\
static int never(int value)
{
    return value > 3 ? 1 : 2;
}
static int twice(int value)
{
    if (value > 1)
        value = value * 2;
    return value;
}
int main(int count, char **arguments)
{
    int sum = 0;
    for (int i = 0; i < count + 2; i++)
        sum += twice(i);
    if (arguments[0] == 0)
        sum += never(sum);
    return sum == 1000;
}
";

/// Compiles the program, and records it with this number of arguments.
fn recorded(folder: &Folder, arguments: &[&str]) -> String {
    let (source, program) = (folder.write("steps.c", SOURCE.as_bytes()), folder.file("steps"));
    let compiled = Command::new("gcc").args(["-O0", "-g", "-o", &program, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "gcc compiles {source}");
    let (recording, ran) = record(folder, &[], &[&[program.as_str()], arguments].concat());
    ran.fine();
    let named = folder.file(&format!("{}.data", arguments.len()));
    std::fs::rename(&recording, &named).unwrap();
    named
}

/// The executions of lines of the program.
fn lines(recordings: &[&str]) -> BTreeMap<u64, u64> {
    let all = [&["report", "coverage", "--by", "line", "--format", "json"], recordings].concat();
    let json = hodo(&all).fine().json();
    let names: Vec<&str> =
        json["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    let place = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let (line, executions) = (place("line"), place("executions"));
    let rows = json["rows"].as_array().unwrap().iter();
    let own = rows.filter_map(|row: &Value| {
        let number = row[line].as_str()?.rsplit_once("steps.c:")?.1;
        Some((number.parse().unwrap(), row[executions].as_u64().unwrap()))
    });
    own.collect()
}

#[test]
fn what_did_not_run_has_no_executions_and_recordings_add_up() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let (one, three) = (recorded(&folder, &[]), recorded(&folder, &["a", "b"]));
    let first = lines(&[&one]);
    // Twice with 0 and 1, once with 2: the condition's line runs three times, the line below it once.
    let of = |line: u64| first.get(&line).copied();
    assert_eq!([3, 7, 8, 14, 15, 17, 18].map(of), [0, 3, 1, 4, 3, 0, 1].map(Some), "{first:?}");
    let both = lines(&[&one, &three]);
    let second = lines(&[&three]);
    assert_eq!(both[&7], first[&7] + second[&7]);
    assert_eq!((second[&8], both[&8], both[&3]), (3, 4, 0));
}

#[test]
fn lcov_counts_lines_functions_and_both_ways_of_branches() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let (recording, info) = (recorded(&folder, &[]), folder.file("steps.info"));
    hodo(&["export", "--to", "lcov", "--module", "steps", "-q", "-o", &info, &recording]).fine();
    let text = std::fs::read_to_string(&info).unwrap();
    for expected in ["FNDA:0,never", "FNDA:3,twice", "FNDA:1,main", "DA:3,0", "DA:8,1", "BRDA:3,0,0,-"] {
        assert!(text.lines().any(|line| line == expected), "{expected}: {text}");
    }
    // The condition held once in three times; which way is the jump is the compiler's choice.
    let mut ways: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("BRDA:7,0,")?.split(',').nth(1)).collect();
    ways.sort_unstable();
    assert_eq!(ways, ["1", "2"]);
    let mut lcov = Command::new("lcov");
    let summary = output(lcov.args(["--rc", "lcov_branch_coverage=1", "--summary", &info]));
    assert!(summary.contains("functions..: 66.7% (2 of 3 functions)"), "{summary}");
    assert!(summary.contains("branches...: 62.5% (5 of 8 branches)"), "{summary}");
}

#[test]
fn models_are_called_modelled() {
    let (flow, symfs) = (&fixture("perf/tiny.data"), &fixture("perf/symfs"));
    let (summary, rows) = table("models", &["--symfs", symfs], flow);
    let executed = table("functions", &["--symfs", symfs], flow).0["instructions"].clone();
    assert_eq!(summary["instructions"], executed);
    let small = table("models", &["--symfs", symfs, "--icache", "64,1,16"], flow).0;
    let misses = |summary: &Value| summary["modelled_icache_misses"].as_u64().unwrap();
    assert!(misses(&small) > misses(&summary) && misses(&summary) > 0, "{small} {summary}");
    assert!(!rows.is_empty());
    let wrong = hodo(&["report", "models", "--icache", "1000,1,16", flow]);
    assert!(wrong.code == 2 && wrong.stderr.contains("power of two"), "{wrong:?}");
    let wrong = hodo(&["report", "functions", "--icache", "64,1,16", flow]);
    assert!(wrong.code == 2 && wrong.stderr.contains("hodo report models"), "{wrong:?}");
}
