//! Instructions of Arm: how they leave the straight line, and their text. `cargo judge arm` compares every encoding class with
//! binutils.

#![allow(missing_docs)]

use hodo_isa::{Isa, Printer, Terminator, Undecodable};

const AT: u64 = 0x1_0000;

/// The terminator, the target relative to the instruction, the length and the text.
fn shown(isa: Isa, bytes: &[u8]) -> (Terminator, i64, u8, String) {
    let instruction = isa.instruction(bytes, AT).unwrap();
    let (step, mut text) = (instruction.step(), String::new());
    Printer::default().print(&instruction, &mut text);
    (step.terminator, step.target.wrapping_sub(AT) as i64, step.length, text)
}

#[track_caller]
fn check(isa: Isa, bytes: &[u8], terminator: Terminator, target: i64, text: &str) {
    let expected = (terminator, target, bytes.len() as u8, text.to_owned());
    assert_eq!(shown(isa, bytes), expected);
    // A reader of a whole piece agrees.
    let piece = [bytes, &[0; 4]].concat();
    let step = isa.reader(&piece, AT).read(AT).unwrap();
    assert_eq!((step.terminator, step.target.wrapping_sub(AT) as i64), (terminator, target));
}

#[test]
fn a64_branches_have_their_targets() {
    let a64 =
        |word: u32, terminator, target, text| check(Isa::A64, &word.to_le_bytes(), terminator, target, text);
    a64(0xd503_201f, Terminator::None, 4, "nop");
    a64(0x17ff_ffff, Terminator::Jump, -4, "b 0xfffc");
    a64(0x9400_0002, Terminator::Call, 8, "bl 0x10008");
    a64(0x54ff_ffe1, Terminator::Conditional, -4, "b.ne 0xfffc");
    a64(0xd65f_03c0, Terminator::Return, 4, "ret");
    a64(0xd63f_0020, Terminator::IndirectCall, 4, "blr x1");
    a64(0xd61f_0020, Terminator::IndirectJump, 4, "br x1");
    a64(0xd69f_03e0, Terminator::Far, 4, "eret");
    a64(0xd400_0001, Terminator::Trap, 4, "svc #0x0");
    a64(0xd503_3fdf, Terminator::Barrier, 4, "isb");
    assert_eq!(Isa::A64.instruction(&[0x1f, 0x20, 0x03], AT).err(), Some(Undecodable::CutShort));
}

#[test]
fn aarch32_branches_change_the_state() {
    let set = |isa: Isa, bytes: &[u8]| {
        let instruction = isa.instruction(bytes, AT).unwrap();
        let step = instruction.step();
        (step.terminator, step.target.wrapping_sub(AT), step.length, instruction.target_isa())
    };
    // bl, blx of A32: the second changes to T32, and may go to a halfword.
    assert_eq!(set(Isa::A32, &[0, 0, 0, 0xeb]), (Terminator::Call, 8, 4, Some(Isa::A32)));
    assert_eq!(set(Isa::A32, &[0, 0, 0, 0xfb]), (Terminator::Call, 10, 4, Some(Isa::T32)));
    // bl, blx of T32
    assert_eq!(set(Isa::T32, &[0x00, 0xf0, 0x04, 0xf8]), (Terminator::Call, 12, 4, Some(Isa::T32)));
    assert_eq!(set(Isa::T32, &[0x00, 0xf0, 0x04, 0xe8]), (Terminator::Call, 12, 4, Some(Isa::A32)));
    // bx lr; pop {pc}; beq to the next but one
    assert_eq!(set(Isa::T32, &[0x70, 0x47]).0, Terminator::Return);
    assert_eq!(set(Isa::T32, &[0x00, 0xbd]).0, Terminator::Return);
    assert_eq!(set(Isa::T32, &[0x00, 0xd0]), (Terminator::Conditional, 4, 2, Some(Isa::T32)));
    assert_eq!(Isa::T32.instruction(&[0x00, 0xf0], AT).err(), Some(Undecodable::CutShort));
}

#[test]
fn numbers_in_files_name_one_set_each() {
    let sets: Vec<Isa> = (0..=u8::MAX).filter_map(Isa::from_number).collect();
    assert_eq!(sets.len(), Isa::COUNT);
    assert!(sets.iter().all(|set| Isa::from_number(set.number()) == Some(*set) && set.index() < Isa::COUNT));
}
