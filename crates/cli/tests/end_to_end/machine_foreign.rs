//! Whole machines for Arm and RISC-V.

use std::fs;

use crate::{
    foreign::{can_record, compile},
    machine::{listed, truth},
    profiles::table,
    run::{Folder, Ran, hodo},
};

const BOTH: [&str; 2] = ["aarch64", "riscv64"];
/// Threads of `threads.c`, and the calls of `row` in each.
const THREADS: usize = 4;
const ROWS: u64 = 500;

/// Records a program in a machine for its processor; `None`, with a message, if no such machine is set up here.
fn record(folder: &Folder, options: &[&str], command: &[&str]) -> Option<(String, Ran)> {
    let out = folder.file("machine.data");
    let ran = hodo(&[&["record", "--engine", "machine", "-o", &out], options, &["--"], command].concat());
    if ran.stderr.contains("xtask setup --machine") {
        eprintln!("skipped: {}", ran.stderr.trim());
        return None;
    }
    Some((out, ran))
}

/// The calls of a function by thread, in order.
fn calls_by_thread(recording: &str, function: &str) -> Vec<u64> {
    let (_, rows) = table("functions", &["--by", "thread", "--top", "100000"], recording);
    let of_function = rows.iter().filter(|row| row["function"] == function);
    let mut calls: Vec<u64> = of_function.map(|row| row["calls"].as_u64().expect("a number")).collect();
    calls.sort_unstable();
    calls
}

#[test]
fn a_machine_for_arm_is_read_as_it_ran() {
    let folder = Folder::new();
    if !can_record("aarch64") {
        return;
    }
    let program = compile(&folder, "aarch64", "fib.c", &["-O1", "-static"]);
    let Some((recording, ran)) = record(&folder, &["--witness"], &[&program, "10"]) else { return };
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stderr.contains("counted one by one"), "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));
}

/// Threads on two processors: each has its own part of the work, and the kernel's functions have names.
#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn threads_of_other_machines_are_told_apart() {
    for target in BOTH {
        let folder = Folder::new();
        if !can_record(target) {
            continue;
        }
        let program = compile(&folder, target, "threads.c", &["-O1", "-g", "-pthread"]);
        let options = ["--arch", target, "--witness", "--with", "ftrace"];
        let Some((recording, ran)) = record(&folder, &options, &[&program]) else { return };
        assert_eq!(ran.code, 0, "{target}: {ran:?}");
        assert!(ran.stdout.starts_with("2000 rows"), "{ran:?}");
        assert_eq!(listed(&recording), truth(&recording), "{target}");
        // A call whose first instruction firmware prevents counts as entered by an interrupt.
        let calls = calls_by_thread(&recording, "row");
        assert!(calls.len() == THREADS && calls.iter().all(|calls| ROWS - calls <= 2), "{target}: {calls:?}");
        let write = hodo(&["latency", "--syscall", "write", "--format", "json", &recording]).fine().json();
        assert!(write["summary"]["count"].as_u64() >= Some(1), "{target}: {write}");
        // Cut anywhere, it is the same.
        let report = |options: &[&str]| {
            let words = ["report", "functions", "--by", "thread", "--top", "100000"];
            hodo(&[&words, options, &[&recording]].concat()).fine().stdout
        };
        assert_eq!(report(&["--chunk-size", "1"]), report(&[]), "{target}");
        let events = folder.file("machine.ftrace.dat");
        let all = hodo(&["report", "syscalls", &recording, &events]).fine().stdout;
        assert!(all.contains("write") && all.contains("futex"), "{target}: {all}");
    }
}

/// Parts of what runs, snapshots, lost packets, and a clock that counts.
#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn parts_of_other_machines_are_exact() {
    for target in BOTH {
        let folder = Folder::new();
        if !can_record(target) {
            continue;
        }
        let program = compile(&folder, target, "threads.c", &["-O1", "-pthread"]);
        let filter = format!("filter row @ {program}");
        let triggers = ["syscall:write", "wakeup", "interrupts-off", &format!("function:worker@{program}")]
            .map(|latency| format!("latency({latency}) > 1us"));
        let snapshot = ["--snapshot", "--trigger"];
        for options in [
            &["--kernel"][..],
            &["--user"],
            &["--icount"],
            &["--overflow", "100000..200000"],
            &["--filter", &filter],
            &["--filter", "filter vfs_write"],
            &[&snapshot[..], &[&triggers[0]]].concat(),
            &[&snapshot[..], &[&triggers[1]]].concat(),
            &[&snapshot[..], &[&triggers[2]]].concat(),
            &[&snapshot[..], &[&triggers[3]]].concat(),
        ] {
            let Some((recording, ran)) = record(&folder, options, &[&program]) else { return };
            assert_eq!(ran.code, 0, "{target} {options:?}: {ran:?}");
            assert!(!ran.stderr.contains("missing"), "{target} {options:?}: {ran:?}");
            let truth = truth(&recording);
            assert!(!truth.is_empty(), "{target} {options:?}: {ran:?}");
            assert_eq!(listed(&recording), truth, "{target} {options:?}");
        }
    }
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn a_processor_of_other_machines_starts_again() {
    for target in BOTH {
        let folder = Folder::new();
        if !can_record(target) {
            continue;
        }
        let program = compile(&folder, target, "offline.c", &["-O1", "-static"]);
        let Some((recording, ran)) = record(&folder, &["--witness"], &[&program]) else { return };
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "2 changes\n"), "{target}: {ran:?}");
        assert!(!ran.stderr.contains("missing"), "{target}: {ran:?}");
        assert_eq!(listed(&recording), truth(&recording), "{target}");
    }
}

#[test]
fn what_other_machines_do_not_do_is_said() {
    let folder = Folder::new();
    let out = folder.file("machine.data");
    let record = |options: &[&str], program: &str| {
        let words = ["record", "--engine", "machine", "-o", &out];
        hodo(&[&words, options, &["--", program]].concat())
    };
    let said = |ran: &Ran, what: &str| assert!(ran.code == 3 && ran.stderr.contains(what), "{ran:?}");
    said(&record(&["--arch", "aarch64"], "/bin/true"), "a machine for aarch64 can't execute it");
    said(&record(&["--sysroot", "/usr"], "/bin/true"), "--sysroot is for programs of other processors");
    // A script may run anywhere where its interpreter does, so what is refused is the option.
    let script = folder.file("script");
    fs::write(&script, "#!/nonexistent\n").unwrap();
    for (options, what) in [
        (&["-e", "intel_pt//"][..], "-e is for Intel PT"),
        (&["--nested"], "--nested needs a machine for x86_64"),
        (&["--with", "lttng"], "--with ftrace works"),
    ] {
        said(&record(&[&["--arch", "riscv64"], options].concat(), &script), what);
    }
}
