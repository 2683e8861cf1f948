//! Blocks of a whole machine, whose addresses are known only when they run.

use std::sync::atomic::AtomicU64;

use hodo_isa::x86::disassembler::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use super::{VCPUS, guest::Mode, truth::Digest};
use crate::block::{self, Kind, Read};

/// The first bytes of `mov rsp, [rsi + disp32]`.
const SWITCH: [u8; 3] = [0x48, 0x8b, 0xa6];

/// `cli`.
const CLI: [u8; 1] = [0xfa];

/// Instructions that QEMU translated together, for any address at which their page is mapped. Lives as long as the
/// process.
pub(crate) struct Block {
    /// Its control flow, with the addresses at translation.
    pub(crate) flow: block::Block,
    /// The bytes of all its instructions.
    pub(crate) bytes: Vec<u8>,
    /// The mode in which it runs.
    pub(crate) mode: Mode,
    /// The last instruction is INT, INT3 or INT1: a far transfer although QEMU reports an exception.
    pub(crate) software_interrupt: bool,
    /// The last instruction is IRET.
    pub(crate) interrupt_return: bool,
    /// One of the instructions changes to the stack of another thread: `mov rsp, [rsi + …]`, as Linux's
    /// `__switch_to_asm` does.
    pub(crate) switches_stack: bool,
    /// The number of instructions after the last CLI.
    pub(crate) since_cli: Option<u64>,
    /// What all its instructions add to a digest.
    pub(crate) digest: Digest,
    /// By vCPU: the [code number](super::code::Space::code_number) at which its bytes last matched the recorded code.
    pub(crate) known: [AtomicU64; VCPUS],
}

impl Block {
    /// Makes a block of these instructions, at least one.
    pub(crate) fn new(reads: &[Read<'_>], mode: Mode) -> Block {
        let pc = reads[0].address;
        let flow = block::Block::new(pc, reads, mode.isa());
        let ran = &reads[..flow.count as usize];
        let last = ran.last().map(|read| {
            Decoder::with_ip(mode.bits(), read.bytes, read.address, DecoderOptions::NONE).decode()
        });
        let digest = Digest::of(flow.addresses().map(|address| address - pc));
        Block {
            mode,
            bytes: ran.iter().flat_map(|read| read.bytes).copied().collect(),
            software_interrupt: last.is_some_and(|last| last.flow_control() == FlowControl::Interrupt),
            interrupt_return: last
                .is_some_and(|last| matches!(last.mnemonic(), Mnemonic::Iretq | Mnemonic::Iretd)),
            since_cli: ran.iter().rev().zip(0..).find(|(read, _)| read.bytes == CLI).map(|(_, since)| since),
            switches_stack: ran.iter().any(|read| read.bytes.starts_with(&SWITCH)),
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
