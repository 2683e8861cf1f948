//! Raw buffers of Intel PT, encoded packet by packet.

use hodo_intel_pt::packet::{IpPayload, Packet, Tnt};
use serde_json::{Value, json};

use crate::{
    program,
    run::{Folder, hodo},
};

/// Number of rounds between two PSBs.
const PERIOD: usize = 1000;

/// Returns the trace of a whole run of [`program::code`] loaded at `base`.
pub(crate) fn trace(base: u64, rounds: u32) -> Vec<u8> {
    trace_with(base, rounds, &[])
}

/// Like [`trace`], with `status` packets added to each PSB+.
pub(crate) fn trace_with(base: u64, rounds: u32, status: &[Packet]) -> Vec<u8> {
    let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
    let ip = |address: u64| IpPayload::Sext48(address & 0xffff_ffff_ffff);
    let psb = || [&[Packet::Psb, mode], status].concat();
    let mut packets = [psb(), vec![Packet::PsbEnd, Packet::TipPge(ip(base))]].concat();
    for (index, period) in program::branches(rounds).chunks(3 * PERIOD).enumerate() {
        if index > 0 {
            packets.extend([psb(), vec![Packet::Fup(ip(base + 5)), Packet::PsbEnd]].concat());
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
fn instructions_of_a_raw_buffer_are_those_that_ran() {
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

/// A raw buffer has no information on threads: it shows thread 0, like a CPU's stream without switches.
#[test]
fn only_threads_that_were_asked_for() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 5));
    let code = folder.write("code.bin", &program::code(5));
    let code = format!("{code}@0x1000");
    let script = |tid| hodo(&["script", "--insns", "--pt", &buffer, "--code", &code, "--tid", tid]);
    assert_eq!(script("0").fine().stdout, program::lines(&program::addresses(0x1000, 5)));
    let nobody = script("7");
    assert!(nobody.code == 2 && nobody.stderr.contains("no matching thread"), "{nobody:?}");
}

#[test]
fn fields_of_an_instruction_are_those_asked_for() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 1));
    let code = folder.write("code.bin", &program::code(1));
    let code = format!("{code}@0x1000");
    let script = ["script", "--insns", "--fields", "tid,ip,insn", "--limit", "2"];
    let ran = hodo(&[&script[..], &["--pt", &buffer, "--code", &code]].concat());
    assert_eq!(ran.fine().stdout, "0 1000 mov $1,%ecx\n0 1005 call 0x101d\n");
}

