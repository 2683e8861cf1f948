//! Fields, their positions and names: facts 11, 12 and 15 to 20 (see `main.rs`).

use crate::show::{lines, refused, tsdl};

/// Metadata of one event with these fields.
fn event(fields: &str) -> String {
    tsdl(&format!("event {{ name = e; fields := struct {{ {fields} }}; }};"))
}

#[test]
fn fact_11_selectors_and_lengths_lie_in_outer_scopes() {
    let metadata = tsdl(
        "stream {
            event.header := struct { enum : u8 { one = 1, two = 2 } id; };
            event.context := struct { u8 _n; };
        };
        event { id = 2; name = e; context := struct { u8 _m; }; fields := struct {
            variant <stream.event.header.id> { u8 one; u16 two; } v;
            u8 a[stream.event.context._n]; u8 b[event.context._m];
            struct { u8 n; u8 x[n]; } pairs[2];
        }; };",
    );
    let read = lines(&metadata, &[2, 1, 2, 0x34, 0x12, 7, 8, 9, 1, 5, 0]);
    assert_eq!(
        read,
        ["- e n=1 m=2 v={ two=4660 } a=[ 7 ] b=[ 8 9 ] pairs=[ { n=1 x=[ 5 ] } { n=0 x=[ ] } ]"]
    );
}

#[test]
fn fact_11_the_innermost_structure_comes_first() {
    let metadata = event("u8 n; struct { u8 n; u8 x[n]; } inner; u8 y[n]; u8 z[inner.n];");
    assert_eq!(
        lines(&metadata, &[1, 2, 5, 6, 7, 8, 9]),
        ["- e n=1 inner={ n=2 x=[ 5 6 ] } y=[ 7 ] z=[ 8 9 ]"]
    );
    assert!(refused(&event("u8 x[later]; u8 later;")).contains("depends on `later`"));
}

#[test]
fn fact_12_one_underscore_is_no_part_of_a_name() {
    let metadata = event(
        "u8 _a; u8 __b_length; u8 _b[__b_length]; enum : u8 { _x = 1, string = 2 } t; variant <t> { u8 x; u8 _string; } v;",
    );
    assert_eq!(lines(&metadata, &[1, 1, 9, 2, 3]), ["- e a=1 _b_length=1 b=[ 9 ] t=2:string v={ string=3 }"]);
    assert_eq!(lines(&metadata, &[1, 0, 1, 3]), ["- e a=1 _b_length=0 b=[ ] t=1:_x v={ x=3 }"]);
}

#[test]
fn fact_15_alignment_counts_from_the_packet_and_holds_for_empty_arrays_too() {
    let aligned = "u8 n; integer { size = 32; align = 32; } s[n]; u8 after;";
    assert_eq!(lines(&event(aligned), &[0, 0xee, 0xee, 0xee, 5]), ["- e n=0 s=[ ] after=5"]);
    let variant =
        "enum : u8 { small = 0, big = 1 } t; variant <t> { u8 small; struct { u8 x; } align(32) big; } v;";
    assert_eq!(lines(&event(variant), &[0, 7]), ["- e t=0:small v={ small=7 }"]);
    assert_eq!(lines(&event(variant), &[1, 0, 0, 0, 7]), ["- e t=1:big v={ big={ x=7 } }"]);
    let empty = lines(&tsdl("event { name = e; };"), &[1, 2]);
    assert_eq!(empty.len(), 1);
    assert!(empty[0].contains("of zero bits"), "{empty:?}");
}

#[test]
fn fact_16_integers_of_whole_bytes_are_aligned_to_bytes_and_others_to_bits() {
    let bits = "integer { size = 3; } a; integer { size = 8; } b; integer { size = 3; } c; integer { size = 32; align = 1; } d; integer { size = 5; } e;";
    // d is in bits 19 to 50.
    let bytes = [0b101, 0xab, 0b1010_1110, 0b0101_0101, 0b1111_0000, 0, 0b11];
    let d = (u64::from_le_bytes([0xae, 0x55, 0xf0, 0, 3, 0, 0, 0]) >> 3) as u32;
    assert_eq!(lines(&event(bits), &bytes), [format!("- e a=5 b=171 c=6 d={d} e=0")]);
}

