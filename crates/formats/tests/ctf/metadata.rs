//! Metadata files and TSDL: facts 30 and 31 (see `main.rs`).

use hodo_formats::FORMATS;
use hodo_formats::ctf::{read_head, read_metadata, recognise};
use hodo_formats::events::schema::{ByteOrder, TraceClass};

use crate::show::{lines, refused, tsdl};

const EVENT: &str =
    "trace { byte_order = le; }; event { name = e; fields := struct { integer { size = 8; } x; }; };";

/// Splits text into metadata packets with `size` bytes of text each.
fn packets(text: &str, size: usize, order: ByteOrder) -> Vec<u8> {
    let word = |word: u32| match order {
        ByteOrder::Little => word.to_le_bytes(),
        ByteOrder::Big => word.to_be_bytes(),
    };
    let mut bytes = Vec::new();
    for part in text.as_bytes().chunks(size) {
        bytes.extend(word(0x75D1_1D57));
        bytes.extend([0; 16]);
        let content = (37 + part.len() as u32) * 8;
        [0, content, content + 24].map(word).iter().for_each(|word| bytes.extend(word));
        bytes.extend([0, 0, 0, 1, 8]);
        bytes.extend(part);
        bytes.extend([0; 3]);
    }
    bytes
}

#[test]
fn fact_30_metadata_comes_in_packets_or_plain() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = packets(EVENT, 10, order);
        assert!(recognise(&bytes));
        assert_eq!(read_metadata(&bytes).unwrap().streams[&0].events[0].name, "e");
        let cut = read_metadata(&bytes[..bytes.len() - 1]).unwrap_err().to_string();
        assert!(cut.contains("bytes expected"), "{cut}");
        // babeltrace2 ignores fewer bytes than a header has.
        for stray in [&b"\n"[..], &[0; 36], &[0; 100]] {
            let class = read_metadata(&[&bytes[..], stray].concat()).unwrap();
            assert_eq!(class.streams[&0].events[0].name, "e");
            assert!(class.notes[0].starts_with(&format!("the last {} bytes of the metadata", stray.len())));
        }
        assert!(read_metadata(&[&bytes[..], &bytes[..3]].concat()).is_err());
    }
    for plain in [EVENT.to_owned(), format!("/* CTF 1.8 */ {EVENT}"), format!("\n// no signature\n{EVENT}")] {
        assert!(recognise(plain.as_bytes()));
        assert_eq!(lines(&plain, &[7]), ["- e x=7"]);
    }
    assert!(recognise(b"\x1e{") && recognise(b"{ \"type\": \"preamble\" }"));
    for other in [&b"PERFILE2"[..], b"", b"{}", b"hello", b"event=1", b"/* unfinished"] {
        assert!(!recognise(other), "{other:?}");
    }
    assert_eq!(FORMATS.iter().filter(|format| (format.recognise)(EVENT.as_bytes())).count(), 1);
}

#[test]
fn packets_are_found_without_the_classes_of_events() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ctf");
    for name in ["barectf3.1", "lttng2.13-kernel", "lttng2.16-kernel-ctf2", "ust2.16-ctf2"] {
        let bytes = std::fs::read(format!("{fixtures}/{name}/metadata")).unwrap();
        let (class, head) = (read_metadata(&bytes).unwrap(), read_head(&bytes).unwrap());
        assert!(class.finds_packets_as(&head), "{name}");
        let events =
            |class: &TraceClass| -> usize { class.streams.values().map(|stream| stream.events.len()).sum() };
        assert!(events(&class) > 0 && events(&head) == 0, "{name}");
    }
    let (class, other) = (
        read_metadata(EVENT.as_bytes()).unwrap(),
        EVENT.replace("event", "stream { packet.context := struct { integer { size = 8; } x; }; };\nevent"),
    );
    assert!(!class.finds_packets_as(&read_metadata(other.as_bytes()).unwrap()));
}

#[test]
fn fact_31_types_are_declared_as_in_c() {
    let metadata = tsdl(
        "typealias integer { base = hex; signed = 0; align = 0x8; size = 010; } := unsigned long long int;\r\n\
         typedef unsigned long long int byte, pair[2];\r\n\
         enum state : byte { IDLE, BUSY, LAST = 7, \"AFTER \\\"IT\\\"\" };\r\n\
         struct point { byte x; enum state s; } align(16);\r\n\
         variant either { byte IDLE; pair BUSY; };\r\n\
         callsite { name = \"f\"; func = \"g\"; line = 3; };\r\n\
         event { name = \"e\"; fields := struct {\r\n\
            typealias integer { size = 16; } := local;\r\n\
            struct point p; /* three */ pair two; local l, m;\r\n\
            variant either <p.s> v;\r\n\
         }; };",
    );
    let bytes = [3, 1, 4, 5, 6, 0, 7, 0, 8, 9];
    assert_eq!(lines(&metadata, &bytes), ["- e p={ x=3 s=1:BUSY } two=[ 4 5 ] l=6 m=7 v={ BUSY=[ 8 9 ] }"]);
}