#[test]
fn packets_of_a_raw_buffer_are_listed_with_their_bytes() {
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

/// Returns the output of `hodo script --packets`, without the packets' bytes.
fn packets(bytes: &[u8], options: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", bytes);
    let shown = hodo(&[&["script", "--packets", "--pt", &buffer], options].concat()).fine().stdout;
    let line = |line: &str| line.get(59..).map_or(&line[10..], str::trim_start).to_owned();
    shown
        .lines()
        .map(|shown| if shown[10..].starts_with('#') { shown[10..].to_owned() } else { line(shown) })
        .collect()
}

#[test]
fn packets_continue_at_a_psb_inside_a_cut_packet() {
    let psb = Packet::Psb.encode().to_vec();
    let whole = [&psb[..], &[0x02, 0x23]].concat();
    // The first three bytes of an MNT, which has eleven.
    let bytes = [&whole[..], &[0x02, 0xc3, 0x88], &whole, &[0x02, 0x23]].concat();
    let expected = [
        "PSB",
        "PSBEND",
        "# a PSB begins inside a packet of 11 bytes; 3 bytes skipped",
        "PSB",
        "PSBEND",
        "PSBEND",
    ];
    assert_eq!(packets(&bytes, &[]), expected);
    // The same at the end of a chunk.
    let mut many = Vec::new();
    for _ in 0..200 {
        many.extend_from_slice(&bytes[..whole.len() + 3]);
    }
    let shown = packets(&many, &["--chunk-size", "1024"]);
    assert_eq!(shown, packets(&many, &[]));
    assert_eq!(shown.iter().filter(|line| line.starts_with("# a PSB")).count(), 199);
    assert_eq!(
        shown.last().map(String::as_str),
        Some("# the trace ends inside a packet of 11 bytes; 3 bytes skipped")
    );
}

#[test]
fn packets_heed_the_errata_of_the_processor() {
    let psb = Packet::Psb.encode().to_vec();
    let overflow = [&psb[..], &[0x02, 0x23, 0x0f, 0x02, 0xf3, 0x02, 0x23]].concat();
    assert_eq!(packets(&overflow, &["--cpu", "6/94/3"])[2..], ["OVF", "PSBEND"]);
    assert_eq!(packets(&overflow, &["--cpu", "6/85/4"])[2], "CYC 33");
    let tma = [&psb[..], &[0x02, 0x23, 0x02, 0x73, 1, 2, 0, 3, 0x80, 0xff, 0x02, 0x23]].concat();
    let shown = packets(&tma, &["--cpu", "6/85/4"]);
    assert_eq!(shown[2..], ["# TMA and a byte without meaning (erratum SKZ84)", "PSBEND"]);
    assert!(packets(&tma, &["--cpu", "6/94/3"])[2].starts_with("TMA"));
}

#[test]
fn an_address_filter_says_where_tracing_ended() {
    let folder = Folder::new();
    // nop; jmp +2; hlt; hlt; nop; ret: the jump leaves the filter, and erratum SKL014 omits its IP.
    let code = folder.write("code.bin", &[0x90, 0xeb, 0x02, 0xf4, 0xf4, 0x90, 0xc3]);
    let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
    let ip = IpPayload::Sext48(0x1000);
    let trace = [Packet::Psb, mode, Packet::Fup(ip), Packet::PsbEnd, Packet::TipPgd(IpPayload::Suppressed)];
    let trace: Vec<u8> = trace.iter().flat_map(|packet| packet.encode().to_vec()).collect();
    let buffer = folder.write("trace.pt", &trace);
    let code = format!("{code}@0x1000");
    let script = |options: &[&str]| {
        hodo(&[&["script", "--insns", "--pt", &buffer, "--code", &code], options].concat())
    };
    for filter in ["filter 0x1000/0x4", "0x1000-0x1004", "tracestop 0x1005/0x10", "stop 0x1005/0x10"] {
        let ran = script(&["--cpu", "6/94/3", "--strict", "--filter", filter]).fine();
        assert_eq!(ran.stdout, "1000\n1001\n", "{filter}");
    }
    assert_eq!(script(&["--cpu", "6/61/4", "--strict"]).fine().stdout, "1000\n1001\n1005\n1006\n");
    // With the erratum and without the filter, either branch may be the last.
    let ran = script(&["--cpu", "6/94/3"]).fine();
    assert!(ran.stdout.starts_with("1000\n1001\n# gap ") && ran.stderr.contains("--filter"), "{ran:?}");
}

#[test]
fn no_instruction_at_all_is_reported_last() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 3));
    let code = format!("{}@0x1000", folder.write("code.bin", &program::code(3)));
    let empty = folder.write("empty.pt", b"");
    for what in
        [&["script", "--insns"][..], &["script", "--calls"], &["report", "functions"], &["report", "lines"]]
    {
        let ran = hodo(&[what, &["--pt", &buffer]].concat()).fine();
        let last = ran.stderr.lines().last().unwrap_or_default();
        let expected = "hodo: no instruction was decoded: the first gap: no code is mapped at 1000";
        assert_eq!(last, expected, "{what:?}");
        let ran = hodo(&[what, &["--pt", &buffer, "--code", &code]].concat()).fine();
        assert!(!ran.stderr.contains("no instruction"), "{ran:?}");
        let ran = hodo(&[what, &["--pt", &empty]].concat()).fine();
        assert!(ran.stderr.contains("no instruction was decoded"), "{ran:?}");
    }
    // A command that decodes no flow doesn't report missing instructions.
    let ran = hodo(&["script", "--packets", "--pt", &buffer]).fine();
    assert!(ran.stderr.is_empty(), "{ran:?}");
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
fn info_of_a_raw_buffer_has_the_given_processor() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 3));
    let info = hodo(&["info", "--format", "json", "--cpu", "6/85/4", "--pt", &buffer]).fine().json();
    assert_eq!(info["format"], "raw Intel PT");
    assert_eq!(info["config"]["cpu"], serde_json::json!([6, 85, 4]));
    assert_eq!(info["streams"][0]["segments"], 1);
    assert_eq!(info["clock"], serde_json::Value::Null);
}