#[test]
fn fact_17_bits_come_in_the_order_of_their_bytes() {
    let nibbles = |order: &str| {
        event(&format!(
            "integer {{ size = 4; byte_order = {order}; }} a; integer {{ size = 12; byte_order = {order}; }} b;"
        ))
    };
    assert_eq!(lines(&nibbles("le"), &[0x12, 0x34]), ["- e a=2 b=833"]);
    assert_eq!(lines(&nibbles("be"), &[0x12, 0x34]), ["- e a=1 b=564"]);
    let mixed = event("integer { size = 4; byte_order = le; } a; integer { size = 4; byte_order = be; } b;");
    assert!(refused(&mixed).contains("byte order"), "{}", refused(&mixed));
    let apart =
        event("integer { size = 8; byte_order = le; } a; integer { size = 4; byte_order = be; } b, c;");
    assert_eq!(lines(&apart, &[1, 0x20]), ["- e a=1 b=2 c=0"]);
}

#[test]
fn fact_18_each_integer_has_a_byte_order() {
    let network = event(
        "integer { size = 16; byte_order = network; } a; integer { size = 16; byte_order = native; } b; integer { size = 32; signed = true; byte_order = be; } c;",
    );
    assert_eq!(
        lines(&network, &[0x12, 0x34, 0x12, 0x34, 0xff, 0xff, 0xff, 0xfe]),
        ["- e a=4660 b=13330 c=-2"]
    );
    let big = event("u16 x;").replace("byte_order = le", "byte_order = be");
    assert_eq!(lines(&big, &[0x12, 0x34]), ["- e x=4660"]);
}

#[test]
fn facts_19_and_20_text_ends_at_its_nul_and_may_be_empty() {
    let text = "integer { size = 8; encoding = UTF8; } a[4]; u8 n; integer { size = 8; encoding = ASCII; } b[n]; string c; u8 d[2];";
    assert_eq!(lines(&event(text), b"ab\0z\x02xy\0\x01\x02"), ["- e a=\"ab\" n=2 b=\"xy\" c=\"\" d=[ 1 2 ]"]);
    assert_eq!(lines(&event(text), b"abcd\0hi\0\x01\x02"), ["- e a=\"abcd\" n=0 b=\"\" c=\"hi\" d=[ 1 2 ]"]);
}

#[test]
fn arrays_of_several_dimensions_and_floating_point_numbers() {
    let fields = "u8 a[2][3]; floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f; floating_point { exp_dig = 11; mant_dig = 53; align = 8; } d;";
    let bytes =
        [vec![1, 2, 3, 4, 5, 6], 1.5f32.to_le_bytes().to_vec(), (-0.1f64).to_le_bytes().to_vec()].concat();
    assert_eq!(lines(&event(fields), &bytes), ["- e a=[ [ 1 2 3 ] [ 4 5 6 ] ] f=1.5 d=-0.1"]);
}

#[test]
fn a_length_without_room_for_it_ends_the_packet() {
    let metadata = event("u64 n; u8 x[n];");
    for length in [u64::MAX, 1 << 63, 3] {
        let bytes = [length.to_le_bytes().to_vec(), vec![1, 2]].concat();
        let read = lines(&metadata, &bytes);
        assert_eq!(
            read,
            [format!(
                "! event at bit 0 of its packet: a length of {length}, which the packet has no room for"
            )]
        );
    }
    // Zero-size elements could be endless, even nested ones.
    let empty = event("u64 n; struct { } x[n]; u8 y;");
    let read = lines(&empty, &[u64::MAX.to_le_bytes().to_vec(), vec![1]].concat());
    assert_eq!(read, [format!("- ! a length of {}, which the packet has no room for", u64::MAX)]);
    let nested = event("u64 n; struct { string s; struct { } inner[n]; } x[n];");
    assert!(lines(&nested, &[(1u64 << 62).to_le_bytes().to_vec(), vec![0; 40]].concat())[0].starts_with('!'));
}

#[test]
fn a_value_that_selects_nothing_ends_the_packet() {
    let metadata =
        event("enum : integer { size = 8; signed = true; } { a = -1 } t; variant <t> { u8 a; } v;");
    assert_eq!(lines(&metadata, &[255, 7]), ["- e t=-1:a v={ a=7 }"]);
    assert!(lines(&metadata, &[3, 7])[0].contains("no option of a variant is selected by 3"));
}
