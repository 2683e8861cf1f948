//! The code of a process at one tick.

use std::ops::Range;

use hodo_isa::{Instruction, Isa, Step, Undecodable};

use crate::{AddressSpace, Content, Origin, Unreadable};

/// Longest instruction of any set, in bytes.
const LONGEST_INSTRUCTION: usize = 15;

/// An address space at one tick, read as one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The address space.
    pub space: &'a AddressSpace<'a>,
    /// The instruction set of the code.
    pub isa: Isa,
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
        if bytes.len() < self.isa.longest_instruction() {
            let (length, unchanged) = self.join(address, &mut joined);
            bytes = &joined[..length];
            valid = valid.start.max(unchanged.start)..valid.end.min(unchanged.end);
        }
        match self.isa.instruction(bytes, address) {
            Ok(instruction) => Ok(ReadInstruction { instruction, origin: content.origin, valid }),
            Err(Undecodable::CutShort) => Err(Unreadable::MissingBytes(address, content.origin)),
            Err(Undecodable::Invalid) => Err(Unreadable::Invalid(address)),
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
}

/// What the flow needs to know of an instruction in memory.
pub(crate) struct ReadStep {
    pub(crate) step: Step,
    /// Where its first byte comes from.
    pub(crate) origin: Origin,
    /// The ticks during which it is unchanged.
    pub(crate) valid: Range<u64>,
}

/// Contiguous bytes.
struct CodeBytes<'a> {
    start: u64,
    content: Content<'a>,
    valid: Range<u64>,
    reader: hodo_isa::Reader<'a>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// Reads the instruction at `address`. All reads are of one address space and instruction set.
    ///
    /// # Errors
    /// As for [`Snapshot::instruction`].
    pub(crate) fn read(&mut self, code: Snapshot<'a>, address: u64) -> Result<ReadStep, Unreadable> {
        if let Some(read) = self.read_within(code, address) {
            return Ok(read);
        }
        let ReadInstruction { instruction, origin, valid } = code.instruction(address)?;
        Ok(ReadStep { step: instruction.step(), origin, valid })
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
    fn read_within(&mut self, code: Snapshot<'a>, address: u64) -> Option<ReadStep> {
        let holds = |piece: &CodeBytes<'_>| {
            let offset = address.wrapping_sub(piece.start);
            offset < piece.content.bytes.len() as u64 && piece.valid.contains(&code.tick)
        };
        if !self.piece.as_ref().is_some_and(holds) {
            let (content, valid) = code.space.at(address, code.tick)?;
            let reader = code.isa.reader(content.bytes, address);
            self.piece = Some(CodeBytes { start: address, content, valid, reader });
        }
        let CodeBytes { start, content, valid, reader } = self.piece.as_mut()?;
        let offset = address - *start;
        if content.bytes.len() - (offset as usize) < code.isa.longest_instruction() {
            return None;
        }
        let step = reader.read(address)?;
        let origin = Origin { offset: content.origin.offset.wrapping_add(offset), ..content.origin };
        Some(ReadStep { step, origin, valid: valid.clone() })
    }
}
