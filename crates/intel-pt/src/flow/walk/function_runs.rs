//! Walks over the code from one packet to the next, and reports function runs.

use std::mem;

use hodo_clock::Tsc;
use hodo_code::{BlockId, BranchBatch, EdgeKind, Graph, Labels, NO_OUTCOMES, NativeExit, Rules, TAKEN};

use super::{super::Sink, LONGEST_STRAIGHT, Walk};
use crate::packet::Tnt;

/// Number of function runs after which they are reported.
const REPORT_THRESHOLD: usize = 1 << 12;
/// Number of instructions of a function run after which it is reported.
const LONG: u32 = 1 << 30;

/// Below this many branches, entering native code costs more than it saves.
const FEW: usize = 8;

/// Position of a walk with function runs.
#[derive(Clone, Debug)]
pub(super) struct RunPosition {
    id: BlockId,
    /// Number of blocks passed since the last decision.
    straight: u32,
}

/// An indirect branch that a walk has passed. A struct, so that `Option<PassedBranch>` is no option of an option.
struct PassedBranch {
    /// The block at its target, if its call gave it.
    known: Option<BlockId>,
}

impl Walk {
    /// Follows the [branch batches](Walk::branch_batches) for a sink that takes function runs; these are
    /// [reported](Walk::emit) later. What it can't follow this way stays in the batches, code that changes over time
    /// included.
    #[inline(always)]
    pub(in super::super) fn function_runs<L: Labels>(&mut self, graph: &mut Graph<'_, L>) {
        let mut at = match self.run_position.take() {
            Some(run_position) => run_position,
            None => {
                let Ok(id) = self.current_block(graph) else { return };
                self.continue_with(graph, id);
                // The slow path may have passed blocks since the last decision.
                RunPosition { id, straight: mem::take(&mut self.straight) }
            }
        };
        let are_few = self.branch_batches.decisions() < FEW;
        let rules = Rules { tick: self.tick, are_returns_compressed: !self.no_return_compression };
        let mut by_tables = false;
        while self.branch_batches.current().is_some() {
            if !are_few && at.straight == 0 {
                // Native code continues the open function run; the tables may have led into another function.
                if mem::take(&mut by_tables) {
                    self.enter_function(graph, at.id);
                }
                match graph.run(at.id, &mut self.branch_batches, &mut self.pending, &mut self.returns, rules)
                {
                    Some(NativeExit::Before(to)) => at.id = to,
                    // Unreadable code is trouble only once a packet proves that it ran.
                    Some(NativeExit::Unreadable(address)) => return self.set_ip(address),
                    None => {}
                }
            }
            let Some(&mut BranchBatch { mut outcomes, .. }) = self.branch_batches.current() else { break };
            by_tables |= outcomes != NO_OUTCOMES;
            let is_readable = outcomes == NO_OUTCOMES || self.pass_by_tables(graph, &mut at, &mut outcomes);
            let Some(batch) = self.branch_batches.current() else { break };
            batch.outcomes = outcomes;
            let to = batch.to();
            if !is_readable {
                if outcomes == NO_OUTCOMES && to.is_none() {
                    self.branch_batches.pass();
                }
                return;
            }
            if outcomes != NO_OUTCOMES {
                break;
            }
            if let Some(to) = to {
                let Some(PassedBranch { known }) = self.pass_indirect(graph, &mut at, to) else { break };
                let Some(next) = known.or_else(|| graph.indirect_target(at.id, to, self.tick).ok()) else {
                    self.branch_batches.pass();
                    return self.set_ip(to);
                };
                at = RunPosition { id: next, straight: 0 };
                self.pending.begin(graph.start(next), graph.compact(next));
            }
            self.branch_batches.pass();
        }
        // Keeping the position saves looking up the block again at each timing packet.
        self.run_position = Some(at);
        if self.branch_batches.current().is_some() || by_tables || graph.is_versioned() {
            self.halt(graph);
        }
    }

    /// Ends a walk with function runs: sets `ip` and `block` to its position.
    #[inline]
    pub(in super::super) fn halt<L: Labels>(&mut self, graph: &Graph<'_, L>) {
        if let Some(at) = self.run_position.take() {
            self.store_position(graph, &at);
        }
    }

