//! x86, by the disassembler iced.

use iced_x86::{
    Code, CodeSize, Decoder, DecoderError, DecoderOptions, FlowControl, Formatter, Mnemonic, OpKind, Register,
};

use crate::{Bits, FarTransfer, Role, Step, Terminator, Undecodable};

/// The disassembler, for programs that need more of x86 than its flow.
pub use iced_x86 as disassembler;

/// Longest instruction, in bytes.
pub(crate) const LONGEST: usize = 15;

/// Decodes the first instruction of `bytes`.
pub(crate) fn decode(
    bits: Bits,
    bytes: &[u8],
    address: u64,
) -> Result<disassembler::Instruction, Undecodable> {
    let mut decoder = Decoder::with_ip(bits as u32, bytes, address, DecoderOptions::NONE);
    let decoded = Some(decoder.decode()).filter(|decoded| !decoded.is_invalid());
    decoded.or_else(|| absolute_jump(bits, bytes, address)).ok_or_else(|| match decoder.last_error() {
        DecoderError::NoMoreBytes => Undecodable::CutShort,
        _ => Undecodable::Invalid,
    })
}

/// Returns what the flow needs to know of an instruction.
#[inline]
pub(crate) fn step(instruction: &disassembler::Instruction) -> Step {
    let terminator = terminator(instruction);
    let target = match terminator {
        Terminator::Conditional | Terminator::Jump | Terminator::Call => branch_target(instruction),
        _ => instruction.next_ip(),
    };
    Step { length: instruction.len() as u8, terminator, target, writes_cr3: writes_cr3(instruction) }
}

/// Returns what an instruction does beside the flow.
pub(crate) fn role(instruction: &disassembler::Instruction) -> Role {
    match instruction.mnemonic() {
        _ if writes_cr3(instruction) => Role::WriteCr3,
        Mnemonic::Vmptrld => Role::LoadVmcs,
        Mnemonic::Vmlaunch | Mnemonic::Vmresume | Mnemonic::Vmrun => Role::EnterGuest,
        Mnemonic::Ptwrite => Role::PtWrite,
        Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq | Mnemonic::Erets | Mnemonic::Eretu => {
            Role::InterruptReturn
        }
        Mnemonic::Uiret => Role::UserInterruptReturn,
        Mnemonic::Pause | Mnemonic::Lfence | Mnemonic::Nop => Role::Filler,
        Mnemonic::Int3 => Role::Breakpoint,
        _ => Role::Other,
    }
}

/// Returns the linear address that a direct near branch goes to.
///
/// In 16-bit code the instruction pointer wraps at 64 KB, but Intel PT gives linear addresses, to which the base of CS is
/// added (SDM, "IP Packets"). The base is not known here. A linear address above 64 KB implies one, so the displacement is
/// added to it; below, the base is taken for zero, and the address wraps.
pub fn branch_target(instruction: &disassembler::Instruction) -> u64 {
    let (target, next) = (instruction.near_branch_target(), instruction.next_ip());
    let has_base = instruction.code_size() == CodeSize::Code16 && next > u64::from(u16::MAX);
    if !has_base || instruction.op0_kind() != OpKind::NearBranch16 {
        return target;
    }
    let displacement = (target as u16).wrapping_sub(next as u16) as i16;
    next.wrapping_add_signed(displacement.into())
}

/// Classifies an instruction as Intel PT does (SDM, "Change of Flow Instruction Tracing").
fn terminator(instruction: &disassembler::Instruction) -> Terminator {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => Terminator::None,
        FlowControl::ConditionalBranch => Terminator::Conditional,
        FlowControl::UnconditionalBranch if instruction.is_jmp_far() => Terminator::Far,
        FlowControl::UnconditionalBranch => Terminator::Jump,
        FlowControl::IndirectBranch if instruction.is_jmp_far_indirect() => Terminator::Far,
        FlowControl::IndirectBranch => Terminator::IndirectJump,
        FlowControl::Call if instruction.is_call_near() => Terminator::Call,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Terminator::IndirectCall,
        FlowControl::Return if is_near_return(instruction.code()) => Terminator::Return,
        // For the disassembler, SYSCALL and SYSENTER are calls, and SYSRET, SYSEXIT and IRET are returns.
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return | FlowControl::Interrupt => {
            Terminator::Far
        }
        FlowControl::Exception => Terminator::Far,
    }
}

