//! Written traces read back as their source.

use std::{fs, process::Command};

use hodo_formats::ctf::write::Version;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    anew::{read_back, written},
    show::{lines, read, trace, tsdl},
};

/// The items of a trace, and of the trace written in each version.
fn in_versions(metadata: &str, bytes: &[u8]) -> [Vec<String>; 3] {
    let files = [("s", bytes.to_vec())];
    let trace = trace(metadata, &files);
    let in_version = |version| {
        let (target, files) = written(&trace, version, |_| true);
        read_back(&target, &files)
    };
    [lines(metadata, bytes), in_version(Version::Ctf18), in_version(Version::Ctf2)]
}

#[test]
fn tsdl_of_all_kinds_is_written_in_both_versions() {
    let metadata = tsdl(
        "env { text = \"a \\\"b\\\"\\n\"; number = -3; };
        clock { name = c; freq = 3; offset_s = -1; offset = 7; };
        stream { packet.context := struct { u8 _cpu_id; };
            event.header := struct { enum : u8 { one = 1, two = 2 } id; integer { size = 5; map = clock.c.value; } t; };
            event.context := struct { u8 _n; }; };
        event { id = 2; name = \"a:b\"; loglevel = 6; context := struct { u8 _m; }; fields := struct {
            enum : integer { size = 4; signed = true; } { low = -2 ... 1, \"x y\" = 1 } _sel;
            variant <_sel> { string _low; u8 _other; } _v;
            integer { size = 3; byte_order = be; align = 8; } _bits; u8 _a[stream.event.context._n]; u8 _b[event.context._m];
            struct { u8 n; u8 x[n]; } _pairs[2]; integer { size = 8; encoding = UTF8; } _text[4];
            u16 _grid[2][1];
        }; };",
    );
    let event = [2, 3, 1, 2, 0x0f, b'h', b'i', 0, 0xa0, 7, 8, 9, 1, 5, 0, b'o', b'k', 0, 9, 1, 0, 2, 0];
    let bytes = [&[4u8][..], &event].concat();
    let [read, old, new] = in_versions(&metadata, &bytes);
    assert_eq!(read.len(), 1);
    assert!(read[0].contains("v={ low=\"hi\" }") && read[0].contains("grid=[ [ 1 ] [ 2 ] ]"), "{read:?}");
    assert_eq!(old, read);
    assert_eq!(new, read);
}

/// A field class that a version has, from any bytes. `integers` are the preceding members that lengths may refer to.
fn class(bytes: &mut impl Iterator<Item = u8>, depth: u32, integers: &[String], version: Version) -> Value {
    let mut next = || bytes.next().unwrap_or(0);
    let (kind, size, order) = (next(), next() % 64 + 1, next());
    let alignment = 1 << (order / 2 % 5);
    let order = if order.is_multiple_of(2) { "little-endian" } else { "big-endian" };
    let integer = |kind: &str| {
        // Fields of different byte orders may not share a byte.
        json!({"type": kind, "length": size, "alignment": alignment.max(8), "byte-order": order})
    };
    let location = || json!({"path": [integers[usize::from(size) % integers.len()]]});
    match kind % 14 {
        0 if version == Version::Ctf2 => json!({"type": "variable-length-signed-integer"}),
        1 if version == Version::Ctf2 => json!({"type": "null-terminated-string", "encoding": "utf-16le"}),
        2 if version == Version::Ctf2 => json!({"type": "static-length-blob", "length": size % 5}),
        3 if version == Version::Ctf2 && !integers.is_empty() => {
            json!({"type": "optional", "selector-field-location": location(),
            "selector-field-ranges": [[0, 100]], "field-class": integer("fixed-length-boolean")})
        }
        4 => json!({"type": "null-terminated-string"}),
        5 => json!({"type": "static-length-string", "length": size % 5}),
        6 => {
            json!({"type": "fixed-length-floating-point-number", "length": if size.is_multiple_of(2) { 32 } else { 64 },
            "alignment": alignment.max(8), "byte-order": order})
        }
        7 if !integers.is_empty() => {
            json!({"type": "dynamic-length-string", "length-field-location": location()})
        }
        8 if !integers.is_empty() && depth > 0 => json!({"type": "dynamic-length-array",
            "length-field-location": location(), "element-field-class": class(bytes, 0, &[], version)}),
        9 if !integers.is_empty() && depth > 0 => {
            let options = [[0, 90], [91, 255]].map(|ranges| {
                json!({"selector-field-ranges": [ranges], "name": format!("o{}", ranges[0]),
                    "field-class": class(bytes, depth - 1, &[], version)})
            });
            json!({"type": "variant", "selector-field-location": location(), "options": options})
        }
        10 if depth > 0 => structure(bytes, depth - 1, version),
        11 if depth > 0 => json!({"type": "static-length-array", "length": size % 4,
            "element-field-class": class(bytes, depth - 1, &[], version)}),
        12 => integer("fixed-length-signed-integer"),
        _ => integer("fixed-length-unsigned-integer"),
    }
}