    /// Follows a single branch batch, and halts. The batch keeps what can't be followed this way.
    pub(in super::super) fn follow<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        tnt: Tnt,
        to: Option<u64>,
    ) {
        self.branch_batches.clear();
        self.branch_batches.push(tnt.bits, tnt.count, to);
        self.function_runs(graph);
        self.halt(graph);
    }

    /// Follows outcomes block by block, without native code; returns `false` if that led to unreadable code.
    #[inline(always)]
    fn pass_by_tables<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        at: &mut RunPosition,
        outcomes: &mut u64,
    ) -> bool {
        let RunPosition { mut id, mut straight } = *at;
        let mut bits = *outcomes;
        while bits != NO_OUTCOMES && straight < LONGEST_STRAIGHT {
            let (to, instructions) = graph.pass_branches(id, self.pending.open().function(), &mut bits);
            self.pending.open().until += instructions;
            (id, straight) = (to, if instructions > 0 { 0 } else { straight });
            if bits == NO_OUTCOMES {
                break;
            }
            let compact = graph.compact(id);
            self.enter_function(graph, id);
            let mut end = 0;
            let taken = bits >> 63 == 1;
            let next = match compact.edge {
                EdgeKind::Free | EdgeKind::Branch => {
                    let branches = compact.edge == EdgeKind::Branch;
                    bits <<= u8::from(branches);
                    straight = if branches { 0 } else { straight + 1 };
                    compact.next(taken).or_else(|| graph.follow(id, taken || !branches, self.tick).ok())
                }
                EdgeKind::Call | EdgeKind::PushOnly => {
                    straight += 1;
                    end = self.push_return(graph, id);
                    compact.next(TAKEN).or_else(|| graph.follow(id, TAKEN, self.tick).ok())
                }
                EdgeKind::Return if taken && !self.no_return_compression => {
                    let Some(back) = self.returns.pop() else { break };
                    (bits, straight) = (bits << 1, 0);
                    self.set_ip(back.address);
                    let known = back.block.filter(|&id| graph.is_at(id, back.address, self.tick));
                    known.or_else(|| graph.at(back.address, self.tick).ok())
                }
                _ => break,
            };
            let Some(next) = next else {
                // Unreadable code is trouble only once a packet proves that it ran.
                if compact.edge != EdgeKind::Return {
                    let block = graph.block(id);
                    self.set_ip(if compact.edge == EdgeKind::Branch && !taken {
                        block.end
                    } else {
                        block.target
                    });
                }
                self.pending.end(compact.instructions.into(), compact.edge.transfer(), end);
                *outcomes = bits;
                return false;
            };
            if compact.edge > EdgeKind::Branch {
                self.pending.end(compact.instructions.into(), compact.edge.transfer(), end);
                self.pending.begin(graph.start(next), graph.compact(next));
            } else {
                self.pending.open().until += u32::from(compact.instructions);
            }
            id = next;
        }
        *outcomes = bits;
        *at = RunPosition { id, straight };
        true
    }

    /// Begins a function run if the block is of another function.
    #[inline(always)]
    fn enter_function<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) {
        let compact = graph.compact(id);
        if compact.function != self.pending.open().function() {
            self.pending.close();
            self.pending.begin(graph.start(id), compact);
        }
    }

    /// Continues the open function run with a block, or begins another one.
    #[inline(always)]
    fn continue_with<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) {
        if self.pending.has_no_open_run() {
            self.pending.begin(graph.start(id), graph.compact(id));
        }
        self.enter_function(graph, id);
    }

    /// Reports the pending function runs.
    #[inline]
    pub(in super::super) fn emit<L: Labels>(&mut self, graph: &Graph<'_, L>, sink: &mut impl Sink) {
        self.emit_with(None, graph, sink);
    }

    /// Reports the pending function runs with the current time. Returns `false` if there are none; the time is then
    /// not reported either.
    #[inline]
    pub(in super::super) fn emit_until<L: Labels>(
        &mut self,
        now: Tsc,
        graph: &Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> bool {
        self.emit_with(Some(now), graph, sink)
    }

    #[inline]
    fn emit_with<L: Labels>(&mut self, now: Option<Tsc>, graph: &Graph<'_, L>, sink: &mut impl Sink) -> bool {
        let ran = !self.pending.is_empty();
        if ran {
            self.pending.close();
            sink.function_runs(self.pending.ended(), graph, now);
            self.pending.clear();
        }
        ran
    }

    /// Returns whether the pending function runs should be reported now.
    #[inline]
    pub(in super::super) fn should_flush(&mut self) -> bool {
        self.pending.ended().len() >= REPORT_THRESHOLD || self.pending.open().until >= LONG
    }

    /// Sets the position to where the walk stands. Its block may not be valid at the current tick.
    #[inline(always)]
    fn store_position<L: Labels>(&mut self, graph: &Graph<'_, L>, at: &RunPosition) {
        let &RunPosition { id, straight } = at;
        self.ip = graph.start(id);
        self.block =
            Some(id).filter(|&id| graph.compact(id).edge != EdgeKind::Other || graph.holds(id, self.tick));
        self.straight = straight;
    }

    /// Walks to an indirect branch and past it, to `to`. Returns `None` if there is no such branch.
    #[inline(always)]
    fn pass_indirect<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        at: &mut RunPosition,
        to: u64,
    ) -> Option<PassedBranch> {
        while at.straight < LONGEST_STRAIGHT {
            let (id, compact) = (at.id, graph.compact(at.id));
            self.enter_function(graph, id);
            let (instructions, transfer) = (u32::from(compact.instructions), compact.edge.transfer());
            match compact.edge {
                EdgeKind::Free | EdgeKind::Call | EdgeKind::PushOnly => {
                    let next = compact.next(TAKEN).or_else(|| graph.follow(id, TAKEN, self.tick).ok())?;
                    if compact.edge != EdgeKind::Free {
                        let end = self.push_return(graph, id);
                        self.pending.end(instructions, transfer, end);
                        self.pending.begin(graph.start(next), graph.compact(next));
                    } else {
                        self.pending.open().until += instructions;
                    }
                    *at = RunPosition { id: next, straight: at.straight + 1 };
                }
                EdgeKind::Return | EdgeKind::IndirectJump | EdgeKind::IndirectCall
                    if compact.edge != EdgeKind::Return || !self.returns_are_hidden =>
                {
                    let back = match compact.edge {
                        EdgeKind::Return => self.returns.pop().filter(|back| back.address == to),
                        _ => None,
                    };
                    let end =
                        if compact.edge == EdgeKind::IndirectCall { self.push_return(graph, id) } else { 0 };
                    self.pending.end(instructions, transfer, end);
                    let known = back.and_then(|back| back.block).filter(|&id| graph.is_at(id, to, self.tick));
                    return Some(PassedBranch { known });
                }
                _ => break,
            }
        }
        None
    }
}