/// As [`Isa::far_transfer`](crate::Isa::far_transfer).
pub(crate) fn far_transfer(bits: Bits, bytes: &[u8]) -> FarTransfer {
    let instruction = Decoder::new(bits as u32, bytes, DecoderOptions::NONE).decode();
    let near = instruction.is_call_near() || instruction.is_call_near_indirect();
    let is_system_call =
        matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Call);
    match instruction.flow_control() {
        FlowControl::Interrupt => FarTransfer::Call,
        FlowControl::Call | FlowControl::IndirectCall if is_system_call && !near => FarTransfer::Call,
        FlowControl::Return if !is_near_return(instruction.code()) => FarTransfer::Return,
        _ => FarTransfer::Other,
    }
}

/// Returns whether an instruction is MOV to CR3.
fn writes_cr3(instruction: &disassembler::Instruction) -> bool {
    matches!(instruction.code(), Code::Mov_cr_r32 | Code::Mov_cr_r64)
        && instruction.op0_register() == Register::CR3
}

fn is_near_return(code: Code) -> bool {
    matches!(
        code,
        Code::Retnw | Code::Retnd | Code::Retnq | Code::Retnw_imm16 | Code::Retnd_imm16 | Code::Retnq_imm16
    )
}

/// Decodes JMPABS (Intel APX: `d5 00 a1` and the target), which the disassembler does not know. A dynamic linker may
/// change the target at run time, so Intel PT reports it with a TIP: it becomes an indirect jump.
fn absolute_jump(bits: Bits, bytes: &[u8], address: u64) -> Option<disassembler::Instruction> {
    const LENGTH: usize = 11;
    /// REX2.M0 and REX2.W, which must be clear.
    const M0_AND_W: u8 = 0x88;
    let [0xd5, payload, 0xa1, target @ ..] = bytes.get(..LENGTH)? else { return None };
    if bits != Bits::B64 || payload & M0_AND_W != 0 {
        return None;
    }
    let target = u64::from_le_bytes(target.try_into().ok()?);
    let mut jump = disassembler::Instruction::default();
    jump.set_code(Code::Jmp_rm64);
    jump.set_op0_kind(OpKind::Memory);
    jump.set_memory_displacement64(target);
    jump.set_memory_displ_size(8);
    jump.set_len(LENGTH);
    jump.set_ip(address);
    Some(jump)
}

/// Returns the mnemonics of all instructions, in lower case.
pub fn mnemonics() -> impl Iterator<Item = String> {
    // The first one stands for an invalid instruction.
    Mnemonic::values().skip(1).map(lower)
}

/// Returns a mnemonic in lower case.
pub(crate) fn lower(mnemonic: Mnemonic) -> String {
    format!("{mnemonic:?}").to_ascii_lowercase()
}

/// Formats addresses in lower case, without padding.
pub(crate) fn formatter() -> disassembler::GasFormatter {
    let mut formatter = disassembler::GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_of_16_bit_code_stays_in_its_segment() {
        let target = |bits, address, bytes: &[u8]| {
            branch_target(&Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE).decode())
        };
        // Trampolines that start a processor lie below 1 MB.
        assert_eq!(target(16, 0x9_a010, &[0xeb, 0x10]), 0x9_a022);
        assert_eq!(target(16, 0x9_a010, &[0xe8, 0xed, 0xff]), 0x9_a000);
        assert_eq!(target(16, 0x9_fff0, &[0xe9, 0x0d, 0x00]), 0xa_0000);
        assert_eq!(target(16, 0xfff0, &[0xe9, 0x15, 0x00]), 0x8);
        assert_eq!(target(32, 0x40_1000, &[0xeb, 0xfe]), 0x40_1000);
        assert_eq!(target(64, 0x40_1000, &[0xeb, 0xfe]), 0x40_1000);
    }
}
