//! A memo of what packets did.
//!
//! ```text
//! block ──packets──► block    the first time: walked over, and written down
//!          └─ steps           from then on: one look-up
//! ```
//!
//! What TNT and TIP packets do depends on the block before which execution stands, on the packets, and on the
//! calls that compressed returns go back to. Only the last changes, so packets are followed up to the first
//! return from a call before them, and the rest goes on from there as other packets would. Whatever is not
//! plain – another packet, code that changes, a contradiction – is left to the decoder, which then stands
//! where it would without a memo.

mod record;
mod table;

use hodo_code::{BlockId, Graph, Labels};
use rustc_hash::FxHashMap;

pub use table::{Step, Transfer};

use self::{
    record::{Recorder, is_lasting},
    table::{Key, NO_REGION, Next, Table},
};
use super::{
    Sink,
    decoder::{Context, Decoder},
    recovery::State,
};
use crate::packet::{Packet, tnt};

/// What is remembered of programs in their modes, by one thread.
#[derive(Debug, Default)]
pub struct Memos {
    tables: FxHashMap<(usize, u8), Table>,
    recorder: Recorder,
}

/// What a packet's first byte says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// TNT-8, or TIP with 2, 4 or 6 bytes of address.
    Flow,
    Pad,
    /// CYC of one byte.
    Cyc,
    Mtc,
    /// Left to the decoder.
    Other,
}

/// Kind and size of packets, by their first byte.
const FORMS: [(Kind, u8); 256] = {
    let mut forms = [(Kind::Other, 0); 256];
    let mut opcode = 0;
    while opcode < 256 {
        forms[opcode] = match opcode {
            0x00 => (Kind::Pad, 1),
            0x02 => (Kind::Other, 0),
            0x2d => (Kind::Flow, 3),
            0x4d => (Kind::Flow, 5),
            0x6d => (Kind::Flow, 7),
            0x59 => (Kind::Mtc, 2),
            _ if opcode & 1 == 0 => (Kind::Flow, 1),
            _ if opcode & 7 == 3 => (Kind::Cyc, 1),
            _ => (Kind::Other, 0),
        };
        opcode += 1;
    }
    forms
};

/// Size of plain packets that are part of the flow, by their first byte; 0 for others.
static PLAIN: [u8; 256] = {
    let mut sizes = [0; 256];
    let mut opcode = 0;
    while opcode < 256 {
        if let (Kind::Flow, size) = FORMS[opcode] {
            sizes[opcode] = size;
        }
        opcode += 1;
    }
    sizes
};

/// Packets that are looked up together, as far as they lie in eight bytes.
const TOGETHER: usize = 4;

/// Plain packets at the lowest bytes of a word, at most so many: how many bytes, and whether a TIP is among them.
/// It takes as long for any packets, so that no branch is guessed wrong.
#[inline(always)]
fn plain(word: u64, most: usize) -> (u32, bool) {
    let (mut size, mut tip) = (0, 0);
    for _ in 0..most {
        let opcode = word.unbounded_shr(8 * size) as u8;
        let more = PLAIN[usize::from(opcode)];
        let fits = size + u32::from(more) <= u64::BITS / 8;
        let more = if fits { more } else { 0 };
        tip |= opcode & more;
        size += u32::from(more);
    }
    // TIP packets are of odd size, as their first bytes are.
    (size, tip & 1 != 0)
}

/// Where the memo's part of decoding stands.
struct Stand {
    position: usize,
    block: BlockId,
    region: u16,
    /// Bits of a TNT that are left, with its stop bit; 0 where there are none.
    residue: u8,
    /// A CYC packet told the time of the packet that comes next.
    counted: bool,
    /// Execution stands at this address rather than before the block: the code there is not plain.
    unread: Option<u64>,
}

