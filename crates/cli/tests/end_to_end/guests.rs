//! Guests: traces of virtual machines, and the search for their code.

use std::{fs, io, process::Command};

use hodo_clock::{Nanos, PerfClock};
use hodo_formats::{
    perf::{
        layout::{HodoscopeSection, intel_pt_config},
        write::{Setup, Source, TraceUnit, Writer},
    },
    recording::{Mapping, Sideband, SidebandKind, Thread},
};
use hodo_intel_pt::packet::{IpPayload, Packet};

use crate::{
    program,
    raw::trace_with,
    run::{Folder, Ran, hodo},
};

const ROUNDS: u32 = 5;

/// Address of a guest's kernel.
const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// Returns the trace of a run in a guest.
fn guest_trace(base: u64) -> Vec<u8> {
    trace_with(base, ROUNDS, &[Packet::Pip { cr3: 0x1234000, non_root: true }])
}

fn lines(base: u64) -> String {
    program::lines(&program::addresses(base, ROUNDS))
}

/// Asserts that the last line reports that nothing was decoded, and names an option.
#[track_caller]
fn assert_nothing_decoded(ran: &Ran, option: &str) {
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("hodo: no instruction was decoded: ") && last.contains(option), "{ran:?}");
    assert!(ran.stdout.starts_with("# gap the code of a guest is not available"), "{ran:?}");
}

#[test]
fn code_of_a_raw_buffer_is_that_of_a_guest_too() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &guest_trace(0x1000));
    let right = format!("{}@0x1000", folder.write("right.bin", &program::code(ROUNDS)));
    let wrong = format!("{}@0x1000", folder.write("wrong.bin", &[0xcc; 32]));
    let script = |options: &[&str]| hodo(&[&["script", "--insns", "--pt", &buffer], options].concat());
    let guest = format!("--guest-code={right}");
    for options in [
        &["--code", &right][..],
        &["--code", &right, "--guest-code"],
        &["--code", &right, "--host-code", &wrong],
        &["--code", &wrong, &guest],
        &["--host-code", &wrong, &guest],
        &[&guest],
    ] {
        let ran = script(&[options, &["--strict"]].concat()).fine();
        assert_eq!(ran.stdout, lines(0x1000), "{options:?}");
    }
    // Code for the host only is not used for a guest.
    assert_nothing_decoded(&script(&["--host-code", &right]).fine(), "--guest-code=FILE@ADDRESS");
    let buffer = folder.write("elf.pt", &guest_trace(program::ENTRY));
    let elf = folder.write("program", &program::elf(&program::code(ROUNDS), [1; 20]));
    for option in ["--elf", "--guest-elf"] {
        let ran = hodo(&["script", "--insns", "--strict", "--pt", &buffer, option, &elf]);
        assert_eq!(ran.fine().stdout, lines(program::ENTRY), "{option}");
    }
}

/// The process that runs the guest.
const HYPERVISOR: Thread = Thread { pid: 77, tid: 77 };

/// Writes a recording of a hypervisor's process that maps a program, and runs a guest at `base`.
fn recording(folder: &Folder, program: &str, base: u64) -> String {
    recording_of(folder, program, &guest_trace(base))
}

/// Writes a recording of a hypervisor's process that maps a program, with this trace.
fn recording_of(folder: &Folder, program: &str, trace: &[u8]) -> String {
    let setup = Setup {
        unit: TraceUnit::IntelPt,
        config: intel_pt_config::BRANCH,
        clock: PerfClock::new(0, 1, 0).expect("a clock"),
        tsc_ctc_ratio: (0, 0),
        max_nonturbo_ratio: 0,
        snapshot: false,
        filter: "",
        event: "intel_pt//",
        command: &[],
        version: "1",
        host: "",
    };
    let mut writer = Writer::new(io::Cursor::new(Vec::new()), setup, vec![Source::Thread(HYPERVISOR)])
        .expect("a recording");
    let mapping = Mapping {
        address: program::LOADED_AT,
        length: 0x1000,
        file_offset: 0,
        name: program.as_bytes(),
        build_id: &[],
        kernel: false,
    };
    for kind in [SidebandKind::Comm { name: b"vmm", exec: true }, SidebandKind::Map(mapping)] {
        let record = Sideband { time: Some(Nanos(1)), cpu: None, thread: HYPERVISOR, guest: None, kind };
        writer.sideband(&record).expect("a record");
    }
    writer.trace(0, Nanos(2), trace.len() as u64, trace).expect("a trace");
    let file = writer.finish(&HodoscopeSection::default(), io::empty()).expect("a recording");
    folder.write("perf.data", &file.into_inner())
}

