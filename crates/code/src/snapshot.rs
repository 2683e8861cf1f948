//! The code of a process at one tick.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, Instruction, OpKind};

use crate::{AddressSpace, Bits, Content, Origin, Unreadable};

/// Longest x86 instruction, in bytes.
const LONGEST_INSTRUCTION: usize = 15;

/// An address space at one tick, in one execution mode.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The address space.
    pub space: &'a AddressSpace<'a>,
    /// The mode for decoding the code.
    pub bits: Bits,
    /// The tick.
    pub tick: u64,
}

/// An instruction in memory.
#[derive(Clone, Debug)]
pub struct ReadInstruction {
    /// The instruction.
    pub instruction: Instruction,
    /// Where its first byte comes from.
    pub origin: Origin,
    /// The ticks during which it is unchanged.
    pub valid: Range<u64>,
}

impl Snapshot<'_> {
    /// Returns the instruction at `address`.
    ///
    /// # Errors
    /// Returns [`Unreadable`] if there is no readable instruction.
    pub fn instruction(&self, address: u64) -> Result<ReadInstruction, Unreadable> {
        let (content, mut valid) = self.space.at(address, self.tick).ok_or(Unreadable::Unmapped(address))?;
        let mut joined = [0; LONGEST_INSTRUCTION];
        let mut bytes = content.bytes;
        if bytes.len() < LONGEST_INSTRUCTION {
            let (length, unchanged) = self.join(address, &mut joined);
            bytes = &joined[..length];
            valid = valid.start.max(unchanged.start)..valid.end.min(unchanged.end);
        }
        let mut decoder = Decoder::with_ip(self.bits as u32, bytes, address, DecoderOptions::NONE);
        let decoded = Some(decoder.decode()).filter(|decoded| !decoded.is_invalid());
        if let Some(instruction) = decoded.or_else(|| absolute_jump(self.bits, bytes, address)) {
            return Ok(ReadInstruction { instruction, origin: content.origin, valid });
        }
        match decoder.last_error() {
            DecoderError::NoMoreBytes => Err(Unreadable::MissingBytes(address, content.origin)),
            _ => Err(Unreadable::Invalid(address)),
        }
    }

    /// Appends the bytes at `addresses` to `to`, up to the first unknown one.
    fn append_bytes(&self, addresses: Range<u64>, to: &mut Vec<u8>) {
        let mut address = addresses.start;
        while address < addresses.end {
            let Some((content, _)) =
                self.space.at(address, self.tick).filter(|(content, _)| !content.bytes.is_empty())
            else {
                return;
            };
            let left = usize::try_from(addresses.end - address).unwrap_or(usize::MAX);
            let bytes = &content.bytes[..content.bytes.len().min(left)];
            to.extend_from_slice(bytes);
            address += bytes.len() as u64;
        }
    }

    /// Joins the bytes from `address` on across mappings, as an instruction may continue in the next one. Returns the
    /// number of bytes and their validity.
    fn join(&self, address: u64, joined: &mut [u8; LONGEST_INSTRUCTION]) -> (usize, Range<u64>) {
        let (mut length, mut valid) = (0, 0..u64::MAX);
        while let Some((more, unchanged)) = self.space.at(address.wrapping_add(length as u64), self.tick) {
            let count = more.bytes.len().min(LONGEST_INSTRUCTION - length);
            if count == 0 {
                break;
            }
            joined[length..length + count].copy_from_slice(&more.bytes[..count]);
            length += count;
            valid = valid.start.max(unchanged.start)..valid.end.min(unchanged.end);
        }
        (length, valid)
    }
}

/// Reads instructions in sequence, most of them from the same piece.
#[derive(Default)]
pub(crate) struct Reader<'a> {
    piece: Option<CodeBytes<'a>>,
    /// The instruction read last. It is used in place: a wide load right after narrow stores stalls, as it can't be
    /// forwarded.
    pub(crate) instruction: Instruction,
}

