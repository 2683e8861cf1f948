//! Packets one after another with nothing else to be thought of, which most are.

use hodo_code::Labels;

use super::{
    PacketKind, Sink, Trouble,
    decoder::{Context, Decoder},
    memo::{LONG_SIZE, join, plain_size},
    walk::{Flow, Stuck},
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
            let most = if counted { 1 } else { most - followed };
            match self.follow_flows(bytes, most, context) {
                Ok(count) => followed += count,
                Err(trouble) => {
                    self.lose(trouble);
                    break;
                }
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

    /// Follows TNT and TIP packets that stand one after another at the position, in at most so many flows; one packet
    /// alone if that is one. How many flows there were.
    #[inline(always)]
    fn follow_flows<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        most: usize,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<usize, Trouble> {
        let last_ip = self.last_ip.get().ok_or(Trouble::NoAddress)?;
        let mut flows = Flows::new(bytes, self.packets.position(), last_ip, most);
        let (walk, graph, sink) = self.parts(context);
        let walked = walk.stretches(graph, || flows.next());
        let Err(Stuck { left }) = walked else {
            flows.pass();
            self.packets.skip_to(flows.position);
            self.last_ip.set(flows.last_ip);
            return Ok(flows.count);
        };
        walk.tell(graph, sink);
        self.last_ip.set(flows.last_ip);
        if left > 0 {
            return self.follow_rest(bytes, flows.position, flows.tnts - left, context).map(|()| flows.count);
        }
        let Some((word, to)) = flows.tip else { return Ok(flows.count) };
        context.sink.packet(PacketKind::Other);
        self.at = flows.end;
        flows.pass();
        self.packets.skip_to(flows.position);
        self.last_ip.set(to);
        self.tip_to(to, || payload(word as u8, word), context).map(|()| flows.count)
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
        context.sink.packet(PacketKind::Tnt);
        self.tnt(rest, context)
    }
}

/// Reads TNT packets that stand one after another, and a TIP behind them, as one flow; and then the next.
struct Flows<'b> {
    bytes: &'b [u8],
    /// Most flows, and how many there were.
    most: usize,
    count: usize,
    /// Where the last one begins, and the last IP there.
    position: usize,
    last_ip: u64,
    /// Where its TNT packets end, how many outcomes these have, and the TIP.
    end: usize,
    tnts: u8,
    tip: Option<(u64, u64)>,
}

impl Flows<'_> {
    fn new(bytes: &[u8], position: usize, last_ip: u64, most: usize) -> Flows<'_> {
        Flows { bytes, most, count: 0, position, last_ip, end: position, tnts: 0, tip: None }
    }

    /// Goes on behind the last one.
    #[inline(always)]
    fn pass(&mut self) {
        self.position = self.end;
        if let Some((word, to)) = self.tip.take() {
            self.position += usize::from(plain_size(word));
            self.last_ip = to;
        }
        self.end = self.position;
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Flow> {
        self.pass();
        if self.count == self.most {
            return None;
        }
        let mut tnt = Tnt { bits: 0, count: 0 };
        let most = if self.most == 1 { 1 } else { MOST_OUTCOMES };
        each_tnt(self.bytes, self.position, |one, at, size| {
            let fits = tnt.count == 0 || tnt.count + one.count <= most;
            if fits {
                tnt = Tnt { bits: tnt.bits << one.count | one.bits, count: tnt.count + one.count };
                self.end = at + size;
            }
            fits
        });
        self.tnts = tnt.count;
        self.tip = word_at(self.bytes, self.end)
            .filter(|&word| word & 1 == 1 && plain_size(word) > 0 && (tnt.count == 0 || self.most > 1))
            .map(|word| (word, join(self.last_ip, word as u8, word)));
        let is_one = tnt.count > 0 || self.tip.is_some();
        self.count += usize::from(is_one);
        let is_short = self.most == 1 || tnt.count < FEW;
        is_one.then_some(Flow { tnt, to: self.tip.map(|(_, to)| to), is_short })
    }
}

/// So few outcomes are a short flow.
const FEW: u8 = 7;

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
