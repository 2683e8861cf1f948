//! `hodo report paths`: all call paths, or those of a function's executions.

use hodo_intel_pt::packet::{IpPayload, Packet, Tnt};
use serde_json::Value;

use crate::{
    profiles::{record_source, table},
    recorded::can_record,
    run::{Folder, hodo},
};

fn sum(rows: &[Value], column: &str) -> u64 {
    rows.iter().map(|row| row[column].as_u64().unwrap()).sum()
}

/// Returns the paths and numbers in folded output.
fn folded(arguments: &[&str], recording: &str) -> Vec<(String, u64)> {
    let text = hodo(&[&["report", "paths", "--format", "folded"], arguments, &[recording]].concat()).fine();
    let split = |line: &str| {
        let (path, number) = line.rsplit_once(' ').unwrap();
        (path.to_owned(), number.parse().unwrap())
    };
    text.stdout.lines().map(split).collect()
}

#[test]
fn paths_of_a_function_are_its_executions() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "slowpath.c", &[]);
    let (_, functions) = table("functions", &[], &recording);
    let row_of = |name: &str| functions.iter().find(|row| row["function"] == name).unwrap();
    let (summary, rows) = table("paths", &["--function", "insert"], &recording);
    assert_eq!(summary["executions"], row_of("insert")["calls"]);
    assert_eq!(summary["instructions"], row_of("insert")["total_instructions"]);
    assert_eq!(summary["cut_instructions"], 0);
    assert_eq!(sum(&rows, "self_instructions"), summary["instructions"].as_u64().unwrap());
    assert_eq!((&rows[0]["function"], &rows[0]["depth"]), (&"insert".into(), &0.into()));
    let with_file = table("paths", &["--function", "insert@program"], &recording);
    assert_eq!(with_file.0["executions"], summary["executions"]);

    let by_instructions = folded(&["--function", "insert"], &recording);
    assert_eq!(
        by_instructions[0],
        ("insert".to_owned(), row_of("insert")["self_instructions"].as_u64().unwrap())
    );
    assert!(by_instructions.iter().any(|(path, _)| path == "insert;rehash;place"), "{by_instructions:?}");
    let total: u64 = by_instructions.iter().map(|(_, number)| number).sum();
    assert_eq!(total, summary["instructions"].as_u64().unwrap());
    let by_time: u64 = folded(&["--by", "time"], &recording).iter().map(|(_, number)| number).sum();
    let (all, rows) = table("paths", &["--by", "time"], &recording);
    assert_eq!(by_time, sum(&rows, "self_time_ns"));
    assert_eq!(all["instructions"], table("tree", &[], &recording).0["instructions"]);

    let part = |number: &str| {
        let out = folder.file(&format!("{}.part", &number[..1]));
        hodo(&["fold", "paths", "--part", number, "-o", &out, &recording]).fine();
        out
    };
    let parts = [part("1/2"), part("2/2")];
    let merged =
        hodo(&["merge", "--function", "insert", "--format", "folded", &parts[0], &parts[1]]).fine().stdout;
    let whole = hodo(&["report", "paths", "--function", "insert", "--format", "folded", &recording]).fine();
    assert_eq!(merged, whole.stdout);
    let merged = hodo(&["merge", "--syscall", "read", &parts[0], &parts[1]]);
    assert!(merged.code == 2 && merged.stderr.contains("not from parts"), "{merged:?}");
}

