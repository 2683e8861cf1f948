//! What the encodings that no disassembler at hand knows do to the flow, and the linkage of jumps.

use hodo_isa::riscv::{Kind, Linkage, Set, Shared, decode, show};

const TABLES: Set = Set { shared: Shared::PushesAndTables, ..Set::RV64GC };

fn kind(word: u32, set: Set) -> Option<Kind> {
    decode(&word.to_le_bytes(), 0x1000, set).map(|instruction| instruction.kind)
}

/// Encodings from the tables of the Zc* specification.
#[test]
fn pushes_and_tables_share_encodings_with_doubles() {
    let cases = [
        (0xb842, Kind::Plain, "cm.push {ra},-16"),
        (0xb8fe, Kind::Plain, "cm.push {ra,s0-s11},-160"),
        (0xba5a, Kind::Plain, "cm.pop {ra,s0},48"),
        (0xbc62, Kind::PopReturn, "cm.popretz {ra,s0-s1},32"),
        (0xbe76, Kind::PopReturn, "cm.popret {ra,s0-s2},48"),
        (0xa002, Kind::Table { index: 0 }, "cm.jt 0"),
        (0xa07e, Kind::Table { index: 31 }, "cm.jt 31"),
        (0xa082, Kind::Table { index: 32 }, "cm.jalt 32"),
        (0xa3fe, Kind::Table { index: 255 }, "cm.jalt 255"),
        (0xac26, Kind::Plain, "cm.mvsa01 s0,s1"),
        (0xacfe, Kind::Plain, "cm.mva01s s1,s7"),
    ];
    for (word, expected, text) in cases {
        assert_eq!(kind(word, TABLES), Some(expected), "{text}");
        assert_eq!(show(&word.to_le_bytes(), 0, TABLES).as_deref(), Some(text));
        assert_eq!(kind(word, Set::RV64GC), Some(Kind::Plain));
        assert!(show(&word.to_le_bytes(), 0, Set::RV64GC).is_some_and(|text| text.starts_with("c.fsdsp")));
    }
    assert_eq!(Kind::PopReturn.linkage(), Linkage::Return);
    assert_eq!(Kind::Table { index: 31 }.linkage(), Linkage::None);
    assert_eq!(Kind::Table { index: 32 }.linkage(), Linkage::Call);
}

#[test]
fn the_registers_of_a_jump_decide_its_linkage() {
    use Linkage::{Call, None, Return, Swap};
    let jalr = |link: u32, base: u32| 0x67 | link << 7 | base << 15;
    for (link, base, linkage) in [
        (0, 10, None),
        (0, 1, Return),
        (0, 5, Return),
        (1, 10, Call),
        (5, 10, Call),
        (1, 1, Call),
        (5, 5, Call),
        (1, 5, Swap),
        (5, 1, Swap),
        (6, 28, None),
        (6, 1, Return),
    ] {
        let kind = kind(jalr(link, base), Set::RV64GC).expect("jalr");
        assert_eq!(kind.linkage(), linkage, "jalr x{link},x{base}");
        assert!(kind.is_indirect());
    }
    let from_zero = kind(0x8000_0067, Set::RV64GC).expect("jalr zero,-2048(zero)");
    assert_eq!((from_zero.is_indirect(), from_zero.direct_target()), (false, Some(0xffff_ffff_ffff_f800)));
    assert_eq!(kind(0x8082, Set::RV64GC).map(Kind::linkage), Some(Return), "c.jr ra");
    assert_eq!(kind(0x9282, Set::RV64GC).map(Kind::linkage), Some(Swap), "c.jalr t0");
}

#[test]
fn what_is_no_instruction_is_not_decoded() {
    for bytes in [&[][..], &[0x13], &[0, 0], &[0x13, 0, 0], &[0x1f, 0, 0, 0], &[0xff; 8], &[0x02, 0x80]] {
        assert_eq!(decode(bytes, 0, Set::RV64GC), Option::None, "{bytes:x?}");
    }
}

#[test]
fn addresses_have_the_width_of_registers() {
    // c.j -2, jal zero,-4 and auipc a0,-1 at zero.
    for (word, target) in [(0xbffd_u32, -2_i64 as u64), (0xffdf_f06f, -4_i64 as u64)] {
        let at = |set| decode(&word.to_le_bytes(), 0, set).and_then(|decoded| decoded.kind.direct_target());
        assert_eq!(at(Set::RV64GC), Some(target));
        assert_eq!(at(Set::RV32GC), Some(target & 0xffff_ffff));
    }
    let auipc = decode(&0xffff_f517_u32.to_le_bytes(), 0, Set::RV32GC).expect("auipc");
    assert_eq!(auipc.kind, Kind::Upper { register: 10, value: 0xffff_f000 });
}
