//! Wrong use exits with 2 and unreadable input with 3, and the message contains the remedy.

use crate::{
    raw,
    run::{Folder, hodo},
};

#[test]
fn wrong_use_ends_with_2() {
    let cases: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["report"],
        &["report", "frobnicate"],
        &["report", "functions", "--format", "xml"],
        &["report", "functions", "--frobnicate"],
        &["script", "--insns", "--packets"],
        &["script", "--packets", "--time", "10%-20%"],
        &["script", "--packets", "--call", "main"],
        &["report", "functions", "--every", "10"],
        &["report", "functions", "--every", "0ns"],
        &["report", "lines", "--every", "10ns"],
        &["info", "--time", "10%-20%"],
        &["info", "-j", "2"],
        &["script", "--insns", "--fields", "colour"],
        &["script", "--format", "csv"],
        &["info", "--format", "csv"],
        &["info", "--cpu", "6/85", "perf.data"],
        &["info", "--pt", "trace", "--cpu", "pentium"],
        &["info", "--pt", "trace", "--code", "nowhere"],
        &["info", "--pt", "trace", "--cpuid-0x15", "0:0"],
        &["script", "--pt", "trace", "--filter", "filter main @ ./prog"],
        &["script", "--pt", "trace", "--filter", "start 0x1000"],
        &["script", "--filter", "0x1000-0x2000", "perf.data"],
        &["script", "--guest-code=a@0x1000", "perf.data"],
        &["script", "--guest-code", "--guestmount", "/", "perf.data"],
        &["script", "--guestmount", "/", "--pt", "trace"],
        &["script", "--pt", "trace", "--guest-code", "--guest-elf", "a"],
        &["script", "--pt", "trace", "--code", "a@1", "--host-code", "b@1", "--guest-code=c@1"],
        &["record"],
        &["record", "--engine", "frobnicate", "--", "true"],
        &["record", "--snapshot=huge", "--", "true"],
        &["record", "--engine", "emulate", "-e", "cycles", "--", "true"],
        &["record", "--engine", "emulate", "-o", "/dev/null", "--", "true"],
    ];
    for case in cases {
        let ran = hodo(case);
        assert_eq!(ran.code, 2, "{case:?}: {ran:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{case:?}: {ran:?}");
    }
}

#[test]
fn wrong_values_of_options_end_with_2() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &raw::trace(0x1000, 3));
    for (option, value, expected) in [
        ("--chunk-size", "many", "4096, 64K"),
        ("--chunk-size", "0", "4096, 64K"),
        ("--time", "10%", "START,STOP"),
        ("--jobs", "all", "invalid"),
    ] {
        let ran = hodo(&["report", "functions", option, value, "--pt", &buffer]);
        assert_eq!(ran.code, 2, "{option} {value}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{option} {value}: {ran:?}");
    }
}

#[test]
fn what_can_not_be_read_ends_with_3() {
    let folder = Folder::new();
    let file = |name: &str, bytes: &[u8]| folder.write(name, bytes);
    let header = [&b"PERFILE2"[..], &104u64.to_le_bytes(), &[0; 20]].concat();
    let cases = [
        (folder.file("missing.data"), "hodo record -- COMMAND"),
        (file("empty.data", b""), "offset 0x0: not a trace"),
        (file("text.data", b"PERFECT, but not a recording"), "not a trace"),
        (file("cut.data", &header), "offset 0x20: perf.data header: 8 bytes expected, but only 4 are left"),
        (folder.file("."), "a folder without a trace: no `metadata`"),
        ("/dev/zero".to_owned(), "is a pipe or a device"),
    ];
    for (path, expected) in &cases {
        for command in
            [&["info"][..], &["report", "functions"], &["script", "--packets"], &["script", "--calls"]]
        {
            let ran = hodo(&[command, &[path.as_str()]].concat());
            assert_eq!(ran.code, 3, "{command:?} {path}: {ran:?}");
            assert!(ran.stdout.is_empty(), "{command:?} {path}: {ran:?}");
            assert!(ran.stderr.starts_with(&format!("hodo: {path}: ")), "{command:?} {path}: {ran:?}");
            assert!(ran.stderr.contains(expected), "{command:?} {path}: {ran:?}");
        }
    }
}

#[test]
fn what_is_no_trace_ends_with_3_for_reports_on_events() {
    let folder = Folder::new();
    let part = folder.file("new.part");
    let commands = [
        &["report", "cpu"][..],
        &["report", "count"],
        &["report", "all"],
        &["fold", "cpu", "--part", "1/1", "-o", &part],
        &["export", "--to", "ctf", "-o", &part],
    ];
    let cases = [
        (folder.write("text", b"root:x:0:0:root:/root:/bin/sh\n"), "not a trace"),
        (folder.file("."), "a folder without a trace"),
        (folder.file("missing"), "hodo record -- COMMAND"),
    ];
    for (path, expected) in &cases {
        for command in commands {
            let ran = hodo(&[command, &[path.as_str()]].concat());
            assert_eq!(ran.code, 3, "{command:?} {path}: {ran:?}");
            assert!(ran.stderr.starts_with(&format!("hodo: {path}: ")), "{command:?} {path}: {ran:?}");
            assert!(ran.stderr.contains(expected), "{command:?} {path}: {ran:?}");
        }
    }
}

#[test]
fn code_that_can_not_be_opened_ends_with_3() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &raw::trace(0x1000, 3));
    let missing = folder.file("missing.bin");
    let ran = hodo(&["script", "--insns", "--pt", &buffer, "--code", &format!("{missing}@0x1000")]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(&missing), "{ran:?}");
    let text = folder.write("program", b"no ELF file");
    let ran = hodo(&["script", "--insns", "--pt", &buffer, "--elf", &text]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("ELF") && ran.stderr.starts_with(&format!("hodo: {text}: ")), "{ran:?}");
}

#[test]
fn an_output_that_can_not_be_written_ends_with_3() {
    let folder = Folder::new();
    let buffer = folder.write("trace.pt", &raw::trace(0x1000, 3));
    let nowhere = folder.file("no-such-folder/out.txt");
    let ran = hodo(&["script", "--packets", "--pt", &buffer, "-o", &nowhere]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains(&nowhere), "{ran:?}");
}

#[test]
fn every_help_has_examples() {
    for command in [&[][..], &["record"], &["info"], &["script"], &["report"], &["annotate"]] {
        let ran = hodo(&[command, &["--help"]].concat()).fine();
        let (_, examples) = ran.stdout.split_once("Examples:\n").unwrap_or_else(|| panic!("{ran:?}"));
        assert!(examples.contains(&["  hodo", command.first().unwrap_or(&"")].join(" ")), "{ran:?}");
    }
}

#[test]
fn the_kinds_of_report_are_listed() {
    let ran = hodo(&["report", "--list"]).fine();
    for kind in ["functions", "tree", "lines", "blocks"] {
        assert!(ran.stdout.lines().any(|line| line.starts_with(kind)), "{ran:?}");
    }
}