fn structure(bytes: &mut impl Iterator<Item = u8>, depth: u32, version: Version) -> Value {
    let mut integers = Vec::new();
    let mut members = Vec::new();
    for index in 0..bytes.next().unwrap_or(0) % 5 {
        let name = format!("m{depth}_{index}");
        if bytes.next().unwrap_or(0).is_multiple_of(3) {
            let byte = json!({"type": "fixed-length-unsigned-integer", "length": 8, "alignment": 8,
                "byte-order": "big-endian"});
            members.push(json!({"name": name, "field-class": byte}));
            integers.push(name);
        } else {
            members.push(json!({"name": name, "field-class": class(bytes, depth, &integers, version)}));
        }
    }
    json!({"type": "structure", "member-classes": members})
}

/// Metadata of two event classes with any fields, and timestamps of `time` bits.
fn metadata(entropy: &[u8], time: u8, version: Version) -> String {
    let mut bytes = entropy.iter().copied();
    let member = |name: &str, length: u8, role: &str| {
        json!({"name": name, "field-class": {"type": "fixed-length-unsigned-integer", "length": length,
            "byte-order": "little-endian", "roles": [role]}})
    };
    let header = json!({"type": "structure", "minimum-alignment": 8, "member-classes":
        [member("id", 1, "event-record-class-id"), member("time", time, "default-clock-timestamp")]});
    let mut fragments = vec![
        json!({"type": "preamble", "version": 2}),
        json!({"type": "trace-class"}),
        json!({"type": "clock-class", "id": "c", "frequency": 1_000_000_000}),
        json!({"type": "data-stream-class", "default-clock-class-id": "c", "event-record-header-field-class": header,
            "event-record-common-context-field-class": structure(&mut bytes, 1, version)}),
    ];
    for id in 0..2 {
        fragments.push(json!({"type": "event-record-class", "id": id, "name": format!("e{id}"),
            "payload-field-class": structure(&mut bytes, 2, version)}));
    }
    fragments.iter().map(|fragment| format!("\u{1e}{fragment}")).collect()
}

fn is_event(line: &&String) -> bool {
    // Excludes losses and events with unreadable fields.
    !line.starts_with('!') && !line.contains(" ! ") && !line.contains("m1_0=!")
}

/// The number of events that babeltrace2 reads, or its error.
fn read_by_babeltrace(metadata: &str, files: &[(String, Vec<u8>)]) -> Result<usize, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("metadata"), metadata).unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let ran = Command::new("babeltrace2").arg("--no-delta").arg(folder.path()).output();
    let ran = ran.map_err(|error| format!("babeltrace2 (`cargo xtask setup` installs it): {error}"))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    Ok(ran.stdout.split(|&byte| byte == b'\n').filter(|line| is_shown_event(line)).count())
}

