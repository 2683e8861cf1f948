//! Damaged files never panic, and whatever is left obeys the laws of a module.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

use hodo_symbols::{DebugSections, Lines, Module, debug_references};
use proptest::prelude::*;

static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [source, program] = ["damage.c", "damage"].map(|name| folder.join(name));
    fs::write(&source, include_str!("program.c")).unwrap();
    let status = Command::new("cc").args(["-O1", "-g", "-o"]).args([&program, &source]).status();
    assert!(status.unwrap().success());
    fs::read(&program).unwrap()
});

/// Uses everything that reads the bytes.
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_anywhere(length in 0..PROGRAM.len()) {
        read_all(&PROGRAM[..length]);
    }

    #[test]
    fn changed_bytes(changes in prop::collection::vec((0..PROGRAM.len(), any::<u8>()), 1..40)) {
        let mut bytes = PROGRAM.clone();
        for (at, value) in changes {
            bytes[at] = value;
        }
        read_all(&bytes);
    }

    #[test]
    fn changed_headers(changes in prop::collection::vec((0..0x380_usize, any::<u8>()), 1..4)) {
        let mut bytes = PROGRAM.clone();
        for (at, value) in changes {
            bytes[at] = value;
        }
        read_all(&bytes);
    }

    #[test]
    fn changed_section_headers(changes in prop::collection::vec((1..36 * 64_usize, any::<u8>()), 1..6)) {
        let mut bytes = PROGRAM.clone();
        for (before_end, value) in changes {
            let at = bytes.len() - before_end;
            bytes[at] = value;
        }
        read_all(&bytes);
    }
}