#[test]
fn code_of_a_guest_is_in_the_process_of_its_hypervisor() {
    let folder = Folder::new();
    let program = folder.write("vmm", &program::elf(&program::code(ROUNDS), [1; 20]));
    let recording = recording(&folder, &program, program::ENTRY);
    assert_nothing_decoded(&hodo(&["script", "--insns", &recording]).fine(), "--guestmount");
    let ran = hodo(&["script", "--insns", "--strict", "--guest-code", &recording]).fine();
    assert_eq!(ran.stdout, lines(program::ENTRY));
}

/// Offset of the code in the kernel files below.
const TEXT: u64 = program::ENTRY - program::LOADED_AT;

#[test]
fn the_kernel_of_a_guest_is_below_the_pid_of_its_hypervisor() {
    let folder = Folder::new();
    let base = KERNEL + TEXT;
    let recording = recording(&folder, "/nowhere", base);
    let kcore = program::elf_at(KERNEL, &program::code(ROUNDS), [2; 20]);
    let proc = |pid: u32| {
        fs::create_dir_all(folder.file(&format!("{pid}/guests/{pid}/proc"))).expect("a folder");
        folder.write(&format!("{pid}/guests/{pid}/proc/kcore"), &kcore);
        folder.write(
            &format!("{pid}/guests/{pid}/proc/kallsyms"),
            format!("{base:016x} T start_kernel\n{:016x} T tick\n", base + 29).as_bytes(),
        );
        folder.file(&format!("{pid}/guests"))
    };
    let (mount, other) = (proc(HYPERVISOR.pid), proc(78));
    let ran = hodo(&["script", "--insns", "--strict", "--guestmount", &mount, &recording]).fine();
    assert_eq!(ran.stdout, lines(base));
    let table = hodo(&["report", "functions", "--format", "csv", "--guestmount", &mount, &recording]);
    assert!(table.fine().stdout.contains("tick,[guest.kernel.kallsyms.77]"));
    assert_nothing_decoded(
        &hodo(&["script", "--insns", "--guestmount", &other, &recording]).fine(),
        "--guestmount",
    );
}

/// A kernel that ran at another address than it was linked for: kallsyms contains the run-time address.
#[test]
fn the_kernel_of_a_guest_is_placed_by_its_symbols() {
    let folder = Folder::new();
    let shift = 0x200_0000;
    let bytes: Vec<String> = program::code(ROUNDS).iter().map(u8::to_string).collect();
    let source = format!(".globl _text, _start\n_text: _start: .byte {}\n", bytes.join(","));
    let (source, vmlinux) = (folder.write("kernel.s", source.as_bytes()), folder.file("vmlinux"));
    let address = format!("-Wl,-Ttext={KERNEL:#x},--build-id=none");
    let linked =
        Command::new("cc").args(["-nostdlib", "-static", &address, "-o", &vmlinux, &source]).status();
    assert!(linked.is_ok_and(|status| status.success()), "cc links a kernel");
    let kallsyms = format!("{:016x} T _text\n{:016x} T tick\n", KERNEL + shift, KERNEL + shift + 29);
    let kallsyms = folder.write("kallsyms", kallsyms.as_bytes());
    let as_linked = recording(&folder, "/nowhere", KERNEL);
    let ran = hodo(&["script", "--insns", "--strict", "--guestvmlinux", &vmlinux, &as_linked]).fine();
    assert_eq!(ran.stdout, lines(KERNEL));
    let moved = recording(&folder, "/nowhere", KERNEL + shift);
    let options = ["--guestvmlinux", &vmlinux, "--guestkallsyms", &kallsyms, &moved];
    let ran = hodo(&[&["script", "--insns", "--strict"], &options[..]].concat()).fine();
    assert_eq!(ran.stdout, lines(KERNEL + shift));
    let table = hodo(&[&["report", "functions", "--format", "csv"], &options[..]].concat()).fine();
    assert!(table.stdout.contains("tick,[guest.kernel.kallsyms]"), "{table:?}");
}