/// Whether a line begins an event; texts contain line feeds too.
fn is_shown_event(line: &[u8]) -> bool {
    line.starts_with(b"[") && (line.windows(3).any(|name| name == b" e0" || name == b" e1"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn any_classes_are_written_so_that_babeltrace2_reads_them(
        entropy in prop::collection::vec(any::<u8>(), 0..80),
        data in prop::collection::vec(any::<u8>(), 0..200),
        // babeltrace2 rejects times beyond 2^63 ns, which longer timestamps reach after a few wraps.
        time in 3u8..=56,
    ) {
        let metadata = metadata(&entropy, time, Version::Ctf18);
        let files = [("s", data)];
        let trace = trace(&metadata, &files);
        let (target, files) = written(&trace, Version::Ctf18, |_| true);
        let events = read_back(&target, &files).len();
        let files: Vec<_> = files.into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        prop_assert_eq!(read_by_babeltrace(&target.metadata, &files), Ok(events), "{}", target.metadata);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn any_classes_are_written_as_they_are_read(
        entropy in prop::collection::vec(any::<u8>(), 0..80),
        data in prop::collection::vec(any::<u8>(), 0..200),
        time in 3u8..=63,
        version in prop_oneof![Just(Version::Ctf18), Just(Version::Ctf2)],
    ) {
        let metadata = metadata(&entropy, time, version);
        let files = [("s", data)];
        let trace = trace(&metadata, &files);
        let all = read(&trace);
        for keep in [(|_| true) as fn(usize) -> bool, |number| number % 3 == 1] {
            let (target, files) = written(&trace, version, keep);
            let kept: Vec<String> = all
                .iter()
                .take_while(|line| !line.starts_with("! event at"))
                .enumerate()
                .filter(|(number, line)| keep(*number) && is_event(line))
                .map(|(_, line)| line.clone())
                .collect();
            // In CTF 1.8, the options of variants are labels of their selector.
            let plain = |line: &String| line.replace(":o0", "").replace(":o91", "");
            let again: Vec<String> = read_back(&target, &files).iter().map(plain).collect();
            prop_assert_eq!(again, kept, "{}", target.metadata);
        }
    }
}

#[test]
fn classes_that_ctf_1_8_lacks_become_the_nearest() {
    let unsigned = |rest: &str| {
        format!(
            r#"{{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian"{rest}}}"#
        )
    };
    let member = |name: &str, class: &str| format!(r#"{{"name": "{name}", "field-class": {class}}}"#);
    let members = [
        member("string", &unsigned("")),
        member("_a b", &unsigned("")),
        member("u", r#"{"type": "variable-length-unsigned-integer"}"#),
        member("yes", r#"{"type": "fixed-length-boolean", "length": 8, "byte-order": "little-endian"}"#),
        member(
            "half",
            r#"{"type": "fixed-length-floating-point-number", "length": 16, "byte-order": "little-endian"}"#,
        ),
        member("wide", r#"{"type": "null-terminated-string", "encoding": "utf-16be"}"#),
        member("blob", r#"{"type": "dynamic-length-blob", "length-field-location": {"path": ["string"]}}"#),
        member(
            "there",
            &format!(
                r#"{{"type": "optional", "selector-field-location": {{"path": ["yes"]}}, "field-class": {}}}"#,
                unsigned("")
            ),
        ),
        member(
            "not",
            &format!(
                r#"{{"type": "optional", "selector-field-location": {{"path": ["string"]}}, "selector-field-ranges": [[5, 9]],
                "field-class": {}}}"#,
                unsigned("")
            ),
        ),
    ];
    let metadata = format!(
        "\u{1e}{}\u{1e}{}\u{1e}{}\u{1e}{}",
        r#"{"type": "preamble", "version": 2}"#,
        r#"{"type": "trace-class"}"#,
        r#"{"type": "data-stream-class"}"#,
        format_args!(
            r#"{{"type": "event-record-class", "name": "e", "payload-field-class": {{"type": "structure", "member-classes": [{}]}}}}"#,
            members.join(",")
        )
    );
    let bytes = [&[2, 9, 0xe5, 0x8e, 0x26, 1, 0x00, 0x3e, 0x20, 0xac, 0, 0][..], b"ok", &[4]].concat();
    let [read, old, new] = in_versions(&metadata, &bytes);
    assert_eq!(new, read);
    assert_eq!(
        read,
        ["- e string=2 _a b=9 u=624485 yes=true half=1.5 wide=\"€\" blob=[111, 107] there=4 not=none"]
    );
    assert_eq!(
        old,
        [
            "- e string=2:none _a_b=9 u=624485 yes=1:some half=1.5 wide=\"€\" blob=[ 111 107 ] there={ some=4 } not={ none={ } }"
        ]
    );
}
