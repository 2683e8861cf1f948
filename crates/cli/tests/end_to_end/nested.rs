//! A guest of an emulated machine's guest: its code, and why it exits.

use serde_json::Value;

use crate::{
    machine::{listed, record_command, truth},
    recorded::compile,
    run::{Folder, hodo},
};

/// AMD's exit codes, as KVM's tracepoint shows them, and their names in the report.
const NAMES: [(u64, &str); 10] = [
    (0x00, "read_cr0"),
    (0x10, "write_cr0"),
    (0x14, "write_cr4"),
    (0x60, "interrupt"),
    (0x72, "cpuid"),
    (0x78, "hlt"),
    (0x7b, "io"),
    (0x7c, "msr"),
    (0x81, "hypercall"),
    (0x400, "npf"),
];

fn name(code: u64) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == code);
    known.map_or_else(|| format!("{code:#x}"), |(_, name)| (*name).to_owned())
}

/// KVM's own tracepoint in the machine's kernel says how often the guest has exited, and why.
#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn a_nested_guest_is_recorded_with_each_exit() {
    let folder = Folder::new();
    let program = compile(&folder, "nested.c", &["-O1"]);
    let options = ["--nested", "--icount", "--witness", "--with", "ftrace", "--with-events", "kvm:kvm_exit"];
    let Some((recording, ran)) = record_command(&folder, &options, &[&program]) else { return };
    let printed = "out 16\nout 32\nout 64\nhlt\ninterrupts 1\nloops 7000\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, printed), "{ran:?}");
    assert!(!ran.stderr.contains("instructions counted one by one differ"), "{ran:?}");
    assert_eq!(listed(&recording), truth(&recording));

    let events = folder.file("machine.ftrace.dat");
    let script = ["script", "--events", "--event", "kvm_exit", "--format", "jsonl", "-q", &events];
    let exits = hodo(&script).fine().stdout;
    let code = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        name(event["fields"]["exit_reason"].as_u64().expect("a number"))
    };
    let expected: Vec<String> = exits.lines().map(code).collect();
    let count = |wanted: &str| expected.iter().filter(|name| *name == wanted).count();
    assert_eq!(["io", "cpuid", "hlt", "hypercall"].map(count), [3, 1, 1, 1], "{expected:?}");

    let report = |view: &str| {
        hodo(&["report", "guests", "--by", view, "--format", "json", "-q", &recording]).fine().json()
    };
    let intervals = report("interval");
    let reasons: Vec<&str> = intervals["rows"]
        .as_array()
        .expect("intervals")
        .iter()
        .filter_map(|row| row.as_array()?.last()?.as_str())
        .collect();
    assert_eq!(reasons, expected);
    let guest = &intervals["summary"]["guest_instructions"];
    // Before, between and after the loops are some sixty instructions.
    assert!((7_000..7_100).contains(&guest.as_u64().expect("a number")), "{guest}");
}
