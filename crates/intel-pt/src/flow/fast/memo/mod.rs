//! A memo of what packets did.
//!
//! ```text
//! state ──packets──► state     known: one look-up, and the sink is told the number of a path
//!   │                  ▲
//!   └─ block ──► block ┘       else: a few look-ups, by what calls and returns do to the stack
//!        └─ walk ─┘            else: walked over, and written down
//! ```
//!
//! What TNT and TIP packets do depends on the block before which execution stands, on the last IP, and on the
//! calls that compressed returns go back to. Programs have many stacks of calls, and few ways through their code:
//! so what is known of code alone ([`table`]) ends at each return from a call before it, and is put together for
//! each stack ([`ways`]); and ways that followed each other before are one look-up ([`trains`]). The state of the
//! sink is part of the key, so that what a path means to it is known, too.
//!
//! Whatever is not plain – another packet, code that changes, a contradiction – is left to the decoder, which
//! then stands where it would without a memo.

mod record;
mod superblocks;
mod table;
mod transitions;
mod word;

use hodo_code::{Graph, Labels, Transfer};
use rustc_hash::FxHashMap;

pub(super) use record::join;
pub use table::Step;
pub(super) use word::{LONG_SIZE, plain_size};

use self::{
    record::Recorder,
    superblocks::{Ride, Superblocks},
    table::{Key, NO_REGION, Next, Table},
    transitions::{State, TransitionTable},
    word::{TOGETHER, begins_flow, branches, has_tip, plain, short_tnts, without_branches},
};
use super::super::{
    Sink,
    decoder::{Context, Decoder},
    recovery,
    walk::Walk,
};
use crate::packet::{LONG_TNT, Packet, short_cyc};

/// What is remembered of programs in their modes, by one thread. It goes with one sink, or with sinks that take
/// over from each other what they [learned](Sink::learn).
#[derive(Debug)]
pub struct Memos {
    programs: FxHashMap<(usize, u8), Memo>,
    learned: MemoizedPaths,
}

impl Default for Memos {
    fn default() -> Memos {
        Memos::with_room(PATHS)
    }
}

impl Memos {
    /// Room for so many paths, before everything is forgotten.
    pub fn with_room(paths: usize) -> Memos {
        Memos {
            programs: FxHashMap::default(),
            learned: MemoizedPaths { most: paths, ..MemoizedPaths::default() },
        }
    }
}

/// What is remembered of one program.
#[derive(Debug)]
struct Memo {
    table: Table,
    ways: TransitionTable,
    trains: Superblocks,
}

impl Memo {
    fn new() -> Memo {
        Memo { table: Table::new(), ways: TransitionTable::new(), trains: Superblocks::new() }
    }

    fn is_full(&self) -> bool {
        self.ways.is_full() || self.table.has_many_regions()
    }

    /// Forgets what depends on the sink.
    fn forget(&mut self) {
        self.ways.clear();
        self.trains.clear();
        self.table.limit_regions();
    }
}

/// What the sink was told to learn.
#[derive(Debug, Default)]
struct MemoizedPaths {
    recorder: Recorder,
    /// Most paths.
    most: usize,
    /// The last path.
    path: Vec<Step>,
    steps: usize,
    instructions: usize,
    /// It is too much, or there are too many states.
    full: bool,
    /// Paths, and bytes of trace that were followed by them.
    paths: usize,
    bytes: usize,
    /// What these were when it was last asked whether they are worth it.
    judged: (usize, usize),
    /// How often paths came too seldom, less how often they did not.
    seldom: u32,
    /// Legs that are yet to be left to the decoder for that.
    rest: usize,
}

impl MemoizedPaths {
    /// After everything was forgotten, because there was too much.
    fn anew(&self) -> MemoizedPaths {
        MemoizedPaths { seldom: self.seldom, most: self.most, ..MemoizedPaths::default() }
    }

    /// Paths, and bytes of trace that were followed by them, since it was asked last.
    fn lately(&self) -> (usize, usize) {
        (self.paths - self.judged.0, self.bytes - self.judged.1)
    }

    /// Whether it is seen soon that learning is not worth it. So many bytes were not counted yet.
    fn is_hopeless(&self, uncounted: usize, worth: Worth) -> bool {
        let ((paths, bytes), few) = (self.lately(), self.most / worth.few);
        let bytes = 2 * (bytes + uncounted);
        // A quarter of the paths is enough where they are worth a quarter of that.
        [1, 4].iter().any(|part| part * paths >= few && part * bytes < worth.bytes * paths)
    }