/// A host that resumes guests, at offset 0: nop, vmresume; exits come to offset 4: nop, nop, jmp to the begin. A guest
/// at offset 16: nop, nop, cpuid; and another one at offset 24: nop, hlt.
const MACHINES: [u8; 27] = {
    let mut code = [0x90; 27];
    (code[1], code[2], code[3]) = (0x0f, 0x01, 0xc3);
    (code[6], code[7]) = (0xeb, 0xf8);
    (code[18], code[19]) = (0x0f, 0xa2);
    (code[25], code[26]) = (0xf4, 0x90);
    code
};

/// Returns the trace of these guests. They alternate: each runs for 30 ns, and then the host for 70 ns.
fn machines_trace(entries: u64) -> Vec<u8> {
    let ip = |offset: u64| IpPayload::Sext48(program::ENTRY + offset);
    let host = Packet::Pip { cr3: 0x5000, non_root: false };
    let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
    let mut packets = vec![Packet::Psb, Packet::Tsc(100), host, mode, Packet::Fup(ip(0)), Packet::PsbEnd];
    for entry in 0..entries {
        let [vmcs, begin, end, reason] =
            if entry % 2 == 0 { [0x7000, 16, 18, 10] } else { [0x8000, 24, 25, 12] };
        let now = 170 + entry * 100;
        packets.extend([Packet::Vmcs(vmcs), Packet::Pip { cr3: 0x1000, non_root: true }]);
        packets.extend([Packet::Tip(ip(begin)), Packet::Tsc(now), Packet::Evd { kind: 2, payload: reason }]);
        packets.extend([Packet::Cfe { ip: false, kind: 8, vector: 0 }, Packet::Fup(ip(end)), host]);
        packets.extend([Packet::Tip(ip(4)), Packet::Tsc(now + 30)]);
    }
    packets.push(Packet::TipPgd(IpPayload::Suppressed));
    packets.iter().flat_map(|packet| packet.encode().to_vec()).collect()
}

#[test]
fn guests_are_told_apart_with_the_reasons_of_their_exits() {
    let folder = Folder::new();
    let program = folder.write("vmm", &program::elf(&MACHINES, [1; 20]));
    let recording = recording_of(&folder, &program, &machines_trace(5));
    let report = |view: &str| {
        let arguments = ["report", "guests", "--by", view, "--format", "json", "--strict", "--guest-code"];
        hodo(&[&arguments[..], &[&recording]].concat()).fine().json()
    };
    let machines = report("machine");
    let summary = &machines["summary"];
    let counts = ["entries", "exits", "guest_instructions", "host_instructions", "unknown_instructions"];
    assert_eq!(counts.map(|name| summary[name].as_u64().unwrap()), [5, 5, 3 * 2 + 2, 5 * 5, 2], "{summary}");
    assert_eq!(summary["guest_time_ns"], 150);
    let row = |table: &serde_json::Value, index: usize, columns: &[&str]| -> Vec<serde_json::Value> {
        let names = table["columns"].as_array().unwrap();
        let index_of = |name: &&str| names.iter().position(|column| column["name"] == *name).unwrap();
        columns.iter().map(|name| table["rows"][index][index_of(name)].clone()).collect()
    };
    let columns = ["machine", "vmcs", "instructions", "stays", "total_ns"];
    let json = |text: &str| -> Vec<serde_json::Value> { serde_json::from_str(text).unwrap() };
    assert_eq!(row(&machines, 0, &columns), json(r#"["host", null, 25, 4, 280]"#));
    assert_eq!(row(&machines, 1, &columns), json(r#"["guest", 28672, 6, 3, 90]"#));
    assert_eq!(row(&machines, 2, &columns), json(r#"["guest", 32768, 2, 2, 60]"#));
    let reasons = report("reason");
    let columns = ["reason", "exits", "instructions", "total_ns"];
    assert_eq!(row(&reasons, 0, &columns), json(r#"["CPUID", 3, 15, 140]"#));
    assert_eq!(row(&reasons, 1, &columns), json(r#"["HLT", 2, 10, 140]"#));
    let stays = report("interval");
    let columns = ["duration_ns", "vmcs", "instructions", "reason", "pid", "tid"];
    assert_eq!(stays["rows"].as_array().unwrap().len(), 5);
    assert_eq!(row(&stays, 1, &columns), json(r#"[30, 32768, 1, "HLT", 77, 77]"#));
    assert_eq!(row(&stays, 4, &columns), json(r#"[30, 28672, 2, "CPUID", 77, 77]"#));
}