/// Contiguous bytes.
struct CodeBytes<'a> {
    start: u64,
    content: Content<'a>,
    valid: Range<u64>,
    decoder: Decoder<'a>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// Reads the instruction at `address`. All reads are of one address space and mode. Returns where its first byte
    /// comes from, and the ticks during which it is unchanged.
    ///
    /// # Errors
    /// As for [`Snapshot::instruction`].
    pub(crate) fn read(
        &mut self,
        code: Snapshot<'a>,
        address: u64,
    ) -> Result<(Origin, Range<u64>), Unreadable> {
        if let Some(read) = self.read_within(code, address) {
            return Ok(read);
        }
        let read = code.instruction(address)?;
        self.instruction = read.instruction;
        Ok((read.origin, read.valid))
    }

    /// Appends the bytes at `addresses` to `to`, up to the first unknown one.
    pub(crate) fn append_bytes(&self, code: Snapshot<'a>, addresses: Range<u64>, to: &mut Vec<u8>) {
        let within = self.piece.as_ref().filter(|piece| piece.valid.contains(&code.tick)).and_then(|piece| {
            let begin = usize::try_from(addresses.start.checked_sub(piece.start)?).ok()?;
            let end = usize::try_from(addresses.end.checked_sub(piece.start)?).ok()?;
            piece.content.bytes.get(begin..end)
        });
        match within {
            Some(bytes) => to.extend_from_slice(bytes),
            None => code.append_bytes(addresses, to),
        }
    }

    /// Fast path: reads an instruction that the disassembler knows and that can't cross the end of the piece.
    #[inline]
    fn read_within(&mut self, code: Snapshot<'a>, address: u64) -> Option<(Origin, Range<u64>)> {
        let holds = |piece: &CodeBytes<'_>| {
            let offset = address.wrapping_sub(piece.start);
            offset < piece.content.bytes.len() as u64 && piece.valid.contains(&code.tick)
        };
        if !self.piece.as_ref().is_some_and(holds) {
            let (content, valid) = code.space.at(address, code.tick)?;
            let decoder = Decoder::with_ip(code.bits as u32, content.bytes, address, DecoderOptions::NONE);
            self.piece = Some(CodeBytes { start: address, content, valid, decoder });
        }
        let CodeBytes { start, content, valid, decoder } = self.piece.as_mut()?;
        let offset = address - *start;
        if content.bytes.len() - (offset as usize) < LONGEST_INSTRUCTION {
            return None;
        }
        if decoder.ip() != address {
            decoder.set_position(offset as usize).ok()?;
            decoder.set_ip(address);
        }
        decoder.decode_out(&mut self.instruction);
        let origin = Origin { offset: content.origin.offset.wrapping_add(offset), ..content.origin };
        (!self.instruction.is_invalid()).then(|| (origin, valid.clone()))
    }
}

/// Decodes JMPABS (Intel APX: `d5 00 a1` and the target), which the disassembler does not know. A dynamic linker may
/// change the target at run time, so Intel PT reports it with a TIP: it becomes an indirect jump.
fn absolute_jump(bits: Bits, bytes: &[u8], address: u64) -> Option<Instruction> {
    const LENGTH: usize = 11;
    /// REX2.M0 and REX2.W, which must be clear.
    const M0_AND_W: u8 = 0x88;
    let [0xd5, payload, 0xa1, target @ ..] = bytes.get(..LENGTH)? else { return None };
    if bits != Bits::B64 || payload & M0_AND_W != 0 {
        return None;
    }
    let target = u64::from_le_bytes(target.try_into().ok()?);
    let mut jump = Instruction::default();
    jump.set_code(Code::Jmp_rm64);
    jump.set_op0_kind(OpKind::Memory);
    jump.set_memory_displacement64(target);
    jump.set_memory_displ_size(8);
    jump.set_len(LENGTH);
    jump.set_ip(address);
    Some(jump)
}
