//! A memo of the effect of packets.
//!
//! ```text
//! state ──packets──► state     warm: one look-up, and the sink gets the number of a path
//!   │                  ▲
//!   └─ block ──► block ┘       cold: a few look-ups, with the calls and returns applied to the stack
//!        └─ walk ─┘            new: walked over and recorded
//! ```
//!
//! The effect of TNT and TIP packets depends on the block before which execution is, on the last IP, and on the return
//! stack. Programs have many return stacks, but few paths through their code. So a transition of the code alone
//! ([`table`]) ends at each return whose call is before the packets; these transitions are combined for each return
//! stack ([`transitions`]); and sequences of transitions that occurred before take one look-up ([`superblocks`]). The
//! sink's state is part of the key, so the effect of a path on the sink is known too.
//!
//! Anything else – another packet, code that changes over time, a contradiction – is left to the decoder, which then
//! has the same state as without a memo.

mod record;
mod superblocks;
mod table;
mod transitions;
mod word;

use hodo_code::{FunctionRuns, Graph, Labels, Transfer};
use hodo_flow::Step;
use rustc_hash::FxHashMap;

pub(super) use record::join;
pub(super) use word::{LONG_SIZE, plain_size};

use self::{
    record::{Recorder, WalkEnd},
    superblocks::{SuperblockMatch, Superblocks},
    table::{Key, NO_REGION, Next, Table},
    transitions::{State, TransitionTable},
    word::{begins_flow, branches, has_tip, plain, short_tnts, without_branches},
};
use super::super::{
    Sink,
    decoder::{Context, Decoder},
    recovery,
    walk::Walk,
};
use crate::packet::{LONG_TNT, Packet, short_cyc};

/// The memo of one decoding thread, by program and execution mode. It belongs to one sink, or to several that share
/// what they [learned](Sink::learn).
#[derive(Debug)]
pub struct Memos {
    programs: FxHashMap<(usize, u8), Memo>,
    learned: MemoizedPaths,
    /// Memory for the function runs of the next segment.
    pub(in crate::flow) function_runs: FunctionRuns,
}

impl Default for Memos {
    fn default() -> Memos {
        Memos::with_capacity(PATHS)
    }
}

impl Memos {
    /// Creates a memo with a maximum number of paths; beyond it, everything is discarded.
    pub fn with_capacity(paths: usize) -> Memos {
        Memos {
            programs: FxHashMap::default(),
            learned: MemoizedPaths { most: paths, ..MemoizedPaths::default() },
            function_runs: FunctionRuns::default(),
        }
    }
}

/// The memo of one program.
#[derive(Debug)]
struct Memo {
    table: Table,
    transitions: TransitionTable,
    superblocks: Superblocks,
}

impl Memo {
    fn new() -> Memo {
        Memo { table: Table::new(), transitions: TransitionTable::new(), superblocks: Superblocks::new() }
    }

    fn is_full(&self) -> bool {
        self.transitions.is_full() || self.table.has_many_regions()
    }

    /// Discards what depends on the sink.
    fn forget(&mut self) {
        self.transitions.clear();
        self.superblocks.clear();
        self.table.limit_regions();
    }
}

/// The paths that the sink has learned.
#[derive(Debug, Default)]
struct MemoizedPaths {
    recorder: Recorder,
    /// Maximum number of paths.
    most: usize,
    /// The path being learned.
    path: Vec<Step>,
    steps: usize,
    instructions: usize,
    /// Whether a limit is reached, so that everything must be discarded.
    full: bool,
    /// Number of paths learned, and trace bytes followed by paths.
    paths: usize,
    bytes: usize,
    /// `paths` and `bytes` at the last check of their benefit.
    checked_paths: usize,
    checked_bytes: usize,
    /// Number of checks with too little benefit, less those with enough.
    failed_checks: u32,
    /// Branch batches still to be decoded without the memo because of a failed check.
    pause: usize,
}

