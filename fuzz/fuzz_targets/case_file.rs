//! Any text as a case: what can be read can be decoded, and comes out as lines that end.

#![no_main]

use hodo_cases::{Assembly, Case, Code, Section, decode, encode, fold};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(case) = Case::parse(text) else { return };
    let assembly = assemble(&case.code);
    let Ok(trace) = encode(&case.packets, &assembly) else { return };
    let lines = decode(&case.config, &assembly, &trace);
    assert!(fold(&lines).lines().count() <= lines.len());
});

/// In place of the assembler: the source itself is the code, and what stands before a colon is a label of
/// the byte where its line begins.
fn assemble(code: &[Code<'_>]) -> Assembly {
    let mut assembly = Assembly::default();
    let mut address = 0x1000;
    for part in code {
        assembly.sections.push(Section {
            address,
            bytes: part.source.into(),
            from: part.from,
            owner: part.owner,
        });
        for line in part.source.split_inclusive('\n') {
            if let Some((label, _)) = line.split_once(':') {
                assembly.labels.insert(label.to_owned(), address);
            }
            address += line.len() as u64;
        }
    }
    assembly
}
