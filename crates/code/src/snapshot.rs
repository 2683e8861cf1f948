//! The code of a process at one tick.

use std::ops::Range;

use iced_x86::{Decoder, DecoderError, DecoderOptions, Instruction};

use crate::{AddressSpace, Bits, Origin, Unreadable};

/// Longest x86 instruction, in bytes.
const LONGEST_INSTRUCTION: usize = 15;

/// An address space as it is at a tick, in an execution mode.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The address space.
    pub space: &'a AddressSpace<'a>,
    /// The mode that its code is decoded in.
    pub bits: Bits,
    /// The tick.
    pub at: u64,
}

impl Snapshot<'_> {
    /// The instruction at `address`, where its first byte comes from, and the ticks during which it is
    /// what it is.
    ///
    /// # Errors
    /// Why there is none.
    pub fn instruction(&self, address: u64) -> Result<(Instruction, Origin, Range<u64>), Unreadable> {
        let (content, mut valid) = self.space.at(address, self.at).ok_or(Unreadable::Unmapped(address))?;
        let mut joined = [0; LONGEST_INSTRUCTION];
        let mut bytes = content.bytes;
        if bytes.len() < LONGEST_INSTRUCTION {
            let (length, when) = self.join(address, &mut joined);
            bytes = &joined[..length];
            valid = valid.start.max(when.start)..valid.end.min(when.end);
        }
        let mut decoder = Decoder::with_ip(self.bits as u32, bytes, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if !instruction.is_invalid() {
            return Ok((instruction, content.origin, valid));
        }
        match decoder.last_error() {
            DecoderError::NoMoreBytes => Err(Unreadable::MissingBytes(address, content.origin)),
            _ => Err(Unreadable::Invalid(address)),
        }
    }

    /// Near the end of a mapping an instruction may go on in the next one: how many bytes were joined,
    /// and when they are there.
    fn join(&self, address: u64, joined: &mut [u8; LONGEST_INSTRUCTION]) -> (usize, Range<u64>) {
        let (mut length, mut valid) = (0, 0..u64::MAX);
        while let Some((more, when)) = self.space.at(address.wrapping_add(length as u64), self.at) {
            let count = more.bytes.len().min(LONGEST_INSTRUCTION - length);
            if count == 0 {
                break;
            }
            joined[length..length + count].copy_from_slice(&more.bytes[..count]);
            length += count;
            valid = valid.start.max(when.start)..valid.end.min(when.end);
        }
        (length, valid)
    }
}
