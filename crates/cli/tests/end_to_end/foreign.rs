//! Programs for Arm and RISC-V, recorded on the emulated processor.

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::Value;

use crate::{
    exports::{export, output},
    profiles::table,
    run::{Folder, command, hodo},
};

const TARGETS: [&str; 2] = ["aarch64", "riscv64"];

/// Returns whether programs of a target can be compiled and run here; prints a message if not.
pub(crate) fn can_record(target: &str) -> bool {
    let missing = [format!("qemu-{target}"), format!("{target}-linux-gnu-gcc")]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(program) = &missing {
        eprintln!("skipped: {program} is not installed (cargo xtask setup)");
    }
    missing.is_none()
}

/// Compiles a program of the lab; returns its path.
pub(crate) fn compile(folder: &Folder, target: &str, source: &str, flags: &[&str]) -> String {
    let (program, workloads) =
        (folder.file(target), concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/workloads"));
    let mut compiler = Command::new(format!("{target}-linux-gnu-gcc"));
    output(compiler.args(flags).args(["-o", &program, &format!("{workloads}/{source}")]));
    program
}

/// Records a command, without naming an engine, and returns the recording.
fn record(folder: &Folder, command: &[&str], code: i32) -> String {
    let out = folder.file("perf.data");
    let ran = hodo(&[&["record", "-o", &out, "--"], command].concat());
    assert_eq!(ran.code, code, "{ran:?}");
    let chosen = ran.stderr.lines().filter(|line| line.contains("the emulated processor is used"));
    assert_eq!(chosen.count(), 1, "{ran:?}");
    out
}

/// Addresses of the instructions of a recording, decoded with these options.
fn decoded(recording: &str, options: &[&str]) -> Vec<u64> {
    let words = ["script", "--insns", "--fields", "ip", "--strict"];
    let listing = hodo(&[&words, options, &[recording]].concat()).fine().stdout;
    listing.lines().map(|line| u64::from_str_radix(line.trim(), 16).expect("an address")).collect()
}

/// Addresses of the instructions that QEMU's own log shows, each translated alone.
fn logged(folder: &Folder, target: &str, program: &str) -> Vec<u64> {
    let log = folder.file("log");
    let mut qemu = Command::new(format!("qemu-{target}"));
    output(qemu.args(["-singlestep", "-d", "exec,nochain", "-D", &log, program]));
    let text = fs::read_to_string(log).unwrap();
    // `Trace 0: 0x7f35bf800100 [flags/address/…] symbol`
    let address = |line: &str| u64::from_str_radix(line.split('/').nth(1)?, 16).ok();
    text.lines().filter(|line| line.starts_with("Trace")).filter_map(address).collect()
}

#[test]
fn every_instruction_is_that_of_the_emulators_own_log() {
    for (target, source) in [("aarch64", "tiny_arm.S"), ("riscv64", "tiny_riscv.S")] {
        if !can_record(target) {
            continue;
        }
        let folder = Folder::new();
        let program = compile(&folder, target, source, &["-nostdlib", "-static"]);
        let mut expected = logged(&folder, target, &program);
        let recording = record(&folder, &[&program], 0);
        if target == "riscv64" {
            // An `ecall` does not retire.
            let listing = output(Command::new("riscv64-linux-gnu-objdump").args(["-d", &program]));
            let calls = listing.lines().filter(|line| line.ends_with("ecall"));
            let calls: Vec<u64> = calls
                .filter_map(|line| u64::from_str_radix(line.split(':').next()?.trim(), 16).ok())
                .collect();
            assert!(!calls.is_empty());
            expected.retain(|address| !calls.contains(address));
        }
        assert!(expected.len() > 4_000);
        assert_eq!(decoded(&recording, &[]), expected, "{target}");
        assert_eq!(decoded(&recording, &["--chunk-size", "1"]), expected, "{target}");
        let info = hodo(&["info", &recording]).fine().stdout;
        assert!(info.contains(&format!("emulated processor (qemu-{target} ")), "{info}");
        assert!(info.contains("virtual time: one instruction is one cycle of 1 GHz"), "{info}");
    }
}

/// Threads, signals that interrupt anywhere, faults: what is decoded is what the plugin counted, block by block.
#[test]
fn as_much_is_decoded_as_ran() {
    for target in TARGETS {
        for (source, flags) in
            [("signals.c", &["-O2"][..]), ("threads.c", &["-O1", "-pthread"]), ("fib.c", &["-O2", "-static"])]
        {
            if !can_record(target) {
                continue;
            }
            let folder = Folder::new();
            let program = compile(&folder, target, source, flags);
            let recording = record(&folder, &[&program, "10"], 0);
            let info: Value = hodo(&["info", "--format", "json", &recording]).fine().json();
            let truth = &info["truth"];
            let truth = truth.as_array().unwrap_or_else(|| panic!("{info}"));
            let sum = |name: &str| truth.iter().map(|thread| thread[name].as_u64().unwrap()).sum::<u64>();
            let (summary, _) = table("functions", &["--strict"], &recording);
            assert_eq!(summary["instructions"], sum("traced_instructions"), "{target} {source}");
            assert_eq!(summary["threads"], truth.len(), "{target} {source}");
            if target == "aarch64" {
                assert_eq!(sum("traced_instructions"), sum("instructions"), "{source}");
            }
        }
    }
}

#[test]
fn calls_lines_and_exit_codes_of_a_dynamic_program() {
    for target in TARGETS {
        if !can_record(target) {
            continue;
        }
        let folder = Folder::new();
        let source = folder.write(
            "children.c",
            b"#include <sys/wait.h>\n\
              #include <unistd.h>\n\
              __attribute__((noinline)) int work(int n) { volatile int sum = 0; while (n--) sum += n; return sum; }\n\
              int main(int count, char **words) {\n\
                  int status;\n\
                  if (count > 1) { work(10); return 5; }\n\
                  if (!fork()) { work(20); execl(words[0], words[0], \"again\", (char *)0); }\n\
                  wait(&status);\n\
                  work(30);\n\
                  return WEXITSTATUS(status);\n\
              }\n",
        );
        let program = folder.file("children");
        output(Command::new(format!("{target}-linux-gnu-gcc")).args(["-O1", "-g", "-o", &program, &source]));
        let recording = record(&folder, &[&program], 5);
        let (summary, rows) = table("functions", &["--strict"], &recording);
        assert_eq!(summary["threads"], 2, "{target}");
        let calls = |name: &str| rows.iter().find(|row| row["function"] == name).unwrap()["calls"].clone();
        assert_eq!((calls("work"), calls("main")), (3.into(), 2.into()), "{target}");
        // 60 rounds and three times the end of the loop, in line 3.
        let (_, rows) = table("lines", &[], &recording);
        let is_third = |row: &&Value| row["line"].as_str().is_some_and(|line| line.ends_with("children.c:3"));
        let line = rows.iter().find(is_third).unwrap();
        assert!(line["instructions"].as_u64() > Some(300), "{target}: {line}");
    }
}

/// perf reads the recording with Arm's own library.
#[test]
fn perf_shows_the_same_instructions_of_arm() {
    if !can_record("aarch64") {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "aarch64", "fib.c", &["-O2", "-static"]);
    let recording = record(&folder, &[&program, "3"], 0);
    let mut perf = Command::new("perf");
    perf.args(["script", "-i", &recording, "--itrace=i1i", "-F", "ip"]);
    let listing = output(perf.env("PERF_BUILDID_DIR", folder.path()));
    let foreign: Vec<u64> =
        listing.lines().filter_map(|line| u64::from_str_radix(line.trim(), 16).ok()).collect();
    assert_eq!(foreign, decoded(&recording, &[]));
}

#[test]
fn llvm_reads_a_profile_of_arm() {
    if !can_record("aarch64") {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "aarch64", "fib.c", &["-O1", "-g", "-static"]);
    let recording = record(&folder, &[&program, "12"], 0);
    let file = export(&folder, "llvm", &["--module", "aarch64"], &recording);
    let profile = folder.file("profile");
    let mut generate = Command::new("llvm-profgen-19");
    generate.args(["--use-offset=0", "--unsymbolized-profile", &file, "--output", &profile]);
    output(generate.args(["--binary", &program]));
    let shown = output(Command::new("llvm-profdata-19").args(["show", "--sample", &profile]));
    // `Function: NAME: SAMPLES, EXECUTIONS, …`
    let heads: BTreeMap<&str, u64> = shown
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("Function: ")?.split_once(": ")?;
            Some((name, rest.split(", ").nth(1)?.parse().ok()?))
        })
        .collect();
    let (_, rows) = table("functions", &[], &recording);
    for name in ["fib", "main"] {
        let row = rows.iter().find(|row| row["function"] == name).unwrap();
        // `_start` jumps to a copy of `b main`.
        let entries = row["calls"].as_u64().unwrap() + row["jumps"].as_u64().unwrap();
        assert_eq!(heads.get(name), Some(&entries), "{name}: {shown}");
    }
}

