//! CTF 2: facts 14 and 33 (see `main.rs`), and the field classes that CTF 1.8 lacks.

use hodo_formats::ctf::recognise;

use crate::show::{lines, refused};

/// Joins metadata fragments, with a separator before each.
fn fragments(list: &[&str]) -> String {
    list.iter().map(|fragment| format!("\u{1e}{fragment}\n")).collect()
}

const PREAMBLE: &str = r#"{"type": "preamble", "version": 2}"#;
const TRACE: &str = r#"{"type": "trace-class"}"#;
const STREAM: &str = r#"{"type": "data-stream-class"}"#;

/// Metadata of one event with these members.
fn event(members: &str) -> String {
    let class = format!(
        r#"{{"type": "event-record-class", "name": "e", "payload-field-class": {{"type": "structure", "member-classes": [{members}]}}}}"#
    );
    fragments(&[PREAMBLE, TRACE, STREAM, &class])
}

fn member(name: &str, class: &str) -> String {
    format!(r#"{{"name": "{name}", "field-class": {class}}}"#)
}

fn unsigned(length: u32, rest: &str) -> String {
    format!(
        r#"{{"type": "fixed-length-unsigned-integer", "length": {length}, "byte-order": "little-endian"{rest}}}"#
    )
}

#[test]
fn facts_14_and_33_fragments_with_aliases_roles_and_clocks() {
    let header = r#"{"type": "field-class-alias", "name": "header", "field-class": {
        "type": "structure", "minimum-alignment": 8, "member-classes": [
        {"name": "id", "field-class": {"type": "fixed-length-unsigned-integer", "length": 5, "byte-order": "little-endian",
            "mappings": {"compact": [[0, 30]], "extended": [[31, 31]]}, "roles": ["event-record-class-id"]}},
        {"name": "v", "field-class": {"type": "variant", "selector-field-location": {"path": ["id"]}, "options": [
            {"selector-field-ranges": [[0, 30]], "field-class": {"type": "structure", "member-classes": [
                {"name": "any", "field-class": {"type": "fixed-length-unsigned-integer", "length": 27,
                    "byte-order": "little-endian", "roles": ["default-clock-timestamp"]}}]}},
            {"selector-field-ranges": [[31, 31]], "field-class": {"type": "structure", "member-classes": [
                {"name": "id", "field-class": {"type": "fixed-length-unsigned-integer", "length": 32, "alignment": 8,
                    "byte-order": "little-endian", "roles": ["event-record-class-id"]}},
                {"name": "any", "field-class": {"type": "fixed-length-unsigned-integer", "length": 64, "alignment": 8,
                    "byte-order": "little-endian", "roles": ["default-clock-timestamp"]}}]}}]}}]}}"#;
    let metadata = fragments(&[
        PREAMBLE,
        header,
        r#"{"type": "trace-class", "environment": {"tracer_name": "x", "n": -3}, "attributes": {"any.body": 1}}"#,
        r#"{"type": "clock-class", "id": "c", "frequency": 1000000000, "origin": "unix-epoch",
            "offset-from-origin": {"seconds": 1, "cycles": 5}}"#,
        r#"{"type": "data-stream-class", "default-clock-class-id": "c", "event-record-header-field-class": "header"}"#,
        r#"{"type": "event-record-class", "id": 2, "name": "a"}"#,
        r#"{"type": "event-record-class", "id": 99, "name": "b"}"#,
    ]);
    let bytes =
        [(2u32 | 3 << 5).to_le_bytes().to_vec(), vec![31, 99, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(lines(&metadata, &bytes), ["1000000008 a", "1000000014 b"]);
}

#[test]
fn every_class_of_fields() {
    let len = r#""length-field-location": {"path": ["n"]}"#;
    let members = [
        member("_n", &unsigned(8, "")),
        member("n", &unsigned(8, "")),
        member("bits", r#"{"type": "fixed-length-bit-array", "length": 4, "byte-order": "little-endian"}"#),
        member(
            "map",
            r#"{"type": "fixed-length-bit-map", "length": 4, "byte-order": "little-endian", "flags": {"f": [[0, 1]]}}"#,
        ),
        member("yes", r#"{"type": "fixed-length-boolean", "length": 8, "byte-order": "little-endian"}"#),
        member(
            "half",
            r#"{"type": "fixed-length-floating-point-number", "length": 16, "byte-order": "little-endian"}"#,
        ),
        member("u", r#"{"type": "variable-length-unsigned-integer"}"#),
        member("s", r#"{"type": "variable-length-signed-integer"}"#),
        member("wide", r#"{"type": "null-terminated-string", "encoding": "utf-16be"}"#),
        member("text", &format!(r#"{{"type": "dynamic-length-string", {len}}}"#)),
        member("fixed", r#"{"type": "static-length-string", "length": 3}"#),
        member("blob", &format!(r#"{{"type": "dynamic-length-blob", {len}}}"#)),
        member("static", r#"{"type": "static-length-blob", "length": 1, "media-type": "image/png"}"#),
        member(
            "array",
            &format!(
                r#"{{"type": "dynamic-length-array", {len}, "element-field-class": {}}}"#,
                unsigned(8, "")
            ),
        ),
        member(
            "there",
            &format!(
                r#"{{"type": "optional", "selector-field-location": {{"path": ["yes"]}}, "field-class": {}}}"#,
                unsigned(8, "")
            ),
        ),
        member(
            "not",
            &format!(
                r#"{{"type": "optional", "selector-field-location": {{"path": ["n"]}}, "selector-field-ranges": [[5, 9]], "field-class": {}}}"#,
                unsigned(8, "")
            ),
        ),
        member(
            "last",
            &format!(
                r#"{{"type": "structure", "member-classes": [{}]}}"#,
                member(
                    "up",
                    r#"{"type": "static-length-array", "length": 1, "element-field-class": {"type": "dynamic-length-string", "length-field-location": {"path": [null, "n"]}}}"#
                )
            ),
        ),
        member("reversed", &unsigned(8, r#", "bit-order": "last-to-first""#)),
    ];
    let bytes = [
        &[1, 2, 0x3a, 1, 0x00, 0x3e, 0xe5, 0x8e, 0x26, 0x7f][..],
        &[0x00, 0x41, 0x20, 0xac, 0, 0],
        b"hia\0zok7",
        &[8, 9, 4],
        b"up",
        &[0b1000_0010],
    ]
    .concat();
    let expected = "- e _n=1 n=2 bits=10 map=3 yes=true half=1.5 u=624485 s=-1 wide=\"A€\" text=\"hi\" fixed=\"a\" \
                    blob=[111, 107] static=[55] array=[ 8 9 ] there=4 not=none last={ up=[ \"up\" ] } reversed=65";
    assert_eq!(lines(&event(&members.join(",")), &bytes), [expected]);
}

#[test]
fn a_null_in_a_location_leads_back_and_at_its_end_to_nothing_else() {
    let with_path = |path: &str| {
        let inner = member(
            "text",
            &format!(r#"{{"type": "dynamic-length-string", "length-field-location": {{"path": {path}}}}}"#),
        );
        let inner = format!(r#"{{"type": "structure", "member-classes": [{inner}]}}"#);
        event(&[member("n", &unsigned(8, "")), member("in", &inner)].join(","))
    };
    for path in [r#"[null, "n"]"#, r#"[null, "n", null]"#, r#"[null, "in", null, "n", null, null]"#] {
        assert_eq!(lines(&with_path(path), &[2, b'h', b'i']), ["- e n=2 in={ text=\"hi\" }"], "{path}");
    }
    for path in ["[]", "[null]"] {
        assert!(
            refused(&with_path(path)).contains("a name expected: that of a length or a selector"),
            "{path}"
        );
    }
}

#[test]
fn fact_33_what_is_not_known_is_refused_with_its_path() {
    let unknown = event(&member("x", r#"{"type": "fixed-length-unsigned-enumeration"}"#));
    assert!(refused(&unknown).contains(
        "fragment 4, $.payload-field-class.member-classes[0].field-class.type: CTF 2 has no field class"
    ));
    for (metadata, reason) in [
        (fragments(&[TRACE]), "the first fragment is the preamble"),
        (fragments(&[r#"{"type": "preamble", "version": 3}"#]), "version 3"),
        (
            fragments(&[r#"{"type": "preamble", "version": 2, "uuid": [1, 256]}"#]),
            "fragment 1, $.uuid[1]: a number up to 255 expected",
        ),
        (fragments(&[PREAMBLE, r#"{"type": "surprise"}"#]), "CTF 2 has no fragment type `surprise`"),
        (
            fragments(&[r#"{"type": "preamble", "version": 2, "extensions": {"a": {"b": 1}}}"#]),
            "the CTF 2 extension `a`",
        ),
        (fragments(&[PREAMBLE, "{"]), "fragment 2: EOF"),
        (event(&member("x", r#""nobody""#)), "there is no earlier field class `nobody`"),
        (event(&member("x", &unsigned(65, ""))), "65 bits"),
        (event(&member("x", &unsigned(8, r#", "alignment": 3"#))), "a power of two"),
        (
            event(&member(
                "x",
                r#"{"type": "dynamic-length-blob", "length-field-location": {"path": ["y"]}}"#,
            )),
            "depends on `y`",
        ),
    ] {
        assert!(refused(&metadata).contains(reason), "{reason}: {}", refused(&metadata));
    }
    assert!(refused(&fragments(&[PREAMBLE, &"[".repeat(1 << 20)])).contains("recursion limit"));
}

#[test]
fn a_draft_of_ctf_2_is_named() {
    let enumeration = event(&member("x", r#"{"type": "fixed-length-unsigned-enumeration"}"#));
    for (metadata, draft) in [
        (enumeration, "CTF2-PROP-2.0 of 2020, or one up to CTF2-SPECRC-7.0"),
        (
            fragments(&[r#"{"type": "trace-class"}"#]),
            "CTF2-PROP-2.0 of 2020, or an earlier one: it begins with",
        ),
        (r#"{"type": "trace-class", "uuid": "x"}"#.to_owned(), "CTF2-PROP-2.0 of 2020"),
        (r#"[{"fragment": "trace-class"}]"#.to_owned(), "CTF2-PROP-1.0 of 2016"),
    ] {
        assert!(recognise(metadata.as_bytes()), "{metadata}");
        let refused = refused(&metadata);
        assert!(refused.contains(&format!("This is a draft of CTF 2, {draft}")), "{refused}");
        assert!(refused.contains("CTF2-SPEC-2.0"), "{refused}");
    }
    let wrong = event(&member("x", r#"{"type": "surprise"}"#));
    assert!(!refused(&wrong).contains("draft"), "{}", refused(&wrong));
}

#[test]
fn fact_33_attributes_of_users_are_ignored() {
    let class = unsigned(8, r#", "attributes": {"my.tracer": {"type": "surprise"}}"#);
    assert_eq!(lines(&event(&member("x", &class)), &[7]), ["- e x=7"]);
}