    /// Looks whether paths come so seldom that learning them is not worth it, each time that there are some more; then
    /// it rests, the longer the more they were, and the more often that was so.
    fn judge(&mut self, worth: Worth) {
        let (paths, bytes) = self.lately();
        if paths * SOME < self.most && !self.is_hopeless(0, worth) {
            return;
        }
        self.judged = (self.paths, self.bytes);
        if bytes >= worth.bytes * paths {
            self.seldom = self.seldom.saturating_sub(1);
        } else {
            self.rest = (REST * paths).min(self.most / 2) << self.seldom;
            self.seldom = (self.seldom + 1).min(LONGEST_REST);
        }
    }
}

/// Most paths that are remembered.
const PATHS: usize = 1 << 18;

/// The part of these that is looked at together.
const SOME: usize = 64;

/// When paths are worth to be learned.
#[derive(Clone, Copy, Debug)]
struct Worth {
    /// Bytes of trace to a path.
    bytes: usize,
    /// The part of the most paths that is enough to see that there are not half as many.
    few: usize,
}

impl Worth {
    /// A path saves more where a sink would be told of blocks one by one than where it takes function runs.
    fn to(sink: &impl Sink) -> Worth {
        match sink.takes_function_runs() {
            true => Worth { bytes: 128, few: 1024 },
            false => Worth { bytes: 32, few: 512 },
        }
    }
}

/// Legs that are left to the decoder before paths are learned again, the first time, for each that was learned in vain;
/// together they are no more than half of the most paths.
const REST: usize = 128;

/// How often that is doubled at most.
const LONGEST_REST: u32 = 10;

/// Most steps that a sink is told to learn before everything is forgotten.
const STEPS: usize = 1 << 20;

/// Most instructions of these.
const INSTRUCTIONS: usize = 1 << 22;