#[test]
fn what_is_missing_or_not_possible_is_said() {
    if !can_record("aarch64") {
        return;
    }
    let folder = Folder::new();
    let program = compile(&folder, "aarch64", "tiny_arm.S", &["-nostdlib", "-static"]);
    let refused = |options: &[&str]| {
        let out = folder.file("none.data");
        let ran = hodo(&[&["record", "-o", &out], options, &["--", &program]].concat());
        assert!(ran.code != 0 && !fs::exists(&out).unwrap(), "{ran:?}");
        ran.stderr
    };
    let expected = "is a program for aarch64, not for riscv64";
    assert!(refused(&["--engine", "emulate", "--arch", "riscv64"]).contains(expected));
    assert!(refused(&["--filter", "filter fib"]).contains("-e and --filter are for Intel PT"));
    assert!(refused(&["--engine", "perf", "--arch", "aarch64"]).contains("--arch and --sysroot need"));

    let mut lonely = command(&["record", "-o", &folder.file("none.data"), "--", &program]);
    let ran = lonely.env("PATH", folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(printed.contains("qemu-aarch64, which emulates the processor, is not installed"), "{printed}");

    let dynamic = folder.file("dynamic");
    let source = folder.write("nothing.c", b"int main(void) { return 0; }\n");
    let mut compiler = Command::new("aarch64-linux-gnu-gcc");
    output(compiler.args(["-Wl,--dynamic-linker=/nowhere/ld.so", "-o", &dynamic, &source]));
    let ran = hodo(&["record", "-o", &folder.file("none.data"), "--", &dynamic]);
    assert!(ran.stderr.contains("needs /nowhere/ld.so, which is not here"), "{ran:?}");
}