#[test]
fn integers_in_the_same_words_are_the_same_and_no_others() {
    let metadata = tsdl(
        "event { name = \"e\"; fields := struct {\n\
            integer { size = 8; } a; integer { size = 8; } b[2]; integer { size = 8; signed = 1; } c;\n\
            integer { /* } */ size = 16; } d; integer { /* } */ size = 8; } e; integer { /* } */ size = 16; } f;\n\
         }; };",
    );
    let bytes = [1, 2, 3, 252, 5, 0, 6, 7, 0];
    assert_eq!(lines(&metadata, &bytes), ["- e a=1 b=[ 2 3 ] c=-4 d=5 e=6 f=7"]);
    let twice =
        "trace { byte_order = le; }; typealias integer { size = 8; } := a; typealias integer { size = 8; } b";
    assert!(refused(twice).contains("column 99: `:=` expected"), "{}", refused(twice));
    let last = "trace { byte_order = le; }; event { fields := struct { integer { size = 8; } a; integer { size = 8; } 3; }; };";
    assert!(refused(last).contains("column 103: a name expected"), "{}", refused(last));
}

#[test]
fn a_declaration_may_lack_its_semicolon_and_this_is_noted() {
    for (types, fields) in [
        ("struct point { u8 x; u8 y; }", "struct { struct point p; }"),
        ("struct point { u8 x; u8 y; } align(8)", "struct { struct point p; }"),
        ("variant v { u8 a; }\nenum state : u8 { IDLE, BUSY }", "struct { struct { u8 x; u8 y; } p; }"),
    ] {
        let metadata = tsdl(&format!("{types}\nevent {{ name = e; fields := {fields} }};"));
        assert_eq!(lines(&metadata, &[1, 2]), ["- e p={ x=1 y=2 }"]);
        let notes = read_metadata(metadata.as_bytes()).unwrap().notes;
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("line 5: a `;` is missing after this declaration"), "{notes:?}");
    }
    let whole = tsdl("struct point { u8 x; };\nevent { name = e; fields := struct { struct point p; }; };");
    assert_eq!(read_metadata(whole.as_bytes()).unwrap().notes, [""; 0]);
    let wrong = refused(&tsdl("struct point { u8 x; } name;"));
    assert!(wrong.contains("`trace`, `env`"), "{wrong}");
}

#[test]
fn errors_show_the_line_and_a_mark() {
    let wrong = "trace { byte_order = le; };\nevent {\n\tname = e;\n\tfields := struct { uint9 x; };\n};";
    let expected = "line 4, column 21: there is no type `uint9`\n     fields := struct { uint9 x; };\n                        ^";
    assert!(refused(wrong).contains(expected), "{}", refused(wrong));
    for (text, reason) in [
        ("trace { byte_order = le; }; event { name = ; };", "expected a value"),
        ("trace { byte_order = le; }; integer", "`trace`, `env`"),
        ("event { fields := struct { integer { size = 8; } x; }; };", "no `byte_order`"),
        ("event { fields := struct { integer { } x; }; };", "has no `size`"),
        ("event { fields := struct { integer { size = 65; } x; }; };", "1 to 64 bits"),
        ("event { fields := struct { integer { size = 8; align = 3; } x; }; };", "a power of two"),
        ("clock { name = c; freq = 0; };", "frequency of zero"),
        ("trace { } @", "no word"),
        ("event { name = a; }; event { name = b; };", "have the same id, 0"),
    ] {
        assert!(refused(text).contains(reason), "{text}: {}", refused(text));
    }
}

