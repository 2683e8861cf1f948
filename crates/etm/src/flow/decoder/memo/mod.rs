//! A memo of the effect of packets.
//!
//! The effect of atoms and addresses depends on the block before which execution is, and on the return stack. Programs repeat
//! few paths. So the atoms of several packets and the address after them take one look-up, if they occurred before in the same
//! state, and the sink, whose state is part of the key, gets the number of a path that it has learned.
//!
//! ```text
//! state ──atoms, address──► state     warm: one look-up, and a path for the sink
//!   └──────── walk ──────────┘        cold: walked over and recorded
//! ```
//!
//! Anything else – another packet, code that changes over time, speculation, A32 and T32, a contradiction – is left to the
//! decoder, which then has the same state as without a memo. A property test compares both (`tests/memo.rs`).

mod record;
mod table;

use hodo_clock::Tsc;
use hodo_code::{Isa, Labels};
use hodo_flow::{Event, Sink, Step};
use rustc_hash::FxHashMap;

use self::{
    record::Recorder,
    table::{Path, State as MemoState, TransitionTable},
};
use super::{super::walk::Walk, Decoder, State, Target};
use crate::packet::{Packet, PlainPackets};

/// The memo of one decoding thread, by program. It belongs to one sink, or to several that share what they
/// [learned](Sink::learn).
#[derive(Debug)]
pub struct Memos {
    programs: FxHashMap<usize, TransitionTable>,
    recorder: Recorder,
    /// Maximum number of paths; beyond it, everything is discarded.
    most: usize,
    /// Whether a limit is reached, so that everything must be discarded.
    is_full: bool,
    /// Paths, and steps of paths, that the sink has learned.
    paths: usize,
    steps: usize,
    benefit: Benefit,
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
            recorder: Recorder::default(),
            most: paths,
            is_full: false,
            paths: 0,
            steps: 0,
            benefit: Benefit::default(),
        }
    }

    fn discard(&mut self, sink: &mut impl Sink) {
        self.programs.values_mut().for_each(TransitionTable::clear);
        (self.is_full, self.paths, self.steps) = (false, 0, 0);
        sink.forget();
    }
}

/// Whether learned paths replace enough trace to pay for learning them.
#[derive(Clone, Copy, Debug, Default)]
struct Benefit {
    /// Paths learned, and bytes of packets followed, since the last check.
    paths: usize,
    bytes: usize,
    /// Checks with too little benefit, less those with enough.
    failed_checks: u32,
    /// Packets still to be decoded without the memo.
    pause: usize,
}

/// Default maximum number of paths.
const PATHS: usize = 1 << 18;

/// Maximum steps that a sink learns before everything is discarded.
const STEPS: usize = 1 << 20;

/// Maximum packets of a look-up, beside the address.
const TOGETHER: u32 = 4;

/// New paths after which their benefit is checked, and the bytes that each must have replaced.
const CHECKED_PATHS: usize = 1 << 12;
const WORTH: usize = 16;

/// Packets of the first pause for each useless path, and maximum doublings of it.
const PAUSE_PACKETS: usize = 32;
const MOST_DOUBLINGS: u32 = 10;

impl Benefit {
    /// Checks, after every few new paths, whether they pay. If not, memoization pauses, twice as long after each further failed
    /// check.
    fn check(&mut self) {
        if self.paths < CHECKED_PATHS {
            return;
        }
        if self.bytes >= WORTH * self.paths {
            self.failed_checks = self.failed_checks.saturating_sub(1);
        } else {
            self.pause = (PAUSE_PACKETS * self.paths) << self.failed_checks;
            self.failed_checks = (self.failed_checks + 1).min(MOST_DOUBLINGS);
        }
        (self.paths, self.bytes) = (0, 0);
    }
}

