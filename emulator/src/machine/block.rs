//! Blocks of a whole machine, whose addresses are known only when they run.

use std::sync::atomic::AtomicU64;

use hodo_isa::{
    Isa, Terminator,
    x86::disassembler::{Decoder, DecoderOptions, FlowControl, Mnemonic},
};

use super::{VCPUS, guest::Mode, processor::processor, truth::Digest};
use crate::{
    block::{self, Kind, Read},
    target::{self, Target},
};

/// Instructions that QEMU translated together, for any address at which their page is mapped. Lives as long as the
/// process.
pub(crate) struct Block {
    /// Its control flow, with the addresses at translation.
    pub(crate) flow: block::Block,
    /// The bytes of all its instructions.
    pub(crate) bytes: Vec<u8>,
    /// The mode in which it runs.
    pub(crate) mode: Mode,
    /// What the last instruction does, if it is about an exception.
    pub(crate) end: End,
    /// One of the instructions changes to the stack of another thread, as Linux's `__switch_to_asm` does.
    pub(crate) switches_stack: bool,
    /// The number of instructions after the last one that turns interrupts off.
    pub(crate) since_interrupts_off: Option<u64>,
    /// What all its instructions add to a digest.
    pub(crate) digest: Digest,
    /// By vCPU: the [code number](super::code::Space::code_number) at which its bytes last matched the recorded code.
    pub(crate) known: [AtomicU64; VCPUS],
}

impl Block {
    /// Makes a block of these instructions, at least one.
    pub(crate) fn new(reads: &[Read<'_>], mode: Mode) -> Block {
        let pc = reads[0].address;
        let mut flow = block::Block::new(pc, reads, isa(reads, mode));
        if mode.is_hidden {
            // Where it leads is not traced.
            flow.kind = Kind::Far;
        }
        let ran = &reads[..flow.count as usize];
        let bytes: Vec<u8> = ran.iter().flat_map(|read| read.bytes).copied().collect();
        let digest = Digest::of(flow.addresses().map(|address| address - pc));
        Block {
            mode,
            end: ran.last().map_or(End::Other, |last| End::of(last, mode)),
            since_interrupts_off: ran
                .iter()
                .rev()
                .zip(0..)
                .find(|(read, _)| turns_interrupts_off(read.bytes))
                .map(|(_, since)| since),
            switches_stack: switches_stack(ran, &bytes),
            bytes,
            digest,
            known: [const { AtomicU64::new(0) }; VCPUS],
            flow,
        }
    }

    /// Whether the last instruction is a direct branch to itself.
    pub(crate) fn goes_to_itself(&self) -> bool {
        let flow = &self.flow;
        let direct = matches!(flow.kind, Kind::Direct | Kind::Conditional | Kind::Call);
        direct && flow.count > 0 && flow.taken == flow.address(flow.count - 1)
    }
}

/// The instruction set of a block.
fn isa(reads: &[Read<'_>], mode: Mode) -> Isa {
    let is_32_bit = mode.is_hidden && target::current() == Target::Aarch64;
    match reads.iter().any(|read| read.bytes.len() == 2) {
        true if is_32_bit => Isa::T32,
        false if is_32_bit => Isa::A32,
        _ => mode.isa(),
    }
}

/// What a block's last instruction does, if it is about an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// INT, INT3 or INT1: a far transfer although QEMU reports an exception.
    SoftwareInterrupt,
    /// IRET, and what Arm and RISC-V have in its place.
    Return,
    /// It raises an exception on purpose. On Arm it has then run, and the exception returns behind it.
    Trap,
    /// Anything else.
    Other,
}

impl End {
    pub(crate) fn of(read: &Read<'_>, mode: Mode) -> End {
        let is_x86 = target::current() == Target::X86_64;
        if is_x86 {
            let last = Decoder::with_ip(mode.bits(), read.bytes, read.address, DecoderOptions::NONE).decode();
            return match (last.flow_control(), last.mnemonic()) {
                (FlowControl::Interrupt, _) => End::SoftwareInterrupt,
                (_, Mnemonic::Iretq | Mnemonic::Iretd) => End::Return,
                _ => End::Other,
            };
        }
        match mode.isa().instruction(read.bytes, read.address).map(|last| last.step().terminator) {
            Ok(Terminator::Far) => End::Return,
            Ok(Terminator::Trap) => End::Trap,
            _ => End::Other,
        }
    }
}

/// Whether an instruction turns interrupts off without ending a block: CLI, and `msr daifset` of Arm with bit I.
fn turns_interrupts_off(bytes: &[u8]) -> bool {
    match (target::current(), bytes) {
        (Target::X86_64, bytes) => bytes == [0xfa],
        (Target::Aarch64, &[0xdf, immediate, 0x03, 0xd5]) => {
            immediate & 0xf0 == 0x40 && immediate & 0x02 != 0
        }
        _ => false,
    }
}

/// Whether one of the instructions, or some in a row, are those with which Linux changes the stack.
fn switches_stack(reads: &[Read<'_>], bytes: &[u8]) -> bool {
    let wanted = processor().switches;
    let begin = reads.first().map_or(0, |first| first.address);
    reads.iter().any(|read| {
        let rest = bytes.get((read.address - begin) as usize..);
        rest.is_some_and(|rest| rest.starts_with(wanted))
    })
}