#[test]
fn attributes_that_a_type_does_not_have_are_ignored_and_reported() {
    let metadata = tsdl(
        "event { name = e; fields := struct {
            integer { size = 8; colour = red; volume = 11; } a; floating_point { exp_dig = 8; mant_dig = 24; unit = \"m\"; } b;
            string { language = en; } c; integer { size = 8; colour = red; } d; }; };",
    );
    assert_eq!(lines(&metadata, &[1, 0, 0, 0x80, 0x3f, b'x', 0, 2]), ["- e a=1 b=1 c=\"x\" d=2"]);
    let notes = read_metadata(metadata.as_bytes()).unwrap().notes;
    assert_eq!(
        notes,
        [
            "`unit` (line 6) is not an attribute of `floating_point` and was ignored",
            "`colour` (line 6) is not an attribute of `integer` and was ignored, like 1 more",
            "`language` (line 7) is not an attribute of `string` and was ignored",
        ]
    );
    let wrong = refused(&tsdl("typealias integer { size = 8; signed = maybe; } := t;"));
    assert!(wrong.contains("`true` or `false` expected"), "{wrong}");
}

#[test]
fn a_length_may_be_a_number_of_the_environment() {
    let metadata = tsdl(
        "env { n = 2; text = \"2\"; less = -1; };
        event { name = e; fields := struct { u8 a[env.n]; u8 b; }; };",
    );
    assert_eq!(lines(&metadata, &[1, 2, 3]), ["- e a=[ 1 2 ] b=3"]);
    for entry in ["text", "less", "other"] {
        let reason = refused(&metadata.replace("env.n", &format!("env.{entry}")));
        assert!(reason.contains(&format!("no earlier `env` block has a number `{entry}`")), "{reason}");
    }
    // A field of that name takes precedence.
    let field = tsdl("event { name = e; fields := struct { u8 env; u8 a[env]; }; };");
    assert_eq!(lines(&field, &[1, 7]), ["- e env=1 a=[ 7 ]"]);
}

#[test]
fn the_error_of_text_that_is_no_word_says_why() {
    for (text, reason) in [
        ("trace { major = 18446744073709551616; };", "this number exceeds 64 bits"),
        ("trace { uuid = \"open", "the text that begins here does not end"),
        ("trace { /* open", "the comment that begins here does not end"),
        ("trace { @ };", "no word of CTF metadata begins here"),
    ] {
        let refused = refused(text);
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn types_may_be_nested_256_deep() {
    let nested = |depth: usize| {
        let names: String = (0..depth).map(|level| format!("}} s{level}; ")).collect();
        tsdl(&format!(
            "event {{ name = e; fields := struct {{ {} u8 x; {names} }}; }};",
            "struct { ".repeat(depth)
        ))
    };
    // The scope and the number count too.
    let read = lines(&nested(254), &[7]);
    assert!(read.len() == 1 && read[0].contains("s0={ x=7 }"), "{read:?}");
    assert!(refused(&nested(256)).contains("nested more than 256 deep"));
}

#[test]
fn many_options_take_linear_time() {
    let many = |count: u32| {
        let names = |class: &str, end: &str| -> String {
            (0..count).map(|number| format!("{class} t{number}{end}")).collect()
        };
        tsdl(&format!(
            "event {{ name = e; fields := struct {{ enum : u32 {{ {} }} s; variant <s> {{ {} }} v; }}; }};",
            names("", ","),
            names("u8", ";")
        ))
    };
    let time = |count| {
        let metadata = many(count);
        let start = std::time::Instant::now();
        let read = lines(&metadata, &[&(count - 1).to_le_bytes()[..], &[7]].concat());
        assert_eq!(read, [format!("- e s={0}:t{0} v={{ t{0}=7 }}", count - 1)]);
        start.elapsed()
    };
    // Quadratic time would be 256 times as long. Retries, as the machine may be busy.
    let is_near_linear = || time(1 << 16) < 64 * time(1 << 12);
    assert!((0..3).any(|_| is_near_linear()));
}

#[test]
fn malicious_metadata_is_refused() {
    assert!(refused(&"(".repeat(1 << 20)).contains("column 1"));
    let deep = format!("trace {{ byte_order = le; }}; {}", "struct a { struct { ".repeat(100_000));
    assert!(refused(&deep).contains("nested more than"));
    // Each type contains the previous one twice.
    let mut text = tsdl("struct s0 { u8 x; };");
    for level in 1..60 {
        text += &format!("struct s{level} {{ struct s{0} a; struct s{0} b; }};\n", level - 1);
    }
    assert!(refused(&text).contains("too many") || refused(&text).contains("nested"));
    assert!(refused(&tsdl("struct s { struct s x; };")).contains("there is no struct `s`"));
    // Types that contain themselves.
    for recursive in
        ["struct a { struct a x; };", "typealias struct { b x; } := b;", "variant c { variant c x; };"]
    {
        let reason = refused(&format!("trace {{ byte_order = le; }}; {recursive}"));
        assert!(reason.contains("there is no "), "{recursive}: {reason}");
    }
}
