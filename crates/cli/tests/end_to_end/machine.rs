//! A whole emulated machine: what really ran, also where files have other code, and an old QEMU.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    recorded::compile,
    run::{Folder, Ran, command, hodo, wait},
};

/// The factor of a digest (`CpuTruth` of `hodo-formats`).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Records a shell's command; `None`, with a message, if no machine is set up here.
pub(crate) fn record(folder: &Folder, options: &[&str], script: &str) -> Option<(String, Ran)> {
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

/// What a processor ran: the number of instructions, and the digest of their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    instructions: u64,
    digest: u64,
}

/// Returns what each processor ran, from a listing.
pub(crate) fn listed(recording: &str) -> BTreeMap<u64, Account> {
    let listing = hodo(&["script", "--insns", "--fields", "cpu,ip", recording]).fine();
    let mut listed: BTreeMap<u64, Account> = BTreeMap::new();
    // Notices begin with a #: where only a part is recorded, there are gaps.
    for line in listing.stdout.lines().filter(|line| !line.starts_with('#')) {
        let (cpu, address) = line.split_once(' ').expect("a processor and an address");
        let address = u64::from_str_radix(address.trim(), 16).expect("an address");
        let account = listed.entry(cpu.parse().expect("a number")).or_default();
        account.instructions += 1;
        account.digest = account.digest.wrapping_mul(FACTOR).wrapping_add(address);
    }
    listed
}

/// Returns the same as the emulator counted it.
pub(crate) fn truth(recording: &str) -> BTreeMap<u64, Account> {
    let info = hodo(&["info", "--format", "json", recording]).fine().json();
    let truth = info["cpu_truth"].as_array().expect("what ran on each processor");
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().expect("a number");
    let accounts = truth.iter().map(|row| {
        let (instructions, digest) = (number(row, "instructions"), number(row, "digest"));
        (number(row, "cpu"), Account { instructions, digest })
    });
    // A listing has no lines of a processor that ran nothing.
    accounts.filter(|(_, account)| account.instructions > 0).collect()
}

#[test]
fn a_machine_is_read_as_it_ran() {
    let folder = Folder::new();
    let Some((recording, ran)) = record(&folder, &[], "echo hello; exit 7") else { return };
    assert_eq!((ran.code, ran.stdout.as_str()), (7, "hello\n"), "{ran:?}");
    let truth = truth(&recording);
    assert!(truth.values().map(|account| account.instructions).sum::<u64>() > 100_000, "{truth:?}");
    assert_eq!(listed(&recording), truth);
}

/// Code that a debugger and the kernel (uprobes) write over that of files, and 32-bit code.
#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn what_ran_is_decoded_where_files_have_other_code() {
    let folder = Folder::new();
    let bits32 = ["-m32", "-O1", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-stack-protector"];
    let programs = [("debugged.c", &["-O1"][..]), ("probed.c", &["-O1"]), ("bits32.c", &bits32)];
    let script = programs.map(|(source, flags)| compile(&folder, source, flags)).join(" && ");
    let Some((recording, ran)) = record(&folder, &["--witness"], &script) else { return };
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "20 stops, 0\nprobed: 315\n32 bits\n"), "{ran:?}");
    assert!(!ran.stderr.contains("counted one by one"), "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));
    // Each report compares the number of instructions, and finds no loss.
    let report = hodo(&["report", "functions", "--top", "100000", &recording]).fine();
    assert_eq!(report.stderr, "", "{report:?}");
    // What is written belongs to the file's function.
    assert!(
        report.stdout.lines().any(|line| line.contains("replaced") && line.contains("debugged")),
        "{report:?}"
    );
    assert!(report.stdout.lines().any(|line| line.contains("step") && line.contains("bits32")), "{report:?}");
}

/// A processor that goes offline starts again in 16-bit code.
#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn a_processor_may_start_while_the_machine_is_recorded() {
    let folder = Folder::new();
    let script = "cd /sys/devices/system/cpu/cpu1 && echo 0 > online && echo 1 > online && cat online";
    // The recording does not say which threads run on a processor that has just started, so the command stays on another one.
    let command = ["taskset", "-c", "0", "sh", "-c", script];
    let Some((recording, ran)) = record_command(&folder, &["--witness"], &command) else { return };
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1\n"), "{ran:?}");
    assert!(!ran.stderr.contains("counted one by one") && !ran.stderr.contains("lost the flow"), "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));
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
