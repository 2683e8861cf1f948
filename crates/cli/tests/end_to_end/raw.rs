//! Raw buffers of Intel PT, made here packet by packet.

use hodo_intel_pt::packet::{IpPayload, Packet, Tnt};

use crate::{
    program,
    run::{Folder, hodo},
};

/// Rounds between two PSBs.
const PERIOD: usize = 1000;

/// The trace of a whole run of [`program::code`] that is loaded at `base`.
pub(crate) fn trace(base: u64, rounds: u32) -> Vec<u8> {
    let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
    let mut packets = vec![Packet::Psb, mode, Packet::PsbEnd, Packet::TipPge(IpPayload::Sext48(base))];
    for (index, period) in program::branches(rounds).chunks(3 * PERIOD).enumerate() {
        if index > 0 {
            packets.extend([Packet::Psb, mode, Packet::Fup(IpPayload::Sext48(base + 5)), Packet::PsbEnd]);
        }
        for branches in period.chunks(6) {
            let bits = branches.iter().fold(0, |bits, &taken| bits << 1 | u64::from(taken));
            packets.push(Packet::Tnt8(Tnt { bits, count: branches.len() as u8 }));
        }
    }
    packets.push(Packet::TipPgd(IpPayload::Suppressed));
    packets.iter().flat_map(|packet| packet.encode().to_vec()).collect()
}

#[test]
fn instructions_of_a_raw_buffer() {
    let folder = Folder::new();
    let expected = program::lines(&program::addresses(0x1000, 5));
    let buffer = folder.write("trace.pt", &trace(0x1000, 5));
    let padded = [b"header".to_vec(), program::code(5)].concat();
    let flat = folder.write("code.bin", &padded);
    let ran =
        hodo(&["script", "--insns", "--strict", "--pt", &buffer, "--code", &format!("{flat}@0x1000:6")]);
    assert_eq!(ran.fine().stdout, expected);

    let buffer = folder.write("elf.pt", &trace(program::ENTRY, 5));
    let elf = folder.write("program", &program::elf(&program::code(5), [1; 20]));
    let ran = hodo(&["script", "--insns", "--strict", "--pt", &buffer, "--elf", &elf]);
    assert_eq!(ran.fine().stdout, program::lines(&program::addresses(program::ENTRY, 5)));
}

/// A raw buffer says nothing of threads: it shows thread 0, as a CPU's stream without switches does.
#[test]
fn only_threads_that_were_asked_for() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 5));
    let code = folder.write("code.bin", &program::code(5));
    let code = format!("{code}@0x1000");
    let script = |tid| hodo(&["script", "--insns", "--pt", &buffer, "--code", &code, "--tid", tid]);
    assert_eq!(script("0").fine().stdout, program::lines(&program::addresses(0x1000, 5)));
    let nobody = script("7");
    assert!(nobody.code == 2 && nobody.stderr.contains("no such thread"), "{nobody:?}");
}

#[test]
fn fields_of_an_instruction() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 1));
    let code = folder.write("code.bin", &program::code(1));
    let code = format!("{code}@0x1000");
    let ran = hodo(&[
        "script",
        "--insns",
        "--fields",
        "tid,ip,insn",
        "--limit",
        "2",
        "--pt",
        &buffer,
        "--code",
        &code,
    ]);
    assert_eq!(ran.fine().stdout, "0 1000 mov $1,%ecx\n0 1005 call 0x101d\n");
}

#[test]
fn packets_of_a_raw_buffer() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 1));
    let shown = hodo(&["script", "--packets", "--pt", &buffer]).fine().stdout;
    let packets: Vec<&str> = shown.lines().map(|line| line.get(59..).unwrap_or_default().trim()).collect();
    assert_eq!(packets.len(), 6, "{shown}");
    assert_eq!(packets[0], "PSB");
    assert!(packets[3].starts_with("TIP.PGE") && packets[3].contains("1000"), "{shown}");
    assert!(packets[4].starts_with("TNT"), "{shown}");
    assert!(shown.starts_with("00000000: 02 82 02 82 "), "{shown}");
}

#[test]
fn code_that_is_missing_is_a_gap() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 3));
    let ran = hodo(&["script", "--insns", "--pt", &buffer]).fine();
    assert!(ran.stdout.starts_with("# gap ") && ran.stdout.contains("1000"), "{ran:?}");
    assert!(ran.stderr.contains("missing_code"), "{ran:?}");
    assert_eq!(hodo(&["script", "--insns", "--strict", "--pt", &buffer]).code, 1);

    let table = hodo(&["report", "functions", "--format", "json", "--pt", &buffer]).fine().json();
    assert_eq!(table["summary"]["instructions"], 0);
    assert_eq!(table["loss"][0]["cause"], "missing_code");
}

#[test]
fn info_of_a_raw_buffer() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 3));
    let info = hodo(&["info", "--format", "json", "--cpu", "6/85/4", "--pt", &buffer]).fine().json();
    assert_eq!(info["format"], "raw Intel PT");
    assert_eq!(info["config"]["cpu"], serde_json::json!([6, 85, 4]));
    assert_eq!(info["streams"][0]["segments"], 1);
    assert_eq!(info["clock"], serde_json::Value::Null);
}
