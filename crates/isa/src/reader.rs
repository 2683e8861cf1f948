//! Reads instructions in sequence.

use crate::{Isa, Step, Undecodable, a32, a64, riscv, t32, x86};

/// Reads instructions in sequence from contiguous bytes.
pub struct Reader<'a>(Inner<'a>);

#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each piece of code, and it must not be behind a pointer"
)]
enum Inner<'a> {
    X86 {
        decoder: x86::disassembler::Decoder<'a>,
        start: u64,
        /// The instruction read last. It is used in place: a wide load right after narrow stores stalls, as it can't be
        /// forwarded.
        instruction: x86::disassembler::Instruction,
    },
    Arm {
        decode: fn(&[u8], u64) -> Result<Step, Undecodable>,
        bytes: &'a [u8],
        start: u64,
    },
    RiscV {
        set: riscv::Set,
        bytes: &'a [u8],
        start: u64,
    },
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(isa: Isa, bytes: &'a [u8], start: u64) -> Reader<'a> {
        Reader(match isa {
            Isa::X86(bits) => {
                let options = x86::disassembler::DecoderOptions::NONE;
                let decoder = x86::disassembler::Decoder::with_ip(bits as u32, bytes, start, options);
                Inner::X86 { decoder, start, instruction: x86::disassembler::Instruction::default() }
            }
            Isa::RiscV(set) => Inner::RiscV { set, bytes, start },
            Isa::A64 => Inner::Arm { decode: a64::decode, bytes, start },
            Isa::A32 => Inner::Arm { decode: a32::decode, bytes, start },
            Isa::T32 => Inner::Arm { decode: t32::decode, bytes, start },
        })
    }

    /// Reads the instruction at `address`, which must lie within the bytes, with as many bytes after it as the longest
    /// instruction has. Returns `None` if [`Isa::instruction`] has to look again.
    #[inline]
    pub fn read(&mut self, address: u64) -> Option<Step> {
        match &mut self.0 {
            Inner::X86 { decoder, start, instruction } => {
                if decoder.ip() != address {
                    decoder.set_position((address - *start) as usize).ok()?;
                    decoder.set_ip(address);
                }
                decoder.decode_out(instruction);
                (!instruction.is_invalid()).then(|| x86::step(instruction))
            }
            Inner::Arm { decode, bytes, start } => {
                let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
                decode(bytes.get(offset..)?, address).ok()
            }
            Inner::RiscV { set, bytes, start } => {
                let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
                riscv::step(bytes.get(offset..)?, address, *set).ok()
            }
        }
    }
}
