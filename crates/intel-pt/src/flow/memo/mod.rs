//! A memo of what packets did.
//!
//! ```text
//! block ──packet──► block     the first time: walked over, and written down
//!         └─ steps            from then on: one look-up
//! ```
//!
//! What a TNT or TIP does depends on the block before which execution stands, on the packet, and on the calls
//! that compressed returns go back to. Only the last changes, so a packet is followed up to the first return
//! from a call before it, and goes on from there as another packet would. Whatever is not plain – another
//! packet, code that changes, a contradiction – is left to the decoder, which stands where it would without
//! a memo.

mod record;
mod table;

use hodo_code::{BlockId, Graph, Labels};
use rustc_hash::FxHashMap;

pub use table::{Step, Transfer};

use self::{
    record::{Recorder, is_lasting},
    table::{Key, Next, Table},
};
use super::{
    PacketKind, Sink,
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

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// What a packet's first byte says of it.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// Bits of an address in a TIP, by its IPBytes as far as they are 1, 2 or 3.
const ADDRESS_BITS: [u32; 8] = [16, 16, 32, 48, 16, 16, 16, 16];

/// What to do after part of a packet.
enum Progress {
    /// Execution stands before this block.
    At(BlockId),
    /// So many bits of the packet, with a stop bit, are left to the decoder; or the whole TIP.
    Left(u64),
    /// All is done, but the block is not one to go on from.
    Stands,
}

impl Decoder<'_> {
    /// Follows packets as long as they are plain.
    pub(super) fn follow_memo<L: Labels, S: Sink>(
        &mut self,
        memos: &mut Memos,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let (Some(bytes), Some(mut last_ip)) = (self.packets.outside_block(), self.last_ip.get()) else {
            return;
        };
        if self.state != State::On
            || self.announced.waits
            || self.left_from.is_some()
            || self.machine.changes
            || self.no_branches
            // No code is valid at the last tick.
            || self.walk.at == u64::MAX
        {
            return;
        }
        let (walk, graph, _) = self.parts(context);
        let Ok(mut block) = walk.here(graph) else { return };
        if !is_lasting(graph.block(block)) {
            return;
        }
        let program = self.machine.guest.unwrap_or(self.program);
        let table = memos.tables.entry((program, self.machine.bits as u8)).or_insert_with(Table::new);
        let recorder = &mut memos.recorder;
        let end = self.span.end.min(bytes.len().saturating_sub(8));
        let mut position = self.packets.position();
        // A CYC packet tells the time of the packet after it.
        let mut counted = true;
        while position < end {
            let Some(wide) = bytes.get(position..).and_then(|rest| rest.first_chunk()) else { break };
            let word = u64::from_le_bytes(*wide);
            let opcode = word as u8;
            let (kind, size) = FORMS[usize::from(opcode)];
            match kind {
                Kind::Flow => {
                    let is_tip = opcode & 1 != 0;
                    let ip = join(last_ip, opcode, word);
                    let payload = if is_tip { ip } else { u64::from(opcode >> 1) };
                    context.sink.packet(if is_tip { PacketKind::Other } else { PacketKind::Tnt });
                    match self.memoised(table, recorder, block, is_tip, payload, context) {
                        Progress::At(next) => block = next,
                        Progress::Stands => {
                            self.packets.skip_to(position + 1);
                            self.last_ip.set(last_ip);
                            self.tell_time(context);
                            return;
                        }
                        Progress::Left(_) if is_tip => break,
                        Progress::Left(payload) => {
                            self.at = position;
                            position += usize::from(size);
                            self.packets.skip_to(position);
                            self.last_ip.set(last_ip);
                            match self.tnt(tnt(payload), context) {
                                Ok(()) => self.tell_time(context),
                                Err(trouble) => self.lose(trouble),
                            }
                            return;
                        }
                    }
                    last_ip = if is_tip { ip } else { last_ip };
                    position += usize::from(size);
                    if counted {
                        self.tell_time(context);
                        counted = false;
                        if self.walk.at == u64::MAX {
                            break;
                        }
                    }
                    continue;
                }
                Kind::Pad => {}
                Kind::Cyc => {
                    context.sink.packet(PacketKind::Clock);
                    self.timing.follow(&Packet::Cyc(u64::from(opcode >> 3)));
                    counted = true;
                }
                Kind::Mtc => {
                    context.sink.packet(PacketKind::Clock);
                    self.timing.follow(&Packet::Mtc((word >> 8) as u8));
                    self.tell_time(context);
                    counted = false;
                    if self.walk.at == u64::MAX {
                        position += usize::from(size);
                        break;
                    }
                }
                Kind::Other => break,
            }
            position += usize::from(size);
        }
        self.packets.skip_to(position);
        self.last_ip.set(last_ip);
        let (walk, graph, _) = self.parts(context);
        walk.go_to_block(graph.block(block).start, block);
    }

    /// Follows a packet, or the part of it that is plain.
    #[inline]
    fn memoised<L: Labels, S: Sink>(
        &mut self,
        table: &mut Table,
        recorder: &mut Recorder,
        mut block: BlockId,
        is_tip: bool,
        mut payload: u64,
        context: &mut Context<'_, '_, L, S>,
    ) -> Progress {
        loop {
            let key = Key::new(block, is_tip, payload);
            let transition = match table.find(key) {
                Some(transition) => transition,
                None => {
                    self.record(table, recorder, block, key, is_tip, payload, context);
                    continue;
                }
            };
            let external = matches!(transition.next, Next::Return(_));
            if transition.next == Next::Untold || external && self.walk.returns.is_empty() {
                let (walk, graph, _) = self.parts(context);
                walk.go_to_block(graph.block(block).start, block);
                return Progress::Left(payload);
            }
            let mut back = (u32::MAX, None);
            let steps = table.steps(transition);
            for step in steps {
                match step.transfer {
                    Transfer::Call(address) => self.walk.returns.push_with(address, step.back),
                    Transfer::Return => back = (self.walk.returns.hint(), self.walk.returns.pop()),
                    _ => {}
                }
            }
            context.sink.path(steps);
            match transition.next {
                Next::Block(next) => {
                    return Progress::At(next);
                }
                Next::Return(left) => {
                    let (hint, Some(address)) = back else { unreachable!("a call is remembered") };
                    let (walk, graph, _) = self.parts(context);
                    walk.go(address);
                    let next = found(graph, hint, address).or_else(|| walk.here(graph).ok());
                    payload = payload & ((1 << left) - 1) | 1 << left;
                    match next.filter(|&id| is_lasting(graph.block(id))) {
                        Some(next) if left == 0 => return Progress::At(next),
                        Some(next) => block = next,
                        None if left == 0 => return Progress::Stands,
                        None => return Progress::Left(payload),
                    }
                }
                Next::Untold => unreachable!("handled above"),
            }
        }
    }

    /// Walks over a packet for the first time.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "the parts of a memo and of a decoder")]
    fn record<L: Labels, S: Sink>(
        &mut self,
        table: &mut Table,
        recorder: &mut Recorder,
        block: BlockId,
        key: Key,
        is_tip: bool,
        payload: u64,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let (walk, graph, _) = self.parts(context);
        let mut walk = walk.clone();
        walk.returns.clear();
        walk.go_to_block(graph.block(block).start, block);
        let next = match is_tip {
            true => recorder.tip(walk, graph, payload),
            false => recorder.tnt(walk, graph, tnt(payload)),
        };
        let steps = if next == Next::Untold { &[][..] } else { &recorder.steps };
        table.insert(key, steps, next);
    }
}

/// The last IP after a TIP with this first byte, at the beginning of `word`.
#[inline]
fn join(last_ip: u64, opcode: u8, word: u64) -> u64 {
    let bits = ADDRESS_BITS[usize::from(opcode >> 5)];
    let low = word >> 8 & ((1 << bits) - 1);
    let updated = last_ip & (u64::MAX << bits) | low;
    let extended = ((low << 16) as i64 >> 16) as u64;
    if bits == 48 { extended } else { updated }
}

/// The block that a hint names, where it begins at an address.
#[inline]
fn found<L: Labels>(graph: &Graph<'_, L>, hint: u32, address: u64) -> Option<BlockId> {
    let id = BlockId(hint);
    ((hint as usize) < graph.len() && graph.block(id).start == address).then_some(id)
}
