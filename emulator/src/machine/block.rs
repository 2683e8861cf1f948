//! Blocks of a whole machine: where they begin is known only when they run.

use std::sync::atomic::AtomicU64;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use super::{VCPUS, truth::Digest};
use crate::block::{self, Read};

/// A run of instructions that QEMU translated together, at whichever addresses its page is mapped. Lives as
/// long as the process.
pub(crate) struct Block {
    /// Its flow, with addresses as they were at translation.
    pub(crate) flow: block::Block,
    /// The bytes of all its instructions, one behind the other.
    pub(crate) bytes: Vec<u8>,
    /// The last instruction is INT, INT3 or INT1: a far transfer although QEMU reports an exception.
    pub(crate) software_interrupt: bool,
    /// The last instruction is IRET.
    pub(crate) interrupt_return: bool,
    /// What all of its instructions add to a digest.
    pub(crate) digest: Digest,
    /// By vCPU: the place at which its bytes were last found to be what the recording has there.
    pub(crate) known_at: [AtomicU64; VCPUS],
}

impl Block {
    /// The block of some instructions; there is at least one.
    pub(crate) fn new(reads: &[Read<'_>]) -> Block {
        let pc = reads[0].address;
        let flow = block::Block::new(pc, reads);
        let ran = &reads[..flow.count as usize];
        let last = ran
            .last()
            .map(|read| Decoder::with_ip(64, read.bytes, read.address, DecoderOptions::NONE).decode());
        let digest = Digest::of(flow.addresses().map(|address| address - pc));
        Block {
            bytes: ran.iter().flat_map(|read| read.bytes).copied().collect(),
            software_interrupt: last.is_some_and(|last| last.flow_control() == FlowControl::Interrupt),
            interrupt_return: last
                .is_some_and(|last| matches!(last.mnemonic(), Mnemonic::Iretq | Mnemonic::Iretd)),
            digest,
            known_at: [const { AtomicU64::new(0) }; VCPUS],
            flow,
        }
    }
}
