//! Compares the decoder with iced, over the code of the system's C library and of this test.

#![allow(missing_docs)]

use hodo_native_runtime::{
    decode::{Flow, decode},
    effect::effect,
};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};
use object::{Object, ObjectSection, SectionKind};

fn code_of(path: &str) -> Vec<(u64, Vec<u8>)> {
    let file = std::fs::read(path).expect("a readable file");
    let object = object::File::parse(&*file).expect("an ELF file");
    let sections = object.sections().filter(|section| section.kind() == SectionKind::Text);
    sections.map(|section| (section.address(), section.data().expect("its bytes").to_vec())).collect()
}

fn flow_of(i: &Instruction) -> Flow {
    let target = i.near_branch_target();
    match i.flow_control() {
        FlowControl::UnconditionalBranch if i.is_jmp_short_or_near() => Flow::Jump(target),
        FlowControl::ConditionalBranch if i.is_jcc_short_or_near() => {
            Flow::Conditional(i.condition_code() as u8, target)
        }
        FlowControl::ConditionalBranch => Flow::Counted(target),
        FlowControl::Call if i.is_call_near() => Flow::Call(target),
        FlowControl::Call if i.mnemonic() == Mnemonic::Syscall => Flow::Syscall,
        FlowControl::IndirectBranch if i.is_jmp_near_indirect() => Flow::JumpIndirect,
        FlowControl::IndirectCall if i.is_call_near_indirect() => Flow::CallIndirect,
        FlowControl::Return if i.mnemonic() == Mnemonic::Ret => {
            Flow::Return(if i.op_count() == 0 { 0 } else { i.immediate16() })
        }
        FlowControl::Next if i.mnemonic() == Mnemonic::Hlt => Flow::Far,
        FlowControl::Interrupt if matches!(i.mnemonic(), Mnemonic::Int3 | Mnemonic::Int1) => Flow::Next,
        FlowControl::XbeginXabortXend if i.mnemonic() == Mnemonic::Xbegin => Flow::Transaction(target),
        FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::Next | FlowControl::Exception => Flow::Next,
        _ => Flow::Far,
    }
}

/// iced numbers conditions in another order.
fn condition(bytes: &[u8], flow: Flow) -> Flow {
    let opcode = bytes.iter().find(|byte| matches!(byte, 0x70..=0x8f)).copied().unwrap_or(0);
    match flow {
        Flow::Conditional(_, target) => Flow::Conditional(opcode & 15, target),
        other => other,
    }
}

fn check_effect(i: &Instruction, bytes: &[u8], info: &mut InstructionInfoFactory) {
    let ours = decode(bytes, i.ip()).and_then(|decoded| effect(&decoded, bytes));
    let Some(ours) = ours else { return };
    let (mut reads, mut writes) = (0u32, 0u32);
    for used in info.info(i).used_registers() {
        let register = used.register();
        if !register.is_gpr() {
            continue;
        }
        let bit = 1 << (register.full_register() as u32 - Register::RAX as u32);
        match used.access() {
            OpAccess::Write if register.size() >= 4 => writes |= bit,
            OpAccess::None | OpAccess::NoMemAccess => {}
            _ => reads |= bit,
        }
    }
    assert_eq!(reads & !ours.reads, 0, "reads of {i} at {:x}: {ours:x?}", i.ip());
    assert_eq!(ours.writes & !writes, 0, "writes of {i} at {:x}: {ours:x?}", i.ip());
}

fn check(path: &str) {
    let mut info = InstructionInfoFactory::new();
    let mut count = 0;
    for (address, code) in code_of(path) {
        let mut decoder = Decoder::with_ip(64, &code, address, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.position();
            let i = decoder.decode();
            if i.is_invalid() {
                continue;
            }
            let bytes = &code[at..];
            let ours = decode(bytes, i.ip());
            let ours = ours.unwrap_or_else(|| panic!("{i} at {:x}: {:x?}", i.ip(), &bytes[..i.len()]));
            assert_eq!(usize::from(ours.length), i.len(), "{i} at {:x}", i.ip());
            assert_eq!(ours.flow, condition(&bytes[..i.len()], flow_of(&i)), "{i} at {:x}", i.ip());
            assert_eq!(ours.relative_at != 0, i.is_ip_rel_memory_operand(), "{i} at {:x}", i.ip());
            if i.is_ip_rel_memory_operand() {
                assert_eq!(ours.relative_address(i.ip(), bytes), i.ip_rel_memory_address(), "{i}");
            }
            check_effect(&i, bytes, &mut info);
            count += 1;
        }
    }
    assert!(count > 1000, "{path}: {count} instructions");
}

#[test]
fn the_c_library_decodes_as_iced_says() {
    check("/lib/x86_64-linux-gnu/libc.so.6");
}

#[test]
fn the_mathematical_library_decodes_as_iced_says() {
    check("/lib/x86_64-linux-gnu/libm.so.6");
}

#[test]
fn rust_code_decodes_as_iced_says() {
    check(std::env::current_exe().expect("this program").to_str().expect("its name"));
}

#[test]
fn truncated_instructions_are_none() {
    for bytes in
        [&[][..], &[0x48], &[0xe8, 1, 2], &[0x0f], &[0x8b], &[0xc4, 0xe2], &[0x66; 15], &[0x81, 0xc0, 1]]
    {
        assert_eq!(decode(bytes, 0), None, "{bytes:x?}");
    }
}
