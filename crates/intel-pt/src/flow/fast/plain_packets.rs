//! Follows runs of plain packets; most packets are plain.

use hodo_code::{BranchBatches, Labels};

use super::{
    super::{
        PacketKind, Sink, Trouble,
        decoder::{Context, Decoder},
    },
    memo::{LONG_SIZE, join, plain_size},
};
use crate::packet::{IpPayload, LONG_TNT, Packet, Tnt, frequent, leading_tnts, tnt};

impl Decoder<'_> {
    /// Follows TNT, TIP and timing packets for a sink that takes function runs, up to any that need more than a walk.
    /// TNT and TIP packets form at most `most` branch batches. Returns the number of batches.
    pub(in crate::flow) fn follow_plain<L: Labels, S: Sink>(
        &mut self,
        most: usize,
        context: &mut Context<'_, '_, L, S>,
    ) -> usize {
        if !context.sink.takes_function_runs() {
            return 0;
        }
        let (Some(bytes), Some(_)) = (self.packets.outside_block(), self.last_ip.get()) else { return 0 };
        // Only the decoder itself handles the end of the segment.
        let bytes = &bytes[..self.span.end.min(bytes.len())];
        // A preceding CYC packet may give the time of the next packet.
        let (mut followed, mut counted) = (0, true);
        while followed < most && self.is_plain() && context.sink.takes_function_runs() {
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
            match self.follow_batches(bytes, most, context) {
                Ok(count) => followed += count,
                Err(trouble) => {
                    self.lose(trouble);
                    break;
                }
            }
            if std::mem::take(&mut counted) {
                self.emit_time(context);
            }
            if self.walk.should_flush() {
                let (walk, graph, sink) = self.walk_graph_sink(context);
                walk.emit(graph, sink);
            }
        }
        let (walk, graph, sink) = self.walk_graph_sink(context);
        walk.emit(graph, sink);
        walk.halt(graph);
        followed
    }

    /// Follows consecutive TNT and TIP packets as at most `most` branch batches, or a single packet if `most` is 1.
    /// Returns the number of batches.
    #[inline(always)]
    fn follow_batches<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        most: usize,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<usize, Trouble> {
        self.read_batches(bytes, most)?;
        let (walk, graph, sink) = self.walk_graph_sink(context);
        walk.function_runs(graph);
        let passed = walk.branch_batches.passed();
        let Some(&mut batch) = walk.branch_batches.current() else {
            self.move_to_batch(passed);
            return Ok(passed);
        };
        walk.emit(graph, sink);
        self.move_to_batch(passed);
        let Start { tnts, tip, .. } = self.starts[passed];
        if batch.left() > 0 || batch.to().is_none() {
            let position = self.packets.position();
            return self.follow_rest(bytes, position, tnts - batch.left(), context).map(|()| passed + 1);
        }
        let (Some(word), Some(to)) = (word_at(bytes, tip), batch.to()) else { return Ok(passed + 1) };
        context.sink.packet(PacketKind::Other);
        self.packet_position = tip;
        self.move_to_batch(passed + 1);
        self.tip_to(to, || payload(word), context).map(|()| passed + 1)
    }

    /// Sets the position to the first packet of a batch, or after the last batch.
    fn move_to_batch(&mut self, batch: usize) {
        let Start { position, last_ip, .. } = self.starts[batch];
        self.packets.skip_to(position);
        self.last_ip.set(last_ip);
    }

    /// Reads consecutive TNT and TIP packets: adjacent TNT packets and the TIP after them are a branch batch.
    #[inline(always)]
    fn read_batches(&mut self, bytes: &[u8], most: usize) -> Result<(), Trouble> {
        let (branch_batches, starts) = (&mut self.walk.branch_batches, &mut self.starts);
        let mut last_ip = self.last_ip.get().ok_or(Trouble::NoAddress)?;
        let mut position = self.packets.position();
        branch_batches.clear();
        let most_outcomes = if most == 1 { 1 } else { MOST_OUTCOMES };
        loop {
            let start = &mut starts[branch_batches.count()];
            (start.position, start.last_ip) = (position, last_ip);
            if branch_batches.count() == most.min(BranchBatches::MOST) {
                return Ok(());
            }
            let mut tnt = Tnt { bits: 0, count: 0 };
            let end = each_tnt(bytes, position, |one, _, _| {
                let fits = tnt.count == 0 || tnt.count + one.count <= most_outcomes;
                if fits {
                    tnt = Tnt { bits: tnt.bits << one.count | one.bits, count: tnt.count + one.count };
                }
                fits
            });
            (start.tnts, start.tip) = (tnt.count, end);
            let tip = if tnt.count == 0 || most > 1 { tip_at(bytes, end, last_ip) } else { None };
            if tnt.count == 0 && tip.is_none()
                || !branch_batches.push(tnt.bits, tnt.count, tip.map(|(to, _)| to))
            {
                return Ok(());
            }
            position = end;
            if let Some((to, size)) = tip {
                (last_ip, position) = (to, end + size);
            }
        }
    }

    /// Skips `passed` outcomes of the TNT packets at `start`, and follows the rest of the packet there.
    #[cold]
    fn follow_rest<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        start: usize,
        mut passed: u8,
        context: &mut Context<'_, '_, L, S>,
    ) -> Result<(), Trouble> {
        let (mut rest, mut end) = (Tnt { bits: 0, count: 0 }, start);
        each_tnt(bytes, start, |one, at, size| {
            let is_over = passed >= one.count;
            if is_over {
                passed -= one.count;
            } else {
                rest = Tnt { count: one.count - passed, ..one };
                (self.packet_position, end) = (at, at + size);
            }
            is_over
        });
        self.packets.skip_to(end);
        context.sink.packet(PacketKind::Tnt);
        self.tnt(rest, context)?;
        // A deferred TIP of this packet may follow CYC packets.
        self.emit_time(context);
        Ok(())
    }
}

