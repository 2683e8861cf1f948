//! Packets one after another with nothing else to be thought of, which most are.

use hodo_code::Labels;

use super::{
    PacketKind, Sink, Trouble,
    decoder::{Context, Decoder},
    memo::{LONG_SIZE, join, plain_size},
};
use crate::packet::{IpPayload, LONG_TNT, Tnt, tnt};

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
        // A CYC packet may have told the time of the packet that comes next.
        let (mut followed, mut counted) = (0, true);
        while followed < most && self.is_plain() && context.sink.takes_stretches() {
            let at = self.packets.position();
            let Some(word) = word_at(bytes, at) else { break };
            let size = match plain_size(word) {
                0 if !is_long(word) => match self.follow_clock(word, &mut counted, context) {
                    0 => break,
                    size => {
                        self.packets.skip_to(at + size);
                        continue;
                    }
                },
                size => usize::from(size),
            };
            followed += 1;
            self.at = at;
            let walked = if word & 1 == 0 {
                self.follow_tnts(bytes, if counted { 1 } else { usize::MAX }, context)
            } else {
                self.packets.skip_to(at + size);
                self.follow_tip(word, context)
            };
            if let Err(trouble) = walked {
                self.lose(trouble);
                break;
            }
            if std::mem::take(&mut counted) {
                self.tell_time(context);
            }
            if self.walk.has_much_to_tell() {
                let (walk, graph, sink) = self.parts(context);
                walk.tell(graph, sink);
            }
        }
        let (walk, graph, sink) = self.parts(context);
        walk.tell(graph, sink);
        followed
    }

    /// Follows TNT packets that stand one after another at the position, where there is one, at most so many.
    #[inline(always)]
    fn follow_tnts<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        most: usize,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        context.sink.packet(PacketKind::Tnt);
        let start = self.packets.position();
        let (mut all, mut end, mut count) = (Tnt { bits: 0, count: 0 }, start, 0);
        each_tnt(bytes, start, |one, at, size| {
            let fits = count < most && all.count + one.count <= MOST_OUTCOMES;
            if fits {
                all = Tnt { bits: all.bits << one.count | one.bits, count: all.count + one.count };
                (self.at, end, count) = (at, at + size, count + 1);
            }
            fits
        });
        self.packets.skip_to(end);
        let (walk, graph, sink) = self.parts(context);
        let left = walk.stretches(graph, all);
        if left == 0 {
            return Ok(());
        }
        walk.tell(graph, sink);
        // What is left begins in one of them.
        let (mut behind, mut rest) = (all.count - left, Tnt { bits: 0, count: 0 });
        each_tnt(bytes, start, |one, at, size| {
            let is_over = behind >= one.count;
            if is_over {
                behind -= one.count;
            } else {
                rest = Tnt { count: one.count - behind, ..one };
                (self.at, end) = (at, at + size);
            }
            is_over
        });
        self.packets.skip_to(end);
        self.tnt(rest, context)
    }

    /// Follows the TIP packet in the lowest bytes of a word.
    #[inline(always)]
    fn follow_tip<L: Labels, S: Sink>(
        &mut self,
        word: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let opcode = word as u8;
        context.sink.packet(PacketKind::Other);
        let to = join(self.last_ip.get().ok_or(Trouble::NoAddress)?, opcode, word);
        self.last_ip.set(to);
        let (walk, graph, sink) = self.parts(context);
        if walk.stretch_to(graph, to) {
            return Ok(());
        }
        walk.tell(graph, sink);
        self.tip_to(to, || payload(opcode, word), context)
    }
}

/// So many outcomes of branches are followed at once.
const MOST_OUTCOMES: u8 = 63;

/// The bytes from a place on, the first one lowest; `None` where they are not as many.
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|wide| u64::from_le_bytes(*wide))
}

/// Whether a TNT-64 is in a word.
fn is_long(word: u64) -> bool {
    word as u16 == LONG_TNT && word >> 16 > 1
}

/// Hands on TNT packets one after another, each with its place and size, as long as `take` takes them.
#[inline(always)]
fn each_tnt(bytes: &[u8], mut at: usize, mut take: impl FnMut(Tnt, usize, usize) -> bool) {
    while let Some(word) = word_at(bytes, at) {
        let (field, size) = match word {
            _ if word & 1 == 0 && plain_size(word) == 1 => (u64::from(word as u8 >> 1), 1),
            _ if is_long(word) => (word >> 16, LONG_SIZE),
            _ => break,
        };
        if !take(tnt(field), at, size) {
            break;
        }
        at += size;
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