impl Decoder<'_> {
    /// Follows packets as long as they are plain.
    pub(in crate::flow) fn follow_memo<L: Labels, S: Sink>(
        &mut self,
        memos: &mut Memos,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let (Some(bytes), Some(last_ip)) = (self.packets.outside_block(), self.last_ip.get()) else { return };
        // The decoder knows best where the segment ends.
        let end = self.span.end.min(bytes.len());
        let bytes = &bytes[..end];
        let mut position = self.packets.position();
        let next = bytes.get(position..).and_then(|rest| rest.first_chunk());
        if !context.sink.takes_paths()
            || !self.is_plain()
            || next.is_none_or(|&next| !begins_flow(u64::from_le_bytes(next)))
        {
            return;
        }
        memos.learned.judge(Worth::to(context.sink));
        if memos.learned.rest > 0 {
            let followed = self.follow_plain(memos.learned.rest, context);
            memos.learned.rest -= followed.max(1);
            return;
        }
        if memos.learned.full {
            memos.learned = memos.learned.anew();
            memos.programs.values_mut().for_each(Memo::forget);
            context.sink.forget();
        }
        let (walk, graph, sink) = self.parts(context);
        let Ok(block) = walk.here(graph) else { return };
        if !graph.provenance(block).is_lasting() {
            return;
        }
        let Some(sink) = sink.state() else { return };
        let program = self.machine.guest.unwrap_or(self.program);
        let memo = memos.programs.entry((program, self.machine.bits as u8)).or_insert_with(Memo::new);
        let Some(region) = memo.table.region(last_ip) else { return };
        let returns = memo.ways.chains.of(&self.walk.returns);
        let mut state = memo.ways.number(State { block, region, returns, sink });
        memos.learned.full |= memo.is_full();
        let start = position;
        let pending = self.follow_ways(bytes, &mut position, &mut state, memo, &mut memos.learned, context);
        memos.learned.bytes += position - start;
        let State { block, region, returns, sink } = memo.ways.state(state);
        self.packets.skip_to(position);
        self.last_ip.set(memo.table.ip(region));
        self.walk.returns = memo.ways.chains.stack(returns);
        let (walk, graph, _) = self.parts(context);
        walk.go_to_block(graph.block(block).start, block);
        if walk.at == u64::MAX {
            walk.go(walk.ip);
        }
        context.sink.resume(sink);
        if pending != 0 {
            self.at = position;
            self.packets.skip_to(position + LONG_SIZE);
            match self.tnt(branches(pending), context) {
                Ok(()) => self.tell_time(context),
                Err(trouble) => self.lose(trouble),
            }
        }
    }

    /// Follows packets from a position and a state to where they lead. What is left there of a TNT-64, as TNT-8
    /// packets; 0 where none was begun.
    #[inline]
    fn follow_ways<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        position: &mut usize,
        state: &mut u32,
        memo: &mut Memo,
        learned: &mut MemoizedPaths,
        context: &mut Context<'_, '_, L, S>,
    ) -> u64 {
        // A CYC packet told the time of the packet that comes next; what is left of a TNT-64; bytes of packets that
        // were not met together, and are looked up one by one.
        let (start, mut counted, mut pending, mut apart) = (*position, true, 0, 0);
        while let Some(wide) = bytes.get(*position..).and_then(|rest| rest.first_chunk()) {
            if pending == 0 && !counted && ride(bytes, position, state, memo, context.sink) {
                apart = 0;
                continue;
            }
            let word = if pending == 0 { u64::from_le_bytes(*wide) } else { pending };
            let size = plain(word, if apart > 0 || counted && pending == 0 { 1 } else { TOGETHER });
            if size == 0 {
                memo.trains.stop();
                pending = if word as u16 == LONG_TNT { short_tnts(word) } else { 0 };
                if pending == 0 {
                    let clock = self.follow_clock(word, &mut counted, context);
                    *position += clock;
                    if clock == 0 || !self.goes_on(context) {
                        break;
                    }
                }
                continue;
            }
            let packets = word & u64::MAX >> (u64::BITS - 8 * size);
            let Some(way) = memo.ways.find(*state, packets) else {
                if learned.full || learned.is_hopeless(*position - start, Worth::to(context.sink)) {
                    break;
                }
                let (walk, graph, sink) = self.parts(context);
                if !(MemoBuilder { walk, graph, sink, memo, learned }.meet(*state, packets, size)) {
                    apart = size;
                }
                continue;
            };
            // Not what the way says, which comes late.
            let size = if way.bytes == size { size } else { way.bytes };
            if size == 0 {
                break;
            }
            context.sink.path(way.path);
            *state = way.to;
            apart = apart.saturating_sub(size);
            if pending == 0 {
                *position += size as usize;
                memo.trains.follow(way.path, way.to, *position);
            } else {
                pending = pending.unbounded_shr(8 * size);
                if pending != 0 {
                    continue;
                }
                *position += LONG_SIZE;
            }
            if std::mem::take(&mut counted) {
                self.tell_time(context);
                if !self.goes_on(context) {
                    break;
                }
            }
        }
        memo.trains.stop();
        pending
    }

    /// Whether paths may be told after a time was told.
    #[inline]
    fn goes_on<L, S: Sink>(&self, context: &Context<'_, '_, L, S>) -> bool {
        // No code is valid at the last tick.
        self.walk.at != u64::MAX && context.sink.takes_paths() && !self.switch_is_due()
    }

    /// Whether a TNT or TIP that comes next says what it seems to.
    pub(in crate::flow) fn is_plain(&self) -> bool {
        self.state == recovery::State::On
            && !self.announced.waits
            && self.left_from.is_none()
            && !self.machine.changes
            && !self.no_branches
            // No code is valid at the last tick.
            && self.walk.at != u64::MAX
    }

    /// Follows a packet that tells the time: its size; 0 where it is another one, or a rare form.
    #[inline]
    pub(in crate::flow) fn follow_clock<L: Labels, S: Sink>(
        &mut self,
        word: u64,
        counted: &mut bool,
        context: &mut Context<'_, '_, L, S>,
    ) -> usize {
        let opcode = word as u8;
        match opcode {
            0 => 1,
            0x59 => {
                self.timing.follow(&Packet::Mtc((word >> 8) as u8));
                *counted = false;
                self.tell_time(context);
                2
            }
            _ if opcode & 3 == 3 => {
                let Some((cycles, size)) = short_cyc(word) else { return 0 };
                self.timing.follow(&Packet::Cyc(cycles));
                *counted = true;
                size
            }
            _ => 0,
        }
    }
}

/// Follows a train, if one goes on from here; whether it did.
#[inline(always)]
fn ride<S: Sink>(bytes: &[u8], position: &mut usize, state: &mut u32, memo: &mut Memo, sink: &mut S) -> bool {
    let Some(Ride { paths, to, bytes }) = memo.trains.find(*state, bytes, *position) else { return false };
    paths.iter().for_each(|&path| sink.path(path));
    *state = to;
    *position += bytes;
    true
}

/// What it takes to learn where packets lead.
struct MemoBuilder<'x, 'a, L, S> {
    walk: &'x Walk,
    graph: &'x mut Graph<'a, L>,
    sink: &'x mut S,
    memo: &'x mut Memo,
    learned: &'x mut MemoizedPaths,
}

/// How far packets were followed.
#[derive(Clone, Copy)]
struct Reached {
    state: State,
    /// Bytes of them that are done with.
    bytes: u32,
    /// Steps on the way.
    steps: usize,
}