/// The position of a branch batch's packets.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::flow) struct Start {
    position: usize,
    /// The last IP before them.
    last_ip: u64,
    /// Number of outcomes of the batch's TNT packets, and the position after these.
    tnts: u8,
    tip: usize,
}

/// The start of each branch batch, and the position after the last one.
pub(in crate::flow) type Starts = [Start; BranchBatches::MOST + 1];

/// Maximum outcomes of a branch batch.
const MOST_OUTCOMES: u8 = 63;

/// Returns the eight bytes from `at` on as a little-endian word, or `None` if fewer are left.
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|wide| u64::from_le_bytes(*wide))
}

/// Returns whether a word holds a TNT-64 with an outcome: a one alone after its header only marks the end.
fn is_long(word: u64) -> bool {
    word as u16 == LONG_TNT && word >> 16 > 1
}

/// Passes consecutive TNT packets to `take`, each with position and size, until it returns `false`. Returns the
/// position after the last one taken.
#[inline(always)]
fn each_tnt(bytes: &[u8], mut at: usize, mut take: impl FnMut(Tnt, usize, usize) -> bool) -> usize {
    while let Some(word) = word_at(bytes, at) {
        let start = at;
        for one in leading_tnts(word) {
            if !take(one, at, 1) {
                return at;
            }
            at += 1;
        }
        if at > start {
            continue;
        }
        if !is_long(word) || !take(tnt(word >> 16), at, LONG_SIZE) {
            break;
        }
        at += LONG_SIZE;
    }
    at
}

/// Returns the target and size of the TIP at a position, given the last IP.
#[inline(always)]
fn tip_at(bytes: &[u8], at: usize, last_ip: u64) -> Option<(u64, usize)> {
    let word = word_at(bytes, at)?;
    // The headers of a TIP with two, four and six bytes of an address.
    match word as u8 {
        0x2d => Some((join(last_ip, 0x2d, word), 3)),
        0x4d => Some((join(last_ip, 0x4d, word), 5)),
        0x6d => Some((join(last_ip, 0x6d, word), 7)),
        _ => None,
    }
}

/// Returns the payload of the TIP in the lowest bytes of a word.
#[cold]
fn payload(word: u64) -> IpPayload {
    match frequent(word) {
        Some((Packet::Tip(payload), _)) => payload,
        _ => IpPayload::Suppressed,
    }
}