#[test]
fn a_root_that_is_not_there_is_said() {
    if !can_record() {
        return;
    }
    let folder = Folder::new();
    let recording = record_source(&folder, "fib.c", &[]);
    for (arguments, expected) in [
        (
            &["paths", "--function", "fibb"][..],
            "no function `fibb` in the programs of the recording; did you mean fib?",
        ),
        (&["paths", "--syscall", "mmap"], "--engine machine"),
        (&["paths", "--syscall", "mmap", "--function", "fib"], "cannot be used with"),
        (&["functions", "--function", "fib"], "for `hodo report paths`"),
        (&["paths", "--by", "calls"], "expected instructions, time"),
    ] {
        let ran = hodo(&[&["report"], arguments, &[&recording]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
    }
}

/// Links assembly whose section `.user` lies at `USER`, and its text at `KERNEL`.
fn link(folder: &Folder, source: &str) -> String {
    let source = folder.write("code.s", source.as_bytes());
    let program = folder.file("code");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-e,main"]);
    cc.args(["-Wl,--section-start=.user=0x401000", "-Wl,-Ttext=0xffffffff81000000", "-o", &program, &source]);
    assert!(cc.status().is_ok_and(|status| status.success()));
    program
}

const USER: u64 = 0x40_1000;
const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// Writes a buffer of Intel PT that begins at an address in 64-bit mode.
fn trace(folder: &Folder, begin: &[Packet], packets: &[Packet]) -> String {
    let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
    let all = [&[Packet::Psb, mode][..], begin, packets].concat();
    let bytes: Vec<u8> = all.iter().flat_map(|packet| packet.encode().to_vec()).collect();
    folder.write("trace.pt", &bytes)
}

/// A function of assembly.
fn function(name: &str, body: &str) -> String {
    format!(".type {name}, @function\n{name}:\n{body}\n.size {name}, . - {name}\n")
}

/// Four system calls, and a kernel whose read and write jump to one function.
fn kernel() -> String {
    let user = function("main", "syscall; nop; syscall; nop; syscall; nop; syscall");
    let kernel = [
        function("entry_SYSCALL_64", "call do_syscall_64; sysretq"),
        function("do_syscall_64", "call x64_sys_call; ret"),
        function("x64_sys_call", "test %al, %al; je 1f; jmp __x64_sys_read; 1: jmp __x64_sys_write"),
        function("__x64_sys_read", "nop; jmp ksys_read"),
        function("__x64_sys_write", "nop; nop; jmp ksys_read"),
        function("ksys_read", "nop; nop; nop; ret"),
    ];
    format!(".section .user, \"ax\"\n.globl main\n{user}.text\n{}", kernel.concat())
}

/// Whether the system call is a write, and the two returns.
fn call(writes: bool) -> Packet {
    Packet::Tnt8(Tnt { bits: 3 | u64::from(writes) << 2, count: 3 })
}

fn rows_of(recording: &[&str], kind: &[&str]) -> (Value, Vec<Value>) {
    let table = hodo(&[&["report"], kind, &["--format", "jsonl"], recording].concat()).fine().stdout;
    let rows = table.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let json = hodo(&[&["report"], kind, &["--format", "json"], recording].concat()).fine().json();
    (json["summary"].clone(), rows)
}

/// The functions of the kernel are identified by its naming scheme. A system call lasts from the kernel's entry to its
/// return, whatever jumps lie in between.
#[test]
fn paths_of_a_system_call_are_those_of_the_whole_call() {
    let folder = Folder::new();
    let program = link(&folder, &kernel());
    let at = IpPayload::Full;
    let mut packets = Vec::new();
    for (number, writes) in [false, true, false].into_iter().enumerate() {
        packets.extend([
            Packet::Tip(at(KERNEL)),
            call(writes),
            Packet::Tip(at(USER + 2 + 3 * number as u64)),
        ]);
    }
    packets.push(Packet::TipPgd(IpPayload::Suppressed));
    let pt = trace(&folder, &[Packet::Fup(at(USER)), Packet::PsbEnd], &packets);
    let recording = ["--pt", &pt, "--elf", &program];
    for (name, executions, instructions) in [("read", 2, 26), ("write", 1, 14)] {
        let (summary, rows) = rows_of(&recording, &["paths", "--syscall", name]);
        let figures = ["executions", "instructions", "cut_instructions"].map(|figure| &summary[figure]);
        assert_eq!(figures, [executions, instructions, 0], "{name}: {summary}");
        assert_eq!((&rows[0]["function"], &rows[0]["depth"]), (&"entry_SYSCALL_64".into(), &0.into()));
        assert_eq!(sum(&rows, "self_instructions"), instructions);
        let shared = rows.iter().find(|row| row["function"] == "ksys_read").unwrap();
        assert_eq!(shared["total_instructions"], 4 * executions);
        let latency = ["latency", "--syscall", name, "--format", "json"];
        let latency = hodo(&[&latency[..], &recording].concat()).fine().json();
        let figures = ["count", "instructions_max", "incomplete"].map(|figure| &latency["summary"][figure]);
        assert_eq!(figures, [executions, instructions / executions, 0], "{latency}");
    }
    // The kernel alone: each return leaves what is traced. The first one may have begun before the trace.
    let mut packets = Vec::new();
    for writes in [false, true, false, true] {
        packets.extend([Packet::TipPge(at(KERNEL)), call(writes), Packet::TipPgd(IpPayload::Suppressed)]);
    }
    let pt = trace(&folder, &[Packet::PsbEnd], &packets);
    let recording = ["--pt", &pt, "--elf", &program];
    for (name, executions, cut) in [("read", 1, 13), ("write", 2, 0)] {
        let (summary, _) = rows_of(&recording, &["paths", "--syscall", name]);
        assert_eq!([&summary["executions"], &summary["cut_instructions"]], [executions, cut], "{summary}");
    }
    let (summary, _) = rows_of(&recording, &["paths", "--syscall", "write", "--call", "ksys_read"]);
    let figures = ["executions", "instructions", "cut_instructions"].map(|figure| &summary[figure]);
    assert_eq!(figures, [0, 0, 8], "both selections apply; the calls begin outside: {summary}");
}

/// The calls of Linux's `__FILL_RETURN_BUFFER` are not followed by returns, and no function is called.
#[test]
fn calls_over_padding_are_no_calls() {
    let folder = Folder::new();
    let stuffing =
        "mov $2, %ecx\n1: call 2f; int3; 2: call 3f; int3; 3: add $16, %rsp; dec %ecx; jnz 1b; lfence; ret";
    let user = [function("main", "call stuffs; syscall"), function("stuffs", stuffing)].concat();
    let program = link(&folder, &format!(".section .user, \"ax\"\n.globl main\n{user}"));
    let at = IpPayload::Full;
    let packets = [
        Packet::Tnt8(Tnt { bits: 0b10, count: 2 }),
        // The processor remembers the address of the padding, so the return is not compressed.
        Packet::Tip(at(USER + 5)),
        Packet::TipPgd(IpPayload::Suppressed),
    ];
    let pt = trace(&folder, &[Packet::Fup(at(USER)), Packet::PsbEnd], &packets);
    let recording = ["--pt", &pt, "--elf", &program];
    let (summary, functions) = rows_of(&recording, &["functions"]);
    assert_eq!([&summary["calls"], &summary["instructions"]], [1, 15], "{summary}");
    let row_of = |name: &str| functions.iter().find(|row| row["function"] == name).unwrap();
    assert_eq!([&row_of("stuffs")["calls"], &row_of("main")["self_instructions"]], [1, 2]);
    let (_, paths) = rows_of(&recording, &["paths"]);
    let paths: Vec<_> = paths.iter().map(|row| (&row["function"], &row["depth"])).collect();
    assert_eq!(paths, [(&"main".into(), &0.into()), (&"stuffs".into(), &1.into())]);
}
