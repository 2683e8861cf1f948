//! A recording of a trace unit of Arm: a small program whose calls can be counted by hand.

use serde_json::Value;

use crate::{
    profiles::table,
    run::{fixture, hodo, word},
};

/// The instructions that the emulator counted.
const INSTRUCTIONS: usize = 4385;

#[test]
fn each_instruction_and_call_of_an_arm_program_is_reported() {
    let (symfs, recording) = (fixture("arm/symfs"), fixture("arm/tiny.data"));
    let run = |command: &[&str]| hodo(&[command, &["--symfs", &symfs, &recording]].concat()).fine().stdout;
    let (_, rows) = table("functions", &["--symfs", &symfs], &recording);
    let counts = |name: &str| {
        let row = rows.iter().find(|row| word(&row["function"]) == name).unwrap_or(&Value::Null);
        (row["self_instructions"].as_u64(), row["calls"].as_u64())
    };
    // fib(6) calls fib 24 times.
    assert_eq!(counts("fib"), (Some(4140), Some(20 * 25)));
    assert_eq!(counts("twice"), (Some(40), Some(20)));
    assert_eq!(counts("answer"), (Some(60), Some(20)));
    let listing = run(&["script", "--insns", "--fields", "ip,sym,insn"]);
    assert_eq!(listing.lines().count(), INSTRUCTIONS);
    assert!(listing.starts_with("400078 _start+0x0 mov x19, #0x14\n"), "{listing:.80}");
    // However the trace is cut.
    assert_eq!(run(&["script", "--insns", "--fields", "ip,sym,insn", "--chunk-size", "1"]), listing);
    let info = run(&["info"]);
    assert!(info.contains("of Arm's ETMv4 or ETE") && !info.contains("errata"), "{info}");
}
