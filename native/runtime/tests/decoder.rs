//! Compares the decoder with iced, over the code of the system's C library and of this test.

#![allow(missing_docs)]

use hodo_isa::x86::disassembler::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};
use hodo_native_runtime::{
    decode::{Flow, decode},
    effect::effect,
};
use object::{Object, ObjectSection, SectionKind};

fn code_of(path: &str) -> Vec<(u64, Vec<u8>)> {
    let file = std::fs::read(path).expect("a readable file");
    let object = object::File::parse(&*file).expect("an ELF file");
    let sections = object.sections().filter(|section| section.kind() == SectionKind::Text);
    sections.map(|section| (section.address(), section.data().expect("its bytes").to_vec())).collect()
}

fn flow_of(instruction: &Instruction) -> Flow {
    let target = instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Flow::Jump(target),
        FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
            Flow::Conditional(instruction.condition_code() as u8, target)
        }
        FlowControl::ConditionalBranch => Flow::Counted(target),
        FlowControl::Call if instruction.is_call_near() => Flow::Call(target),
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => Flow::Syscall,
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Flow::JumpIndirect,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Flow::CallIndirect,
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            Flow::Return(if instruction.op_count() == 0 { 0 } else { instruction.immediate16() })
        }
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => Flow::Far,
        FlowControl::Interrupt if matches!(instruction.mnemonic(), Mnemonic::Int3 | Mnemonic::Int1) => {
            Flow::Next
        }
        FlowControl::XbeginXabortXend if instruction.mnemonic() == Mnemonic::Xbegin => {
            Flow::Transaction(target)
        }
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

fn check_effect(instruction: &Instruction, bytes: &[u8], info: &mut InstructionInfoFactory) {
    let ours = decode(bytes, instruction.ip()).and_then(|decoded| effect(&decoded, bytes));
    let Some(ours) = ours else { return };
    let (mut reads, mut writes) = (0u32, 0u32);
    for used in info.info(instruction).used_registers() {
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
    assert_eq!(reads & !ours.reads, 0, "reads of {instruction} at {:x}: {ours:x?}", instruction.ip());
    assert_eq!(ours.writes & !writes, 0, "writes of {instruction} at {:x}: {ours:x?}", instruction.ip());
}

fn check(path: &str) {
    let mut info = InstructionInfoFactory::new();
    let mut count = 0;
    for (address, code) in code_of(path) {
        let mut decoder = Decoder::with_ip(64, &code, address, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.position();
            let theirs = decoder.decode();
            if theirs.is_invalid() {
                continue;
            }
            let bytes = &code[at..];
            let ours = decode(bytes, theirs.ip());
            let ours = ours
                .unwrap_or_else(|| panic!("{theirs} at {:x}: {:x?}", theirs.ip(), &bytes[..theirs.len()]));
            assert_eq!(usize::from(ours.length), theirs.len(), "{theirs} at {:x}", theirs.ip());
            assert_eq!(
                ours.flow,
                condition(&bytes[..theirs.len()], flow_of(&theirs)),
                "{theirs} at {:x}",
                theirs.ip()
            );
            assert_eq!(
                ours.relative_at != 0,
                theirs.is_ip_rel_memory_operand(),
                "{theirs} at {:x}",
                theirs.ip()
            );
            if theirs.is_ip_rel_memory_operand() {
                assert_eq!(
                    ours.relative_address(theirs.ip(), bytes),
                    theirs.ip_rel_memory_address(),
                    "{theirs}"
                );
            }
            check_effect(&theirs, bytes, &mut info);
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