#[test]
fn info_of_a_raw_buffer_names_the_source_of_its_code() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &trace(0x1000, 3));
    let code = format!("{}@0x1000", folder.write("code.bin", &program::code(3)));
    let info = |options: &[&str]| hodo(&[&["info", "--pt", &buffer], options].concat()).fine().stdout;
    let shown = info(&["--cpu", "6/85/4", "--code", &code]);
    assert!(
        shown.contains("family 6, model 0x55, stepping 4") && !shown.contains("model is not recorded"),
        "{shown}"
    );
    assert!(!shown.contains("ELF") && shown.contains("  file\n"), "{shown}");
    // Gaps in the flow are known only after decoding.
    assert!(!shown.contains("gaps"), "{shown}");
    assert!(info(&[]).contains("model is not recorded"));
}

/// `script --packets` shows the packet at the byte that a gap names.
#[test]
fn a_gap_has_its_byte() {
    let folder = Folder::new();
    // nop; jmp rax
    let code = format!("{}@0x1000", folder.write("code.bin", &[0x90, 0xff, 0xe0]));
    let mode = Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false };
    let ip = IpPayload::Sext48;
    let trace = [
        Packet::Psb,
        mode,
        Packet::Fup(ip(0x1000)),
        Packet::PsbEnd,
        Packet::Tip(ip(0x5000)),
        Packet::Tnt8(Tnt { bits: 0, count: 2 }),
        Packet::Fup(ip(0x5010)),
        Packet::Tip(ip(0x1000)),
        // No return is at 1001.
        Packet::Tnt8(Tnt { bits: 1, count: 1 }),
    ];
    let trace: Vec<u8> = trace.iter().flat_map(|packet| packet.encode().to_vec()).collect();
    let buffer = folder.write("trace.pt", &trace);
    let script =
        |options: &[&str]| hodo(&[&["script", "--pt", &buffer, "--code", &code], options].concat()).fine();
    let missing = "# gap no code is mapped at 5000, at byte 34";
    let wrong =
        "# gap no conditional branch at 1000, but the trace contains one, at byte 49, doubtful since byte 49";
    assert_eq!(script(&["--insns"]).stdout, format!("1000\n1001\n{missing}\n{wrong}\n"));
    let packets = script(&["--packets"]).stdout;
    for (byte, packet) in [(34, "TNT NN"), (49, "TNT T")] {
        assert!(
            packets.lines().any(|line| line.starts_with(&format!("{byte:08x}: ")) && line.ends_with(packet))
        );
    }
    let objects = script(&["--insns", "--fields", "ip,time,tid,insn", "--format", "jsonl"]).stdout;
    let objects: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, _, missing, wrong] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!(*first, json!({ "ip": 0x1000, "ts": null, "tid": 0, "insn": "nop" }));
    assert_eq!(
        (&missing["name"], &missing["fields"]["from"], &missing["fields"]["to"]),
        (&json!("gap"), &json!(34), &json!(49))
    );
    assert_eq!(missing["fields"]["reason"], "no code is mapped at 5000");
    assert_eq!((&wrong["fields"]["from"], &wrong["fields"]["doubtful_since"]), (&json!(49), &json!(49)));
    let marks = script(&["--marks"]).stdout;
    assert!(marks.contains("gap: no code is mapped at 5000, at byte 34\n"), "{marks}");
}
