//! A raw dump of a RISC-V trace: a small program whose calls can be counted by hand.

use serde_json::Value;

use crate::run::{fixture, hodo, word};

/// The instructions that the emulator counted.
const INSTRUCTIONS: usize = 5863;

#[test]
fn each_instruction_and_call_of_a_riscv_program_is_reported() {
    let [trace, settings, program] = ["riscv/tiny.trace", "riscv/tiny.toml", "riscv/tiny"].map(fixture);
    let input = ["--etrace", &trace, "--etrace-config", &settings, "--elf", &program];
    let run = |command: &[&str]| hodo(&[command, &input].concat()).fine().stdout;
    let table: Value = serde_json::from_str(&run(&["report", "functions", "--format", "json"])).unwrap();
    let column = |name: &str| {
        let columns = table["columns"].as_array().unwrap();
        columns.iter().position(|column| column["name"] == name).unwrap()
    };
    let counts = |name: &str| {
        let rows = table["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| word(&row[column("function")]) == name).unwrap();
        (row[column("self_instructions")].as_u64(), row[column("calls")].as_u64())
    };
    // fib(6) calls fib 24 times.
    assert_eq!(counts("fib"), (Some(5580), Some(20 * 25)));
    assert_eq!(counts("twice"), (Some(40), Some(20)));
    // The system call itself does not retire.
    assert_eq!(counts("answer"), (Some(40), Some(20)));
    let listing = run(&["script", "--insns", "--fields", "ip,sym,insn"]);
    assert_eq!(listing.lines().count(), INSTRUCTIONS);
    assert!(listing.starts_with("100b0 _start+0x0 c.li s3,20\n"), "{listing:.80}");
    // However the trace is cut.
    assert_eq!(run(&["script", "--insns", "--fields", "ip,sym,insn", "--chunk-size", "1"]), listing);
    let info = run(&["info"]);
    assert!(info.contains("of RISC-V's E-Trace or N-Trace") && !info.contains("errata"), "{info}");
    let packets = run(&["script", "--packets"]);
    assert!(packets.contains(" START 100b0 privilege 0\n"), "{packets:.400}");
    assert!(packets.contains(" BRANCHES ") && !packets.contains("# "), "{packets:.400}");
    // Every byte of the stream belongs to a line.
    let bytes = |line: &str| line[10..].split_whitespace().take_while(|word| word.len() == 2).count();
    assert_eq!(packets.lines().map(bytes).sum::<usize>(), 1671);
}

#[test]
fn settings_that_are_wrong_are_named() {
    let folder = crate::run::Folder::new();
    let settings = folder.write("wrong.toml", b"[parameters]\niaddress_width = 900\n");
    let ran = hodo(&["info", "--etrace", &fixture("riscv/tiny.trace"), "--etrace-config", &settings]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("wrong.toml") && ran.stderr.contains("iaddress_width"), "{}", ran.stderr);
}
