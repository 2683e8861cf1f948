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
            if plain_size(word) == 0 && !is_long(word) {
                match self.follow_clock(word, &mut counted, context) {
                    0 => break,
                    size => self.packets.skip_to(at + size),
                }
                continue;
            }
            followed += 1;
            if let Err(trouble) = self.follow_flow(bytes, counted, context) {
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

    /// Follows the TNT packets that stand one after another at the position, and a TIP behind them; only the first of
    /// all if its time is known. There is one.
    #[inline(always)]
    fn follow_flow<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        counted: bool,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let start = self.packets.position();
        let (mut all, mut end) = (Tnt { bits: 0, count: 0 }, start);
        each_tnt(bytes, start, |one, at, size| {
            let fits = all.count + one.count <= MOST_OUTCOMES && !(counted && all.count > 0);
            if fits {
                all = Tnt { bits: all.bits << one.count | one.bits, count: all.count + one.count };
                (self.at, end) = (at, at + size);
            }
            fits
        });
        let tip = match word_at(bytes, end) {
            Some(word) if word & 1 == 1 && plain_size(word) > 0 && !(counted && all.count > 0) => {
                let to = join(self.last_ip.get().ok_or(Trouble::NoAddress)?, word as u8, word);
                Some((word, to))
            }
            _ => None,
        };
        let (walk, graph, sink) = self.parts(context);
        sink.packet(if all.count > 0 { PacketKind::Tnt } else { PacketKind::Other });
        let (left, arrived) = walk.stretches(graph, all, tip.map(|(_, to)| to));
        if left > 0 {
            walk.tell(graph, sink);
            return self.follow_rest(bytes, start, all.count - left, context);
        }
        let Some((word, to)) = tip else {
            self.packets.skip_to(end);
            return Ok(());
        };
        self.packets.skip_to(end + usize::from(plain_size(word)));
        self.last_ip.set(to);
        self.at = end;
        if arrived {
            return Ok(());
        }
        let (walk, graph, sink) = self.parts(context);
        sink.packet(PacketKind::Other);
        walk.tell(graph, sink);
        self.tip_to(to, || payload(word as u8, word), context)
    }

    /// Follows what is left of TNT packets from a place on, behind so many outcomes: of the packet in which it begins.
    #[cold]
    fn follow_rest<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        start: usize,
        mut behind: u8,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let (mut rest, mut end) = (Tnt { bits: 0, count: 0 }, start);
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