impl Decoder<'_> {
    /// Follows packets by the memo while they are atoms, addresses in A64 code, times and cycles.
    pub(super) fn follow_memo<L: Labels, S: Sink>(
        &mut self,
        memos: &mut Memos,
        target: &mut Target<'_, '_, L, S>,
    ) {
        if !self.is_plain() || !target.sink.takes_paths() {
            return;
        }
        if memos.benefit.pause > 0 {
            memos.benefit.pause -= 1;
            return;
        }
        if memos.is_full {
            memos.discard(target.sink);
        }
        if self.packets.plain_packets(TOGETHER, self.span.end).is_empty() {
            return;
        }
        let program = self.program;
        let mut table = memos.programs.remove(&program).unwrap_or_else(TransitionTable::new);
        if let Some(state) = self.memo_state(&mut table, target) {
            let state = self.follow_transitions(state, &mut table, memos, target);
            self.set_memo_state(table.state(state), &table, target);
        }
        memos.is_full |= table.is_full();
        memos.programs.insert(program, table);
    }

    /// Returns whether atoms and addresses do nothing but continue the flow.
    fn is_plain(&self) -> bool {
        matches!(self.state, State::On | State::AfterIndirect(_))
            && self.config.speculation_depth == 0
            && self.exception.is_none()
            && self.gap.is_none()
            && !self.comes_on
            && !self.switch_is_due
            && self.is_64
            && self.walk.isa == Isa::A64
            && self.walk.remembers_calls == self.config.return_stack
            // No code is valid at the last tick.
            && self.walk.tick != u64::MAX
    }

    /// Returns the number of the current state; `None` if its code changes over time, or if the sink needs blocks.
    fn memo_state<L: Labels, S: Sink>(
        &mut self,
        table: &mut TransitionTable,
        target: &mut Target<'_, '_, L, S>,
    ) -> Option<u32> {
        let after = match self.state {
            State::AfterIndirect(at) => Some(at),
            _ => None,
        };
        let (walk, graph, sink) = self.walk_graph_sink(target);
        let block = match after {
            Some(at) => graph.at(at, walk.tick).ok()?,
            None => walk.current_block(graph).ok()?,
        };
        if !graph.provenance(block).is_lasting() {
            return None;
        }
        let calls = table.chain(&walk.returns);
        Some(table.number(MemoState {
            block,
            is_after_indirect: after.is_some(),
            calls,
            sink: sink.state()?,
        }))
    }

    /// Continues in a state.
    fn set_memo_state<L: Labels, S: Sink>(
        &mut self,
        state: MemoState,
        table: &TransitionTable,
        target: &mut Target<'_, '_, L, S>,
    ) {
        let (walk, graph, sink) = self.walk_graph_sink(target);
        walk.returns.replace(table.addresses(state.calls), Isa::A64);
        let start = graph.block(state.block).start;
        sink.resume(state.sink);
        match state.is_after_indirect {
            true => {
                walk.set(graph.block(state.block).end, Isa::A64);
                self.state = State::AfterIndirect(start);
            }
            false => {
                walk.go_to_block(start, state.block);
                self.state = State::On;
            }
        }
        if self.walk.tick == u64::MAX {
            self.walk.forget_block();
        }
    }

    /// Follows packets from a state. Returns the state that they lead to.
    #[inline(never)]
    fn follow_transitions<L: Labels, S: Sink>(
        &mut self,
        mut state: u32,
        table: &mut TransitionTable,
        memos: &mut Memos,
        target: &mut Target<'_, '_, L, S>,
    ) -> u32 {
        let end = self.span.end;
        // The end of packets that are looked up one by one, because they did not occur together before.
        let mut apart = 0;
        let mut counted_from = self.packets.position();
        loop {
            let position = self.packets.position();
            let most = if position < apart { 1 } else { TOGETHER };
            let packets = self.packets.plain_packets(most, end);
            if packets.is_empty() {
                if self.follow_clock(target) {
                    continue;
                }
                break;
            }
            let Some(transition) = table.find(state, &packets) else {
                memos.benefit.bytes += position - counted_from;
                counted_from = position;
                if most > 1 && !table.was_seen(state, &packets) {
                    apart = packets.end;
                    continue;
                }
                memos.benefit.check();
                if memos.is_full || memos.benefit.pause > 0 {
                    break;
                }
                let (walk, graph, sink) = self.walk_graph_sink(target);
                learn((state, &packets), table, memos, walk.clone(), graph, sink);
                continue;
            };
            match transition.path {
                Path::Learned(path) => target.sink.path(path),
                Path::Empty => {}
                // A part of the packets may still be fit.
                Path::Unfit if most > 1 => {
                    apart = packets.end;
                    continue;
                }
                Path::Unfit => break,
            }
            state = transition.to;
            self.packets.pass(&packets);
        }
        memos.benefit.bytes += self.packets.position() - counted_from;
        state
    }

    /// Follows a time or a count of cycles between atoms. Returns whether paths may still be reported after it.
    fn follow_clock<L: Labels, S: Sink>(&mut self, target: &mut Target<'_, '_, L, S>) -> bool {
        let before = self.packets.clone();
        if before.position() >= self.span.end {
            return false;
        }
        match self.packets.next_packet() {
            Ok(Some(Packet::Cycles { count, .. })) => self.pass_cycles(count, target.sink),
            Ok(Some(Packet::Timestamp { time, cycles })) if !self.switches_at(Tsc(time)) => {
                self.pass_time(time, target.sink);
                if let Some(cycles) = cycles {
                    self.pass_cycles(Some(cycles), target.sink);
                }
            }
            Ok(Some(Packet::Ignore | Packet::Event(_))) => {}
            _ => {
                self.packets = before;
                return false;
            }
        }
        // No code is valid at the last tick.
        self.walk.tick != u64::MAX && target.sink.takes_paths()
    }

    /// Returns whether another program may run from a time on.
    fn switches_at(&self, time: Tsc) -> bool {
        self.thread.is_some() || time >= self.next_switch
    }
}