impl Decoder<'_> {
    /// Follows packets as long as they are plain.
    pub(super) fn follow_memo<L: Labels, S: Sink>(
        &mut self,
        memos: &mut Memos,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let (Some(bytes), Some(last_ip)) = (self.packets.outside_block(), self.last_ip.get()) else { return };
        // The decoder knows best where the segment ends.
        let end = self.span.end.min(bytes.len()).saturating_sub(size_of::<u64>());
        let position = self.packets.position();
        if position >= end || !self.is_plain() {
            return;
        }
        let (walk, graph, _) = self.parts(context);
        let Ok(block) = walk.here(graph) else { return };
        if !is_lasting(graph.block(block)) {
            return;
        }
        let program = self.machine.guest.unwrap_or(self.program);
        let table = memos.tables.entry((program, self.machine.bits as u8)).or_insert_with(Table::new);
        table.limit_regions();
        let Some(region) = table.region(last_ip) else { return };
        let mut stand = Stand { position, block, region, residue: 0, counted: true, unread: None };
        let bytes = &bytes[..end + size_of::<u64>()];
        while let Some(wide) = bytes.get(stand.position..).and_then(|rest| rest.first_chunk()) {
            let word = u64::from_le_bytes(*wide);
            if !self.follow_word(word, &mut stand, table, &mut memos.recorder, context) {
                break;
            }
        }
        self.packets.skip_to(stand.position);
        self.last_ip.set(table.ip(stand.region));
        let (walk, graph, _) = self.parts(context);
        match stand.unread {
            Some(address) => walk.go(address),
            None if walk.at == u64::MAX => walk.go(graph.block(stand.block).start),
            None => walk.go_to_block(graph.block(stand.block).start, stand.block),
        }
        if stand.residue == 0 {
            return;
        }
        self.at = stand.position;
        self.packets.skip_to(stand.position + 1);
        match self.tnt(tnt(u64::from(stand.residue)), context) {
            Ok(()) => self.tell_time(context),
            Err(trouble) => self.lose(trouble),
        }
    }

    /// Whether a TNT or TIP that comes next says what it seems to.
    fn is_plain(&self) -> bool {
        self.state == State::On
            && !self.announced.waits
            && self.left_from.is_none()
            && !self.machine.changes
            && !self.no_branches
            // No code is valid at the last tick.
            && self.walk.at != u64::MAX
    }

    /// Follows the packets in the lowest bytes of a word; whether to go on.
    #[inline]
    fn follow_word<L: Labels, S: Sink>(
        &mut self,
        word: u64,
        stand: &mut Stand,
        table: &mut Table,
        recorder: &mut Recorder,
        context: &mut Context<'_, '_, L, S>,
    ) -> bool {
        let word = if stand.residue == 0 { word } else { word & !0xff | u64::from(stand.residue) << 1 };
        let (size, has_tip) = if stand.counted { plain(word, 1) } else { plain(word, TOGETHER) };
        if size == 0 {
            return self.follow_clock(word, stand, context);
        }
        let packets = word & u64::MAX >> (64 - 8 * size);
        let key = Key { block: stand.block, region: if has_tip { stand.region } else { NO_REGION }, packets };
        let Some(transition) = table.find(key) else {
            let mut walk = self.walk.clone();
            walk.returns.clear();
            let (_, graph, _) = self.parts(context);
            recorder.learn(table, &walk, graph, key);
            return true;
        };
        let external = matches!(transition.next, Next::Return(..));
        if transition.next == Next::Untold || external && self.walk.returns.is_empty() {
            return false;
        }
        let more = table.more(transition);
        let mut newest = self.take_calls(std::slice::from_ref(&transition.first));
        if !more.is_empty() {
            newest = self.take_calls(more);
        }
        context.sink.path(&transition.first, more);
        stand.region = if transition.region == NO_REGION { stand.region } else { transition.region };
        stand.residue = 0;
        let goes_on = if let Next::Block(next) = transition.next {
            // Not what the transition says, which comes late.
            stand.position += size as usize;
            stand.block = next;
            true
        } else if let Next::Return(left, bytes) = transition.next {
            stand.position += usize::from(bytes);
            self.go_back(newest, left, word.unbounded_shr(8 * u32::from(bytes)) as u8, stand, context)
        } else if let Next::Part(next, bytes) = transition.next {
            stand.position += usize::from(bytes);
            stand.block = next;
            true
        } else {
            false
        };
        if stand.counted && stand.residue == 0 {
            stand.counted = false;
            self.tell_time(context);
            return goes_on && self.walk.at != u64::MAX;
        }
        goes_on
    }

    /// Packets that tell the time; whether it was one that is plain.
    #[inline]
    fn follow_clock<L: Labels, S: Sink>(
        &mut self,
        word: u64,
        stand: &mut Stand,
        context: &mut Context<'_, '_, L, S>,
    ) -> bool {
        let opcode = word as u8;
        let (kind, size) = FORMS[usize::from(opcode)];
        match kind {
            Kind::Cyc => {
                self.timing.follow(&Packet::Cyc(u64::from(opcode >> 3)));
                stand.counted = true;
            }
            Kind::Mtc => {
                self.timing.follow(&Packet::Mtc((word >> 8) as u8));
                stand.counted = false;
                self.tell_time(context);
            }
            Kind::Pad => {}
            Kind::Flow | Kind::Other => return false,
        }
        stand.position += usize::from(size);
        self.walk.at != u64::MAX
    }

    /// Remembers and forgets calls as steps do: where the last one goes, if it is a return.
    #[inline]
    fn take_calls(&mut self, steps: &[Step]) -> (u64, u32) {
        let mut newest = (0, u32::MAX);
        for step in steps {
            let (is_call, is_return) = (step.transfer == Transfer::Call, step.transfer == Transfer::Return);
            newest = self.walk.returns.take(is_call, is_return, (step.end, step.back));
        }
        newest
    }

    /// Over a return that was the last step; so many bits are left of its TNT, which begins with `opcode`.
    #[inline]
    fn go_back<L: Labels, S: Sink>(
        &mut self,
        (address, hint): (u64, u32),
        left: u8,
        opcode: u8,
        stand: &mut Stand,
        context: &mut Context<'_, '_, L, S>,
    ) -> bool {
        if left > 0 {
            stand.residue = opcode >> 1 & ((1 << left) - 1) | 1 << left;
        }
        let (walk, graph, _) = self.parts(context);
        let found = found(graph, hint, address).or_else(|| graph.at(address, walk.at).ok());
        match found.filter(|&id| is_lasting(graph.block(id))) {
            Some(next) => stand.block = next,
            None => stand.unread = Some(address),
        }
        stand.unread.is_none()
    }
}

/// The block that a hint names, where it begins at an address.
#[inline]
fn found<L: Labels>(graph: &Graph<'_, L>, hint: u32, address: u64) -> Option<BlockId> {
    let id = BlockId(hint);
    ((hint as usize) < graph.len() && graph.block(id).start == address).then_some(id)
}