impl<L: Labels, S: Sink> MemoBuilder<'_, '_, L, S> {
    /// Learns where packets lead, unless they came together for the first time: what comes but once is not worth
    /// to be known as a whole. Whether they were learned.
    fn meet(&mut self, from: u32, packets: u64, size: u32) -> bool {
        let worth = plain(packets, 1) == size || self.memo.ways.was_met(from, packets);
        if worth {
            self.learn(from, packets, size);
        }
        worth
    }

    /// Learns where packets of so many bytes lead from a state, as far as they are plain.
    fn learn(&mut self, from: u32, packets: u64, size: u32) {
        let mut path = std::mem::take(&mut self.learned.path);
        path.clear();
        let state = self.memo.ways.state(from);
        let reached = self.follow(state, packets, size, &mut path);
        path.truncate(reached.steps);
        let known = if path.is_empty() { None } else { self.sink.learn(state.sink, &path, self.graph) };
        let ways = &mut self.memo.ways;
        match known {
            Some((path, sink)) => {
                let to = ways.number(State { sink, ..reached.state });
                ways.insert(from, packets, to, path, reached.bytes);
            }
            None => ways.insert(from, packets, from, 0, 0),
        }
        let learned = &mut *self.learned;
        learned.paths += 1;
        learned.steps += path.len();
        learned.instructions += path.iter().map(|step| usize::from(step.instructions)).sum::<usize>();
        learned.path = path;
        let much = learned.steps >= STEPS || learned.instructions >= INSTRUCTIONS;
        learned.full |= much || learned.paths >= learned.most || self.memo.is_full();
    }

    /// Follows packets by what is known of the code, to the end of the last one that is plain.
    fn follow(&mut self, mut state: State, packets: u64, size: u32, steps: &mut Vec<Step>) -> Reached {
        let mut reached = Reached { state, bytes: 0, steps: 0 };
        let (mut rest, mut bytes) = (packets, 0);
        while rest != 0 {
            let before = steps.len();
            let (next, region) = self.transition(state, rest, steps);
            state.region = if region == NO_REGION { state.region } else { region };
            let newest = self.call_and_return(&mut state, &steps[before..]);
            let done = match next {
                Next::Untold => break,
                Next::Block(block) => {
                    state.block = block;
                    size - bytes
                }
                Next::Part(block, done) => {
                    state.block = block;
                    u32::from(done)
                }
                Next::Return(left, done) => {
                    let back = newest.and_then(|address| self.graph.at(address, self.walk.at).ok());
                    let Some(back) = back.filter(|&id| self.graph.provenance(id).is_lasting()) else { break };
                    state.block = back;
                    rest = rest.unbounded_shr(8 * u32::from(done));
                    if left > 0 {
                        rest = without_branches(rest, left);
                    }
                    bytes += u32::from(done);
                    if left == 0 {
                        reached = Reached { state, bytes, steps: steps.len() };
                    }
                    continue;
                }
            };
            return Reached { state, bytes: bytes + done, steps: steps.len() };
        }
        reached
    }

    /// What is known of packets by the code alone: adds what runs to `steps`, and tells where they lead, and the
    /// region of the last IP, if it changes.
    fn transition(&mut self, state: State, packets: u64, steps: &mut Vec<Step>) -> (Next, u16) {
        let region = if has_tip(packets) { state.region } else { NO_REGION };
        let key = Key { block: state.block, region, packets };
        let table = &mut self.memo.table;
        if let Some(transition) = table.find(key) {
            if transition.next != Next::Untold {
                steps.push(transition.first);
                steps.extend_from_slice(table.more(transition));
            }
            return (transition.next, transition.region);
        }
        let mut walk = self.walk.clone();
        walk.returns.clear();
        let (next, region) = self.learned.recorder.walk(table, &walk, self.graph, key, S::TAKES_BLOCKS);
        table.insert(key, region, self.learned.recorder.steps(), next);
        if next != Next::Untold {
            steps.extend_from_slice(self.learned.recorder.steps());
        }
        (next, region)
    }

    /// Remembers and forgets calls as steps do. The address that the last one goes to, if it is a return to a call
    /// that is remembered.
    fn call_and_return(&mut self, state: &mut State, steps: &[Step]) -> Option<u64> {
        let mut newest = None;
        for step in steps {
            newest = None;
            match step.transfer {
                Transfer::Call => state.returns = self.memo.ways.chains.push(state.returns, step.end),
                Transfer::Return => {
                    if let Some((address, below)) = self.memo.ways.chains.pop(state.returns) {
                        (newest, state.returns) = (Some(address), below);
                    }
                }
                Transfer::None | Transfer::IndirectJump => {}
            }
        }
        newest
    }
}