/// Memoizes the effect of packets in a state.
fn learn<L: Labels, S: Sink>(
    (from, packets): (u32, &PlainPackets),
    table: &mut TransitionTable,
    memos: &mut Memos,
    mut walk: Walk,
    graph: &mut hodo_code::Graph<'_, L>,
    sink: &mut S,
) {
    let state = table.state(from);
    walk.returns.replace(table.addresses(state.calls), Isa::A64);
    walk.go_to_block(graph.block(state.block).start, state.block);
    let reached = memos.recorder.walk(&mut walk, graph, state, packets, S::TAKES_BLOCKS);
    let steps: &[Step] = &memos.recorder.steps;
    let learned = reached.and_then(|reached| match steps {
        [] => Some((Path::Empty, state.sink, reached)),
        _ => sink.learn(state.sink, steps, graph).map(|(path, sink)| (Path::Learned(path), sink, reached)),
    });
    memos.paths += 1;
    memos.steps += steps.len();
    memos.benefit.paths += 1;
    memos.is_full |= memos.paths >= memos.most || memos.steps >= STEPS || table.is_full();
    match learned {
        Some((path, sink, reached)) => {
            let calls = table.chain(&walk.returns);
            let to = table.number(MemoState { calls, sink, ..reached });
            table.insert(from, packets, to, path);
        }
        None => table.insert(from, packets, from, Path::Unfit),
    }
}

impl Decoder<'_> {
    fn pass_cycles(&mut self, count: Option<u32>, sink: &mut impl Sink) {
        self.cycles += u64::from(count.unwrap_or(0));
        sink.event(Event::Cycles(self.cycles));
    }

    fn pass_time(&mut self, time: u64, sink: &mut impl Sink) {
        if time != 0 && self.time != Some(time) {
            self.time = Some(time);
            sink.event(Event::Time(Tsc(time)));
            self.walk.tick = time;
        }
    }
}
