//! Exact profiles for compilers and optimisers, read by LLVM's tools.

use std::{collections::BTreeMap, fs, process::Command};

use crate::{
    exports::{export, output},
    profiles::{record_source, table},
    recorded::can_record,
    run::{Folder, hodo},
};

/// Executions of the branches within the recorded program, by kind.
fn branches(recording: &str) -> BTreeMap<String, u64> {
    let (_, rows) = table("branches", &[], recording);
    let mut sums = BTreeMap::new();
    for row in rows.iter().filter(|row| row["module"] == "program" && row["to_module"] == "program") {
        *sums.entry(row["kind"].as_str().unwrap().to_owned()).or_default() +=
            row["executions"].as_u64().unwrap();
    }
    sums
}

#[test]
fn llvm_counts_the_calls_of_a_function() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let file = export(&folder, "llvm", &["--module", "program"], &recording);
    let profile = folder.file("profile");
    let mut generate = Command::new("llvm-profgen-19");
    generate.args(["--use-offset=0", "--unsymbolized-profile", &file, "--output", &profile]);
    output(generate.args(["--binary", &folder.file("program")]));
    let shown = output(Command::new("llvm-profdata-19").args(["show", "--sample", &profile]));
    // `Function: NAME: SAMPLES, EXECUTIONS, …`
    let head = |name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(&format!("Function: {name}: ")))?;
        line.split(", ").nth(1)?.parse::<u64>().ok()
    };
    let (_, rows) = table("functions", &[], &recording);
    for name in ["fib", "main"] {
        let calls = rows.iter().find(|row| row["function"] == name).expect("it ran")["calls"].as_u64();
        assert_eq!(head(name), calls, "{name}: {shown}");
    }
}

#[test]
fn a_profile_is_that_of_the_recorded_program() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    // The loader runs much more code than this program.
    folder.write("short.c", b"int main(void) { return 0; }");
    let program = folder.file("short");
    output(Command::new("cc").args(["-O1", "-o", &program, &folder.file("short.c")]));
    let recording = folder.file("short.data");
    hodo(&["record", "--engine", "native", "-q", "-o", &recording, "--", &program]).fine();
    for to in ["bolt", "llvm", "autofdo"] {
        let file = folder.file(to);
        let said = hodo(&["export", "--to", to, "-o", &file, &recording]).fine().stderr;
        let (named, others) = said.split_once("--module").unwrap_or_else(|| panic!("{said}"));
        assert!(named.contains("profile of short, the recorded program's file"), "{said}");
        assert!(others.contains("ld-linux") && !others.contains("short"), "{said}");
        let chosen = export(&folder, to, &["--module", "short"], &recording);
        assert_eq!(fs::read(&file).unwrap(), fs::read(chosen).unwrap(), "{to}");
    }
}

#[test]
fn bolt_reads_every_branch() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    let file = export(&folder, "bolt", &["--module", "program"], &recording);
    let text = fs::read_to_string(&file).unwrap();
    // `B FROM TO EXECUTIONS MISPREDICTED`, where code outside the module is at the last address.
    let elsewhere = format!("{:x}", u64::MAX);
    let inner = text.lines().filter(|line| line.starts_with('B') && !line.contains(&elsewhere));
    let count = |line: &str| line.split(' ').nth(3).and_then(|count| count.parse::<u64>().ok()).unwrap();
    assert_eq!(inner.map(count).sum::<u64>(), branches(&recording)["taken"]);

    let (program, optimised) = (folder.file("program"), folder.file("optimised"));
    let bolt = Command::new("llvm-bolt-19").args([&program, "-pa", "-p", &file, "-o", &optimised]).output();
    let bolt = bolt.expect("`cargo xtask setup` installs llvm-bolt-19");
    let printed = String::from_utf8_lossy(&[bolt.stdout, bolt.stderr].concat()).into_owned();
    assert!(bolt.status.success(), "{printed}");
    let read = format!("PERF2BOLT: read {} aggregated LBR entries", text.lines().count());
    assert!(printed.contains(&read), "{read}: {printed}");
    assert!(printed.contains("Out of range traces involving unknown regions: 0 "), "{printed}");
    assert_eq!(output(Command::new(optimised).arg("10")), output(Command::new(program).arg("10")));
}
