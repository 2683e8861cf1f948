//! Damaged files never panic, and the readable rest obeys the laws of a module.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, fs};

use hodo_symbols::{DebugSections, Lines, Module, debug_references};
use proptest::prelude::*;

/// Bytes at the start of [`PROGRAM`] with the header of the file and those of the segments.
const FILE_AND_PROGRAM_HEADERS: usize = 0x380;
/// Bytes at its end with about 36 headers of sections.
const SECTION_HEADERS: usize = 36 * 64;

static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [source, program] = ["damage.c", "damage"].map(|name| folder.join(name));
    fs::write(&source, include_str!("program.c")).unwrap();
    let status = Command::new("cc").args(["-O1", "-g", "-o"]).args([&program, &source]).status();
    assert!(status.unwrap().success());
    fs::read(&program).unwrap()
});

/// Calls every reader of the bytes.
fn read_all(bytes: &[u8]) {
    let module = Module::parse("damaged", bytes, Some(bytes));
    let mut before = 0;
    for index in 0..module.function_count() {
        let function = module.function(index);
        assert!(function.start() >= before);
        assert!(index == 0 || module.function_at(function.start()) == index);
        assert!(!function.name().is_empty());
        before = function.start();
    }
    debug_references(bytes);
    if let Ok(Some(sections)) = DebugSections::read(bytes)
        && let Ok(lines) = Lines::new(&sections, None)
    {
        for index in 0..module.function_count() {
            lines.frames_at(module.function(index).start());
        }
    }
}

#[test]
fn what_is_no_elf_file_says_so() {
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0; 4096]] {
        let module = Module::parse("/usr/bin/script", bytes, None);
        assert!(module.problem().is_some());
        assert_eq!(module.function_count(), 1);
        assert_eq!(module.function(module.function_at(0x1234)).name(), "script");
        assert_eq!(module.address(0), None);
    }
}

#[test]
fn bytes_at_an_odd_address_are_read_as_well() {
    let shifted: Vec<u8> = [0].into_iter().chain(PROGRAM.iter().copied()).collect();
    let count = Module::parse("program", &PROGRAM, None).function_count();
    assert_eq!(Module::parse("program", &shifted[1..], None).function_count(), count);
}

#[test]
fn a_file_without_its_end_keeps_its_segments() {
    let whole = Module::parse("program", &PROGRAM, None);
    let cut = Module::parse("program", &PROGRAM[..PROGRAM.len() - 1], None);
    assert!(cut.problem().unwrap().starts_with("section headers"), "{:?}", cut.problem());
    assert_eq!(cut.address(0x1000), whole.address(0x1000));
    assert!(cut.address(0x1000).is_some());
}

#[test]
fn sections_that_share_their_bytes_take_no_longer_than_the_file() {
    const SECTIONS: u16 = 1_000;
    const CONTENTS: u64 = 30 << 20;
    let contents_at = 64 + 64 * u64::from(SECTIONS);
    let names_at = contents_at + CONTENTS;
    // A file header without program headers, then section headers, section contents, names.
    let mut bytes = PROGRAM[..64].to_vec();
    bytes[32..40].fill(0); // e_phoff
    bytes[40..48].copy_from_slice(&64_u64.to_le_bytes()); // e_shoff
    bytes[56..58].fill(0); // e_phnum
    bytes[60..62].copy_from_slice(&SECTIONS.to_le_bytes()); // e_shnum
    bytes[62..64].copy_from_slice(&1_u16.to_le_bytes()); // e_shstrndx
    for section in 0..u64::from(SECTIONS) {
        let (kind, offset, size) = match (section, section % 3) {
            (0, _) => (0, 0, 0),
            (1, _) => (3, names_at, 6),                     // SHT_STRTAB
            (_, 0) => (4, contents_at, CONTENTS / 24 * 24), // SHT_RELA
            (_, 1) => (7, contents_at, CONTENTS),           // SHT_NOTE
            _ => (1, contents_at, CONTENTS),                // SHT_PROGBITS
        };
        let name_and_kind = 1 | kind << 32;
        let flags = 2 | 4; // SHF_ALLOC, SHF_EXECINSTR
        let words = [name_and_kind, flags, 0x1000, offset, size, 0, 4, 24];
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
    }
    // Relocations of an unknown type, empty notes, and a jump.
    bytes.extend([1, 0, 0, 0].into_iter().cycle().take(CONTENTS as usize));
    bytes.extend(b"\0.plt\0");
    let begin = Instant::now();
    let module = Module::parse("crafted", &bytes, None);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert_eq!(module.problem(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_program_cut_anywhere_never_panics(length in 0..PROGRAM.len()) {
        read_all(&PROGRAM[..length]);
    }

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((0..PROGRAM.len(), any::<u8>()), 1..40)) {
        let mut bytes = PROGRAM.clone();
        for (offset, value) in changes {
            bytes[offset] = value;
        }
        read_all(&bytes);
    }

    #[test]
    fn changed_headers_never_panic(
        changes in prop::collection::vec((0..FILE_AND_PROGRAM_HEADERS, any::<u8>()), 1..4),
    ) {
        let mut bytes = PROGRAM.clone();
        for (offset, value) in changes {
            bytes[offset] = value;
        }
        read_all(&bytes);
    }

    #[test]
    fn changed_section_headers_never_panic(
        changes in prop::collection::vec((1..SECTION_HEADERS, any::<u8>()), 1..6),
    ) {
        let mut bytes = PROGRAM.clone();
        for (before_end, value) in changes {
            let offset = bytes.len() - before_end;
            bytes[offset] = value;
        }
        read_all(&bytes);
    }
}
