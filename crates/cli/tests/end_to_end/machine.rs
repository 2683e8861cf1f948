//! A whole emulated machine: what really ran, and call stacks from user space into the kernel.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use crate::run::{Folder, Ran, command, hodo, wait};

/// The factor of a digest (`CpuTruth` of `hodo-formats`).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Records a shell's command; `None`, with a message, if no machine is set up here.
fn record(folder: &Folder, options: &[&str], script: &str) -> Option<(String, Ran)> {
    record_command(folder, options, &["sh", "-c", script])
}

/// As [`record`], with any command.
pub(crate) fn record_command(folder: &Folder, options: &[&str], command: &[&str]) -> Option<(String, Ran)> {
    let out = folder.file("machine.data");
    let arguments = [&["record", "--engine", "machine", "-o", &out], options, &["--"], command];
    let ran = hodo(&arguments.concat());
    if ran.stderr.contains("xtask setup --machine") {
        eprintln!("skipped: no emulated machine is set up (cargo xtask setup --machine)");
        return None;
    }
    Some((out, ran))
}

/// Returns the number of instructions of each processor and the digest of their addresses, from a listing.
pub(crate) fn listed(recording: &str) -> BTreeMap<u64, (u64, u64)> {
    let listing = hodo(&["script", "--insns", "--fields", "cpu,ip", recording]).fine();
    let mut listed = BTreeMap::new();
    // Notices begin with a #: where only a part is recorded, there are gaps.
    for line in listing.stdout.lines().filter(|line| !line.starts_with('#')) {
        let (cpu, address) = line.split_once(' ').expect("a processor and an address");
        let address = u64::from_str_radix(address.trim(), 16).expect("an address");
        let (count, digest): &mut (u64, u64) = listed.entry(cpu.parse().expect("a number")).or_default();
        *count += 1;
        *digest = digest.wrapping_mul(FACTOR).wrapping_add(address);
    }
    listed
}

/// Returns the same as the emulator counted it.
pub(crate) fn truth(recording: &str) -> BTreeMap<u64, (u64, u64)> {
    let info = hodo(&["info", "--format", "json", recording]).fine().json();
    let truth = info["cpu_truth"].as_array().expect("what ran on each processor");
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().expect("a number");
    let accounts =
        truth.iter().map(|row| (number(row, "cpu"), (number(row, "instructions"), number(row, "digest"))));
    // A listing has no lines of a processor that ran nothing.
    accounts.filter(|(_, (instructions, _))| *instructions > 0).collect()
}

#[test]
fn a_machine_is_read_as_it_ran() {
    let folder = Folder::new();
    let Some((recording, ran)) = record(&folder, &[], "echo hello; exit 7") else { return };
    assert_eq!((ran.code, ran.stdout.as_str()), (7, "hello\n"), "{ran:?}");
    let truth = truth(&recording);
    assert!(truth.values().map(|(instructions, _)| instructions).sum::<u64>() > 100_000, "{truth:?}");
    assert_eq!(listed(&recording), truth);
}

/// Records with a tracer in the machine, and compares its events of system calls with the executions of the kernel's
/// function that makes them. With these options each instruction has a time.
fn events_lie_in_their_calls(tracer: &str, file: &str) {
    let folder = Folder::new();
    let options = ["--icount", "-e", "intel_pt/cyc/", "--with", tracer, "--with-events", "raw_syscalls"];
    let Some((recording, ran)) = record(&folder, &options, "echo $$; cat /proc/self/stat; exit 7") else {
        return;
    };
    // The shell prints its number, and so does cat.
    let threads: Vec<u64> =
        ran.stdout.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert!(ran.code == 7 && threads.len() == 2, "{ran:?}");
    let events = folder.file(file);
    assert!(ran.stderr.contains(&format!("hodo report all {recording} {events}")), "{ran:?}");
    let both = |arguments: &[&str]| hodo(&[arguments, &["-q", &recording, &events]].concat()).fine();

    let found =
        both(&["latency", "--function", "do_syscall_64", "--by", "executions", "--format", "json"]).json();
    let mut calls: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for row in found["rows"].as_array().expect("executions") {
        let thread = row[0].as_str().and_then(|thread| thread.rsplit('/').next()?.parse().ok());
        let (begin, time) = (row[2].as_u64().expect("a time"), row[3].as_u64());
        let end = time.map_or(u64::MAX, |time| begin + time);
        calls.entry(thread.expect("a thread")).or_default().push((begin, end));
    }
    calls.values_mut().for_each(|calls| calls.sort_unstable());

    let entries = both(&["script", "--events", "--event", "syscall_entry", "--format", "jsonl"]).stdout;
    let mut entered: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in entries.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let number = |name: &str| event["context"][name].as_u64();
        let thread = number("common_pid").or(number("tid")).expect("a thread");
        entered.entry(thread).or_default().push(event["ts"].as_u64().expect("a time"));
    }
    // The calls with which init becomes the shell precede the recording of Intel PT.
    let first = calls.values().flatten().map(|&(begin, _)| begin).min().expect("a call");
    let mut compared = 0;
    for thread in threads {
        let (entered, calls) = (&entered[&thread], &calls[&thread]);
        let entered: Vec<u64> = entered.iter().copied().filter(|&time| time >= first).collect();
        assert_eq!(entered.len(), calls.len(), "thread {thread}: {entered:?} {calls:?}");
        for (time, (begin, end)) in entered.into_iter().zip(calls) {
            assert!((*begin..=*end).contains(&time), "thread {thread}: {time} is not in {begin}..{end}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn events_of_ftrace_lie_in_the_calls_that_make_them() {
    events_lie_in_their_calls("ftrace", "machine.ftrace.dat");
}

#[test]
fn events_of_perf_lie_in_the_calls_that_make_them() {
    if !Path::new("/usr/bin/perf").exists() {
        eprintln!("skipped: there is no perf here");
        return;
    }
    events_lie_in_their_calls("perf", "machine.events.data");
}

#[test]
fn an_old_qemu_is_rejected() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is ours");
        fs::write(&path, text).expect("the file can be written");
        path
    };
    for name in
        ["kernel/vmlinux", "kernel/modules/modules.order", "hodo-guest", "qemu/usr/bin/qemu-system-x86_64"]
    {
        write(name, "");
    }
    let record = || {
        let out = folder.file("machine.data");
        let mut hodo = command(&["record", "--engine", "machine", "-o", &out, "--", "true"]);
        let ran =
            wait(hodo.env("HODO_MACHINE", folder.path()).spawn().expect("hodo starts")).expect("it ends");
        assert!(!Path::new(&out).exists(), "{ran:?}");
        ran
    };
    let ran = record();
    assert!(ran.code == 3 && ran.stderr.contains("ld-linux-x86-64.so.2 is not there"), "{ran:?}");
    let loader = write(
        "qemu/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "#!/bin/sh\necho QEMU emulator version 7.2.22 '(Debian 1:7.2)'\n",
    );
    fs::set_permissions(loader, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let ran = record();
    assert!(ran.code == 3 && ran.stderr.contains("is version 7.2.22, which is too old; remove"), "{ran:?}");
}