impl MemoizedPaths {
    /// Starts over after a limit was reached.
    fn restarted(&self) -> MemoizedPaths {
        MemoizedPaths { failed_checks: self.failed_checks, most: self.most, ..MemoizedPaths::default() }
    }

    /// Returns whether it is clear early that memoization does not pay. `uncounted` bytes are not in the sum yet.
    fn is_unprofitable(&self, uncounted: usize, worth: Worth) -> bool {
        let (paths, few) = (self.paths - self.checked_paths, self.most / worth.early_divisor);
        let bytes = 2 * (self.bytes - self.checked_bytes + uncounted);
        // A quarter of the paths suffices if the benefit is below a quarter of the limit.
        [1, 4].iter().any(|part| part * paths >= few && part * bytes < worth.bytes * paths)
    }

    /// Checks, after every few new paths, whether they replace enough trace bytes to pay for learning. If not,
    /// memoization pauses: longer for more paths, and twice as long after each further failed check.
    fn check_benefit(&mut self, worth: Worth) {
        let (paths, bytes) = (self.paths - self.checked_paths, self.bytes - self.checked_bytes);
        if paths * CHECK_DIVISOR < self.most && !self.is_unprofitable(0, worth) {
            return;
        }
        (self.checked_paths, self.checked_bytes) = (self.paths, self.bytes);
        if bytes >= worth.bytes * paths {
            self.failed_checks = self.failed_checks.saturating_sub(1);
        } else {
            self.pause = (PAUSE_BATCHES * paths).min(self.most / 2) << self.failed_checks;
            self.failed_checks = (self.failed_checks + 1).min(MOST_DOUBLINGS);
        }
    }
}

/// Default maximum number of paths.
const PATHS: usize = 1 << 18;

/// Divisor of the maximum: after that number of new paths, their benefit is checked.
const CHECK_DIVISOR: usize = 64;

/// Conditions under which memoizing paths pays.
#[derive(Clone, Copy, Debug)]
struct Worth {
    /// Minimum trace bytes per path.
    bytes: usize,
    /// Divisor of the maximum number of paths: that many suffice to detect less than half of the required benefit.
    early_divisor: usize,
}

impl Worth {
    /// Returns the conditions for a sink: a path saves more if it replaces single blocks than if it replaces function
    /// runs.
    fn to(sink: &impl Sink) -> Worth {
        match sink.takes_function_runs() {
            true => Worth { bytes: 128, early_divisor: 1024 },
            false => Worth { bytes: 32, early_divisor: 512 },
        }
    }
}

/// Branch batches per useless path in the first pause; at most half of the maximum number of paths in total.
const PAUSE_BATCHES: usize = 128;

/// Maximum number of doublings of the pause.
const MOST_DOUBLINGS: u32 = 10;

/// Maximum steps that a sink learns before everything is discarded.
const STEPS: usize = 1 << 20;

/// Maximum instructions of these steps.
const INSTRUCTIONS: usize = 1 << 22;

