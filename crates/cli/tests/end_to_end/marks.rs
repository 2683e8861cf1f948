//! Events beside the flow.

use hodo_intel_pt::packet::{IpPayload, Packet, Tnt};

use crate::run::{Folder, hodo};

/// Returns `nop; ptwrite eax; jz .; syscall` and a trace of it with events of all kinds.
fn traced(folder: &Folder) -> (String, String) {
    let code = folder.write("code.bin", &[0x90, 0xf3, 0x0f, 0xae, 0xe0, 0x74, 0xf9, 0x0f, 0x05]);
    let packets = [
        Packet::Psb,
        Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false },
        Packet::Fup(IpPayload::Full(0x1000)),
        Packet::PsbEnd,
        Packet::Cbr(20),
        Packet::PtWrite { payload: 0x1234, wide: false, ip: false },
        Packet::Tnt8(Tnt { bits: 0, count: 1 }),
        Packet::Pwre { hardware: false, state: 6, sub_state: 1 },
        Packet::TipPgd(IpPayload::Suppressed),
    ];
    let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.encode().to_vec()).collect();
    (folder.write("trace.pt", &bytes), format!("{code}@0x1000"))
}

fn script(what: &str, format: &str) -> String {
    let folder = Folder::new();
    let (trace, code) = traced(&folder);
    let ran = hodo(&["script", what, "--format", format, "--strict", "--pt", &trace, "--code", &code]);
    ran.fine().stdout.clone()
}

#[test]
fn values_that_ptwrite_wrote_are_listed() {
    assert_eq!(script("--ptwrite", "text"), "- - 0/0 ptwrite 1234 at 1001 (code.bin+0x1)\n");
    let line: serde_json::Value = serde_json::from_str(&script("--ptwrite", "jsonl")).unwrap();
    let expected = serde_json::json!({
        "ts": null, "stream": "tid 0", "pid": 0, "tid": 0, "name": "ptwrite",
        "fields": { "ip": 0x1001, "payload": 0x1234 }, "symbol": "code.bin+0x1",
    });
    assert_eq!(line, expected);
}

#[test]
fn power_states_are_listed() {
    assert_eq!(script("--power", "text"), "- - 0/0 core-to-bus ratio 20\n- - 0/0 power entry C6.1\n");
    let lines = script("--power", "jsonl");
    assert!(lines.contains("{\"fields\":{\"value\":20},\"name\":\"core_bus_ratio\""), "{lines}");
    assert!(lines.contains("{\"fields\":{\"hardware\":false,\"state\":6,\"sub_state\":1}"), "{lines}");
}

#[test]
fn other_events_are_listed() {
    assert_eq!(script("--events", "text"), "- - 0/0 tracing off\n");
}
