//! Packets one after another with nothing else to be thought of, which most are.

use hodo_code::Labels;

use super::{
    PacketKind, Sink, Trouble,
    decoder::{Context, Decoder},
    memo::{LONG_SIZE, join, plain_size},
};
use crate::packet::{IpPayload, LONG_TNT, tnt};

impl Decoder<'_> {
    /// Follows TNT, TIP and clock packets for a sink that takes stretches, up to what needs more than a walk. At
    /// most so many of the first two; how many those were.
    pub(super) fn follow_plain<L: Labels, S: Sink>(
        &mut self,
        most: usize,
        context: &mut Context<'_, '_, L, S>,
    ) -> usize {
        let (Some(bytes), Some(_)) = (self.packets.outside_block(), self.last_ip.get()) else { return 0 };
        // The decoder knows best where the segment ends.
        let bytes = &bytes[..self.span.end.min(bytes.len())];
        let mut followed = 0;
        while followed < most && self.is_plain() && context.sink.takes_stretches() {
            let at = self.packets.position();
            let Some(wide) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { break };
            let word = u64::from_le_bytes(*wide);
            let size = match plain_size(word) {
                0 if word as u16 == LONG_TNT && word >> 16 > 1 => LONG_SIZE,
                0 => match self.follow_clock(word, &mut false, context) {
                    0 => break,
                    size => {
                        self.packets.skip_to(at + size);
                        continue;
                    }
                },
                size => usize::from(size),
            };
            self.at = at;
            self.packets.skip_to(at + size);
            followed += 1;
            if let Err(trouble) = self.follow_word(word, context) {
                self.lose(trouble);
                break;
            }
            self.tell_time(context);
        }
        followed
    }

    /// Follows the TNT or TIP packet in the lowest bytes of a word.
    #[inline(always)]
    fn follow_word<L: Labels, S: Sink>(
        &mut self,
        word: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let opcode = word as u8;
        if opcode & 1 == 0 {
            context.sink.packet(PacketKind::Tnt);
            let field = if plain_size(word) == 0 { word >> 16 } else { u64::from(opcode >> 1) };
            return self.tnt(tnt(field), context);
        }
        context.sink.packet(PacketKind::Other);
        let to = join(self.last_ip.get().ok_or(Trouble::NoAddress)?, opcode, word);
        self.last_ip.set(to);
        self.tip_to(to, || payload(opcode, word), context)
    }
}

/// What the TIP in the lowest bytes of a word carries.
#[cold]
fn payload(opcode: u8, word: u64) -> IpPayload {
    match opcode >> 5 {
        1 => IpPayload::Update16((word >> 8) as u16),
        2 => IpPayload::Update32((word >> 8) as u32),
        _ => IpPayload::Sext48(word >> 8 & ((1 << 48) - 1)),
    }
}