impl Decoder<'_> {
    /// Follows packets by the memo while they are plain.
    pub(in crate::flow) fn follow_memo<L: Labels, S: Sink>(
        &mut self,
        memos: &mut Memos,
        context: &mut Context<'_, '_, L, S>,
    ) {
        let (Some(bytes), Some(last_ip)) = (self.packets.outside_block(), self.last_ip.get()) else { return };
        // Only the decoder itself handles the end of the segment.
        let end = self.span.end.min(bytes.len());
        let bytes = &bytes[..end];
        let position = self.packets.position();
        let next = bytes.get(position..).and_then(|rest| rest.first_chunk());
        let can_follow = context.sink.takes_paths()
            && self.is_plain()
            && next.is_some_and(|&next| begins_flow(u64::from_le_bytes(next)));
        if !can_follow {
            return;
        }
        // Nothing is learned in a pause, so there is nothing to check.
        if memos.learned.pause == 0 {
            memos.learned.check_benefit(Worth::to(context.sink));
        }
        if memos.learned.pause > 0 {
            let followed = self.follow_plain(memos.learned.pause, context);
            memos.learned.pause -= followed.max(1);
            return;
        }
        if memos.learned.full {
            memos.learned = memos.learned.restarted();
            memos.programs.values_mut().for_each(Memo::forget);
            context.sink.forget();
        }
        let (walk, graph, sink) = self.walk_graph_sink(context);
        let Ok(block) = walk.current_block(graph) else { return };
        if !graph.provenance(block).is_lasting() {
            return;
        }
        let Some(sink) = sink.state() else { return };
        let program = self.machine.guest.unwrap_or(self.program);
        let memo = memos.programs.entry((program, self.machine.bits as u8)).or_insert_with(Memo::new);
        let Some(region) = memo.table.region(last_ip) else { return };
        let returns = memo.transitions.chains.chain_of(&self.walk.returns);
        let state = memo.transitions.number(State { block, region, returns, sink });
        memos.learned.full |= memo.is_full();
        let start = position;
        let ((position, state), pending) =
            self.follow_transitions(bytes, (position, state), memo, &mut memos.learned, context);
        memos.learned.bytes += position - start;
        let State { block, region, returns, sink } = memo.transitions.state(state);
        self.packets.skip_to(position);
        self.last_ip.set(memo.table.ip(region));
        self.walk.returns = memo.transitions.chains.stack(returns);
        let (walk, graph, _) = self.walk_graph_sink(context);
        walk.go_to_block(graph.block(block).start, block);
        if walk.tick == u64::MAX {
            walk.set_ip(walk.ip);
        }
        context.sink.resume(sink);
        if pending != 0 {
            self.packet_position = position;
            self.packets.skip_to(position + LONG_SIZE);
            match self.tnt(branches(pending), context) {
                Ok(()) => self.emit_time(context),
                Err(trouble) => self.lose(trouble),
            }
        }
    }

    /// Follows packets from a position and a state. Returns where they lead, and what is left of a TNT-64 there, as TNT-8
    /// packets; 0 if none was begun.
    ///
    /// It is never inlined, so that its speed does not depend on code elsewhere (decision 14).
    #[inline(never)]
    fn follow_transitions<L: Labels, S: Sink>(
        &mut self,
        bytes: &[u8],
        (mut position, mut state): (usize, u32),
        memo: &mut Memo,
        learned: &mut MemoizedPaths,
        context: &mut Context<'_, '_, L, S>,
    ) -> ((usize, u32), u64) {
        // `counted`: a CYC packet gives the time of the next packet. `pending`: what is left of a TNT-64. `apart`: bytes
        // of packets that are looked up one by one, because they did not occur together before, or a CYC is likely.
        let (start, mut counted, mut pending, mut apart) = (position, true, 0, 0);
        while let Some(wide) = bytes.get(position..).and_then(|rest| rest.first_chunk()) {
            let alone = apart > 0 || counted && pending == 0;
            if !alone && pending == 0 && run_superblock(bytes, &mut position, &mut state, memo, context.sink)
            {
                continue;
            }
            let word = if pending == 0 { u64::from_le_bytes(*wide) } else { pending };
            let size = if alone { plain_size(word).into() } else { plain(word) };
            if size == 0 {
                memo.superblocks.stop();
                pending = if word as u16 == LONG_TNT { short_tnts(word) } else { 0 };
                if pending == 0 {
                    let clock = self.follow_clock(word, &mut counted, context);
                    position += clock;
                    if clock == 0 || !self.wants_more(context) {
                        break;
                    }
                }
                continue;
            }
            let packets = word & u64::MAX >> (u64::BITS - 8 * size);
            let Some(transition) = memo.transitions.find(state, packets) else {
                if learned.full || learned.is_unprofitable(position - start, Worth::to(context.sink)) {
                    break;
                }
                let (walk, graph, sink) = self.walk_graph_sink(context);
                if !(MemoBuilder { walk, graph, sink, memo, learned }.learn_repeated(state, packets, size)) {
                    apart = size;
                }
                continue;
            };
            // The computed size does not wait for the load of `transition`, which arrives late.
            let size = if transition.bytes == size { size } else { transition.bytes };
            if size == 0 {
                break;
            }
            context.sink.path(transition.path);
            state = transition.to;
            apart = apart.saturating_sub(size);
            if pending == 0 {
                position += size as usize;
                memo.superblocks.follow(transition.path, transition.to, position);
            } else {
                pending = pending.unbounded_shr(8 * size);
                if pending != 0 {
                    continue;
                }
                position += LONG_SIZE;
            }
            if std::mem::take(&mut counted) {
                apart = apart.max(1);
                if !self.pass_time(context) {
                    break;
                }
            }
        }
        memo.superblocks.stop();
        ((position, state), pending)
    }

    /// Reports the time; returns whether paths may still be reported after it.
    #[inline]
    fn pass_time<L: Labels, S: Sink>(&mut self, context: &mut Context<'_, '_, L, S>) -> bool {
        self.emit_time(context);
        self.wants_more(context)
    }

    /// Returns whether paths may still be reported after a timestamp.
    #[inline]
    fn wants_more<L, S: Sink>(&self, context: &Context<'_, '_, L, S>) -> bool {
        // No code is valid at the last tick.
        self.walk.tick != u64::MAX && context.sink.takes_paths() && !self.switch_is_due
    }

    /// Returns whether the next TNT or TIP needs no special handling.
    pub(in crate::flow) fn is_plain(&self) -> bool {
        self.state == recovery::State::On
            && !self.announced.waits
            && self.left_from.is_none()
            && !self.machine.changes
            && !self.no_branches
            && !self.switch_is_due
            // No code is valid at the last tick.
            && self.walk.tick != u64::MAX
    }

    /// Follows a timing packet or padding, and returns its size; 0 for any other packet, or a rare form.
    #[inline]
    pub(in crate::flow) fn follow_clock<L: Labels, S: Sink>(
        &mut self,
        word: u64,
        counted: &mut bool,
        context: &mut Context<'_, '_, L, S>,
    ) -> usize {
        let opcode = word as u8;
        match opcode {
            // PAD, then MTC.
            0 => 1,
            0x59 => {
                self.timing.follow(&Packet::Mtc((word >> 8) as u8));
                *counted = false;
                self.emit_time(context);
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

/// Follows a superblock; returns `false` if none continues from here.
#[inline(always)]
fn run_superblock<S: Sink>(
    bytes: &[u8],
    position: &mut usize,
    state: &mut u32,
    memo: &mut Memo,
    sink: &mut S,
) -> bool {
    let Some(SuperblockMatch { slot, transitions, to, bytes }) =
        memo.superblocks.find(*state, bytes, *position)
    else {
        return false;
    };
    memo.superblocks.report(slot, transitions, sink);
    *state = to;
    *position += bytes;
    true
}

/// Learns where packets lead.
struct MemoBuilder<'x, 'a, L, S> {
    walk: &'x Walk,
    graph: &'x mut Graph<'a, L>,
    sink: &'x mut S,
    memo: &'x mut Memo,
    learned: &'x mut MemoizedPaths,
}

/// The progress of following packets.
#[derive(Clone, Copy)]
struct Reached {
    state: State,
    /// Bytes of packets that are completed.
    bytes: u32,
    /// Steps up to there.
    steps: usize,
}

impl<L: Labels, S: Sink> MemoBuilder<'_, '_, L, S> {
    /// Memoizes the effect of packets, unless they occur together for the first time: memoizing packets that occur only
    /// once does not pay. Returns whether they were memoized.
    fn learn_repeated(&mut self, from: u32, packets: u64, size: u32) -> bool {
        let worth = u32::from(plain_size(packets)) == size || self.memo.transitions.was_seen(from, packets);
        if worth {
            self.learn(from, packets, size);
        }
        worth
    }

    /// Memoizes the effect of packets of `size` bytes from a state, up to the first packet that is not plain.
    fn learn(&mut self, from: u32, packets: u64, size: u32) {
        let mut path = std::mem::take(&mut self.learned.path);
        path.clear();
        let state = self.memo.transitions.state(from);
        let reached = self.follow(state, packets, size, &mut path);
        path.truncate(reached.steps);
        let known = if path.is_empty() { None } else { self.sink.learn(state.sink, &path, self.graph) };
        let transitions = &mut self.memo.transitions;
        match known {
            Some((path, sink)) => {
                let to = transitions.number(State { sink, ..reached.state });
                transitions.insert(from, packets, to, path, reached.bytes);
            }
            None => {
                // The first packet is left to the decoder.
                let (path, bytes) = (0, 0);
                transitions.insert(from, packets, from, path, bytes);
            }
        }
        let learned = &mut *self.learned;
        learned.paths += 1;
        learned.steps += path.len();
        learned.instructions += path.iter().map(|step| usize::from(step.instructions)).sum::<usize>();
        learned.path = path;
        let much = learned.steps >= STEPS || learned.instructions >= INSTRUCTIONS;
        learned.full |= much || learned.paths >= learned.most || self.memo.is_full();
    }

    /// Follows packets by the transitions of the code, to the end of the last plain one.
    fn follow(&mut self, mut state: State, packets: u64, size: u32, steps: &mut Vec<Step>) -> Reached {
        let mut reached = Reached { state, bytes: 0, steps: 0 };
        let (mut rest, mut bytes) = (packets, 0);
        while rest != 0 {
            let before = steps.len();
            let (next, region) = self.transition(state, rest, steps);
            state.region = if region == NO_REGION { state.region } else { region };
            let newest = self.call_and_return(&mut state, &steps[before..]);
            let done = match next {
                Next::Unknown => break,
                Next::Block(block) => {
                    state.block = block;
                    size - bytes
                }
                Next::Part(block, done) => {
                    state.block = block;
                    u32::from(done)
                }
                Next::Return { branches_left: left, consumed: done } => {
                    let back = newest.and_then(|address| self.graph.at(address, self.walk.tick).ok());
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

    /// Returns the effect of packets by the code alone, and the new region of the last IP, if it changes. Appends what
    /// runs to `steps`.
    fn transition(&mut self, state: State, packets: u64, steps: &mut Vec<Step>) -> (Next, u16) {
        let region = if has_tip(packets) { state.region } else { NO_REGION };
        let key = Key { block: state.block, region, packets };
        let table = &mut self.memo.table;
        if let Some(transition) = table.find(key) {
            if transition.next != Next::Unknown {
                steps.push(transition.first);
                steps.extend_from_slice(table.more(transition));
            }
            return (transition.next, transition.region);
        }
        let mut walk = self.walk.clone();
        walk.returns.clear();
        let WalkEnd { next, region } =
            self.learned.recorder.walk(table, &walk, self.graph, key, S::TAKES_BLOCKS);
        table.insert(key, region, self.learned.recorder.steps(), next);
        if next != Next::Unknown {
            steps.extend_from_slice(self.learned.recorder.steps());
        }
        (next, region)
    }

    /// Applies the calls and returns of steps to the return stack. Returns the target of the last step, if it is a
    /// return with a known call.
    fn call_and_return(&mut self, state: &mut State, steps: &[Step]) -> Option<u64> {
        let mut newest = None;
        for step in steps {
            newest = None;
            match step.transfer {
                Transfer::Call | Transfer::PushOnly => {
                    state.returns = self.memo.transitions.chains.push(state.returns, step.end)
                }
                Transfer::Return => {
                    if let Some((address, below)) = self.memo.transitions.chains.pop(state.returns) {
                        (newest, state.returns) = (Some(address), below);
                    }
                }
                Transfer::None | Transfer::IndirectJump => {}
            }
        }
        newest
    }
}
