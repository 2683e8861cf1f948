//! Walks over the code from one packet to the next.

mod function_runs;

use std::{mem, ops::Range};

use hodo_code::{
    Back, BlockId, BranchBatches, FunctionRuns, Graph, Labels, NOT_TAKEN, ReturnStack, Role, TAKEN,
    Terminator,
};

use hodo_flow::{CircleGuard, Lookahead, SUSPICIOUS, instructions_before};

use self::function_runs::RunPosition;
use super::{Executed, Expected, Sink, Trouble};
use crate::{Config, packet::Tnt};

/// Blocks without a decision after which a walk checks for a loop.
const LONGEST_STRAIGHT: u32 = SUSPICIOUS - 1;

/// The current position, and the return stack for compressed returns.
///
/// Every step reports the blocks that it proves and moves on. If it can't continue, it returns [`Trouble`], and the
/// position stays where it was after the last decision.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Address of the next instruction.
    pub(super) ip: u64,
    /// The block at `ip`, once looked up.
    block: Option<BlockId>,
    pub(super) returns: ReturnStack,
    /// The tick whose code is walked over.
    pub(super) tick: u64,
    /// Blocks without a decision passed so far towards the next decision.
    straight: u32,
    /// Return compression is off: no return takes a TNT bit.
    no_return_compression: bool,
    /// Whether returns are compressed into TNT bits that are not traced.
    returns_are_hidden: bool,
    /// The branch batches that are followed together, with the progress.
    pub(super) branch_batches: BranchBatches,
    /// Function runs that are not reported yet.
    pending: FunctionRuns,
    /// Position of a walk with function runs: `ip` and `block` are stale until it [halts](Walk::halt).
    run_position: Option<RunPosition>,
}

impl Walk {
    pub(super) fn new(config: &Config) -> Walk {
        Walk {
            ip: 0,
            block: None,
            returns: ReturnStack::default(),
            tick: 0,
            straight: 0,
            no_return_compression: config.no_return_compression,
            returns_are_hidden: config.no_tnt && !config.no_return_compression,
            branch_batches: BranchBatches::default(),
            pending: FunctionRuns::default(),
            run_position: None,
        }
    }

    /// Exchanges the memory for function runs, between segments.
    pub(super) fn exchange(&mut self, function_runs: &mut FunctionRuns) {
        self.pending.reset();
        std::mem::swap(&mut self.pending, function_runs);
    }

    /// Continues at `ip`.
    #[inline]
    pub(super) fn set_ip(&mut self, ip: u64) {
        (self.ip, self.block, self.straight) = (ip, None, 0);
    }

    /// The program or execution mode changed: the block must be looked up again.
    pub(super) fn forget_block(&mut self) {
        self.block = None;
    }

    /// Selects the code of another tick.
    #[inline]
    pub(super) fn look_at<L: Labels>(&mut self, graph: &Graph<'_, L>, tick: u64) {
        self.tick = tick;
        self.block = self.block.filter(|&id| graph.holds(id, tick));
    }

    /// Returns the block at `ip`, once looked up.
    #[inline]
    pub(super) fn block(&self) -> Option<BlockId> {
        self.block
    }

    /// Continues at the block `id`, which begins at `ip`.
    #[inline]
    pub(super) fn go_to_block(&mut self, ip: u64, id: BlockId) {
        (self.ip, self.block, self.straight) = (ip, Some(id), 0);
    }

    #[inline]
    pub(super) fn current_block<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        match self.block {
            Some(id) => Ok(id),
            None => {
                let id = graph.at(self.ip, self.tick).map_err(Trouble::Code)?;
                self.block = Some(id);
                Ok(id)
            }
        }
    }

    // Always: as a call it makes lists of instructions 8 % slower.
    #[inline(always)]
    pub(super) fn report<L: Labels>(&self, graph: &Graph<'_, L>, id: BlockId, sink: &mut impl Sink) {
        let block = graph.block(id);
        self.report_part(graph, id, graph.lengths(block), sink);
    }

    /// Reports the first instructions of a block.
    #[inline]
    fn report_part<L: Labels>(
        &self,
        graph: &Graph<'_, L>,
        id: BlockId,
        lengths: &[u8],
        sink: &mut impl Sink,
    ) {
        let (block, code) = (graph.block(id), graph.snapshot(self.tick));
        let (bytes, provenances) = (graph.bytes(), graph.provenances());
        let condition_failed = false;
        sink.executed(Executed { block, lengths, id, bytes, provenances, code, condition_failed });
    }

    /// Continues at the end of block `id`, or at its direct target.
    #[inline]
    fn continue_at<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId, taken: bool) {
        let block = graph.block(id);
        self.ip = if taken { block.target } else { block.end };
        // An unreadable successor is trouble only once a packet proves that it ran.
        self.block = graph.follow(id, taken, self.tick).ok();
    }

    /// Passes blocks that need no packet, up to one that does; that one is not reported.
    #[inline]
    fn seek_decision<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<BlockId, Trouble> {
        let mut guard = CircleGuard::after(mem::take(&mut self.straight));
        loop {
            let id = self.current_block(graph)?;
            if !self.step(graph, sink, id) {
                return Ok(id);
            }
            if guard.is_circle(id) {
                return Err(Trouble::EndlessLoop { at: self.ip });
            }
        }
    }

    /// Passes block `id`, unless its end needs a packet.
    #[inline]
    fn step<L: Labels>(&mut self, graph: &mut Graph<'_, L>, sink: &mut impl Sink, id: BlockId) -> bool {
        match graph.block(id).terminator {
            Terminator::None => self.execute_block(graph, sink, id, NOT_TAKEN),
            Terminator::Jump => self.execute_block(graph, sink, id, TAKEN),
            Terminator::Call => {
                self.remember_call(graph, id);
                self.execute_block(graph, sink, id, TAKEN);
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn execute_block<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        id: BlockId,
        taken: bool,
    ) {
        self.report(graph, id, sink);
        self.continue_at(graph, id, taken);
    }

    #[inline]
    fn remember_call<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId) {
        if graph.block(id).pushes_return() {
            self.push_return(graph, id);
        }
    }

    /// Pushes the call at the end of a block. Returns the return address.
    #[inline]
    fn push_return<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId) -> u64 {
        let block = graph.follow(id, NOT_TAKEN, self.tick).ok();
        let address = graph.return_address(id);
        self.returns.push(Back { address, block }, graph.landing(block));
        address
    }

    /// Applies an uncompressed branch to the return stack. A return pops its call even if it goes elsewhere.
    fn follow_returns<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId) {
        match graph.block(id).terminator {
            Terminator::Return => {
                self.returns.pop();
            }
            _ => self.remember_call(graph, id),
        }
    }

    /// Fast path: follows TNT bits, the first one highest, up to anything unusual. Returns the number of bits left.
    ///
    /// It is never inlined: within the function that decodes everything, it took 4 to 6 % longer (decision 14).
    #[inline(never)]
    pub(super) fn branches<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        tnt: Tnt,
    ) -> u8 {
        let Some(mut id) = self.block else { return tnt.count };
        let (mut left, mut straight) = (tnt.count, 0);
        while left > 0 {
            let block = graph.block(id);
            let (target, end, terminator, calls) =
                (block.target, block.end, block.terminator, block.pushes_return());
            let taken = tnt.bits >> (left - 1) & 1 == 1;
            let (to, next) = match terminator {
                Terminator::Conditional => {
                    (left, straight) = (left - 1, 0);
                    (if taken { target } else { end }, graph.follow(id, taken, self.tick).ok())
                }
                Terminator::None | Terminator::Jump | Terminator::Call if straight < LONGEST_STRAIGHT => {
                    straight += 1;
                    if calls {
                        self.push_return(graph, id);
                    }
                    let jumps = terminator != Terminator::None;
                    (if jumps { target } else { end }, graph.follow(id, jumps, self.tick).ok())
                }
                Terminator::Return if taken && !self.no_return_compression => {
                    let Some(Back { address, block }) = self.returns.pop() else { break };
                    (left, straight) = (left - 1, 0);
                    let known = block.filter(|&back| graph.is_at(back, address, self.tick));
                    (address, known.or_else(|| graph.at(address, self.tick).ok()))
                }
                _ => break,
            };
            self.report(graph, id, sink);
            match next {
                Some(next) => id = next,
                // Unreadable code is trouble only once a packet proves that it ran.
                None => {
                    self.set_ip(to);
                    return left;
                }
            }
        }
        self.go_to_block(graph.block(id).start, id);
        self.straight = straight;
        left
    }

    /// Follows a TNT bit. Returns `Ok(false)` if the next branch is indirect instead: its TIP was deferred and comes
    /// first (SDM, "Deferred TIPs").
    #[inline]
    pub(super) fn branch<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        taken: bool,
    ) -> Result<bool, Trouble> {
        let id = self.seek_decision(graph, sink)?;
        let block = graph.block(id);
        match block.terminator {
            Terminator::Conditional => {
                self.execute_block(graph, sink, id, taken);
                Ok(true)
            }
            Terminator::Return if taken && !self.no_return_compression => {
                let Some(to) = self.returns.pop() else {
                    let length = graph.lengths(block).last().copied().unwrap_or(0);
                    return Err(Trouble::EmptyReturnStack { at: block.end.wrapping_sub(length.into()) });
                };
                self.report(graph, id, sink);
                self.ip = to.address;
                self.block = to.block.filter(|&id| graph.is_at(id, to.address, self.tick));
                Ok(true)
            }
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Far => Ok(false),
            Terminator::Return if self.no_return_compression => Ok(false),
            _ => Err(Trouble::Contradiction { at: block.start, expected: Expected::Conditional }),
        }
    }

    /// Follows a TIP: walks to the next indirect branch and past it.
    pub(super) fn indirect<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        to: u64,
    ) -> Result<(), Trouble> {
        if sink.takes_function_runs() {
            self.follow(graph, Tnt { bits: 0, count: 0 }, Some(to));
            self.emit(graph, sink);
            if self.branch_batches.current().is_none() {
                return Ok(());
            }
        }
        let id = self.seek_decision(graph, sink)?;
        let block = graph.block(id);
        let hidden = self.returns_are_hidden && block.terminator == Terminator::Return;
        if block.terminator == Terminator::Conditional || hidden {
            return Err(Trouble::Contradiction { at: block.start, expected: Expected::Indirect });
        }
        self.follow_returns(graph, id);
        self.report(graph, id, sink);
        self.set_ip(to);
        Ok(())
    }

    fn lookahead(&self) -> Lookahead {
        Lookahead::new(self.ip, self.block, self.tick)
    }

    /// Passes as many blocks as a lookahead did.
    fn advance<L: Labels>(&mut self, graph: &mut Graph<'_, L>, sink: &mut impl Sink, steps: u32) {
        for _ in 0..steps {
            // The lookahead read each of them.
            let Ok(id) = self.current_block(graph) else { return };
            self.step(graph, sink, id);
        }
    }

    /// Walks to `ip`, without a branch that needs a packet.
    pub(super) fn walk_to<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        ip: u64,
    ) -> Result<(), Trouble> {
        let mut lookahead = self.lookahead();
        let found = self.advance_lookahead_to(graph, &mut lookahead, ip);
        // Code before unreadable code has run, as there is no other path.
        if matches!(found, Ok(()) | Err(Trouble::Code(_))) {
            self.advance(graph, sink, lookahead.steps);
        }
        found?;
        self.reach_inside(graph, sink, ip)
    }

    /// Moves a lookahead to the block that contains `ip`.
    fn advance_lookahead_to<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        lookahead: &mut Lookahead,
        ip: u64,
    ) -> Result<(), Trouble> {
        while lookahead.ip != ip {
            let id = lookahead.current_block(graph)?;
            let block = graph.block(id);
            let contradiction = Trouble::Contradiction { at: block.start, expected: Expected::Reach(ip) };
            if (block.start..block.end).contains(&ip) {
                return instructions_before(graph, block, ip).map(|_| ()).ok_or(contradiction);
            }
            if !lookahead.step(graph, id)? {
                return Err(contradiction);
            }
        }
        Ok(())
    }

    /// Walks to `ip`, which is in the current block or at its start.
    fn reach_inside<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        ip: u64,
    ) -> Result<(), Trouble> {
        if self.ip == ip {
            return Ok(());
        }
        let id = self.current_block(graph)?;
        let block = graph.block(id);
        let expected = Expected::Reach(ip);
        let count = instructions_before(graph, block, ip)
            .ok_or(Trouble::Contradiction { at: block.start, expected })?;
        self.report_part(graph, id, &graph.lengths(block)[..count], sink);
        self.set_ip(ip);
        Ok(())
    }

    /// Returns the addresses of the first `wanted` instruction ahead, before the next decision or at it.
    pub(super) fn find<L: Labels>(&mut self, graph: &mut Graph<'_, L>, wanted: Role) -> Option<Range<u64>> {
        self.lookahead().find(graph, wanted)
    }

    /// Returns the address `count` instructions ahead, if no decision comes before it.
    pub(super) fn ahead<L: Labels>(&mut self, graph: &mut Graph<'_, L>, count: u16) -> Option<u64> {
        let mut lookahead = self.lookahead();
        let mut left = usize::from(count);
        loop {
            if left == 0 {
                return Some(lookahead.ip);
            }
            let id = lookahead.current_block(graph).ok()?;
            let lengths = graph.lengths(graph.block(id));
            if left < lengths.len() {
                return Some(
                    lookahead.ip + lengths[..left].iter().map(|&length| u64::from(length)).sum::<u64>(),
                );
            }
            left -= lengths.len();
            if !lookahead.step(graph, id).ok()? {
                return None;
            }
        }
    }

    /// Returns the terminator of the next block that needs a packet, without going there.
    ///
    /// # Errors
    /// Why none can be reached. If code is missing, the code before it has run.
    pub(super) fn next_decision<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<Terminator, Trouble> {
        let mut lookahead = self.lookahead();
        loop {
            let stepped = lookahead.current_block(graph).and_then(|id| Ok((id, lookahead.step(graph, id)?)));
            match stepped {
                Ok((_, true)) => {}
                Ok((id, false)) => return Ok(graph.block(id).terminator),
                Err(trouble) => {
                    if matches!(trouble, Trouble::Code(_)) {
                        self.advance(graph, sink, lookahead.steps);
                    }
                    return Err(trouble);
                }
            }
        }
    }

    /// Follows a TIP.PGD without a FUP: walks to the branch that turned tracing off, and past it. `to` is the
    /// branch's target, outside the traced addresses.
    pub(super) fn leave<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        to: u64,
    ) -> Result<(), Trouble> {
        let mut lookahead = self.lookahead();
        loop {
            if lookahead.ip == to {
                self.advance(graph, sink, lookahead.steps);
                return Ok(());
            }
            let id = lookahead.current_block(graph)?;
            let block = graph.block(id);
            // Execution ran on into untraced code, in the middle of one of our blocks.
            let inside = (block.start..block.end).contains(&to);
            if inside && instructions_before(graph, block, to).is_some() {
                self.advance(graph, sink, lookahead.steps);
                return self.reach_inside(graph, sink, to);
            }
            let (start, terminator) = (block.start, block.terminator);
            let goes_there = to == block.target || to == block.end;
            if !lookahead.step(graph, id)? {
                if terminator == Terminator::Conditional && !goes_there {
                    return Err(Trouble::Contradiction { at: start, expected: Expected::Indirect });
                }
                self.advance(graph, sink, lookahead.steps);
                return self.pass_decision(graph, sink);
            }
        }
    }

    /// As [`leave`](Walk::leave) for a packet without an address: passes MOV to CR3, which ends tracing if only one
    /// address space is traced, or the next branch that needs a packet (SDM, "TIP.PGD Packet"). With erratum SKL014
    /// (`direct_unseen`), also a direct branch that leaves the filter.
    pub(super) fn leave_unseen<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        direct_unseen: bool,
        filter: Filtering<impl Fn(&Graph<'_, L>, u64) -> bool>,
    ) -> Result<(), Trouble> {
        let mut lookahead = self.lookahead();
        // The first direct branch that an unknown filter may have ended tracing at.
        let mut perhaps_last = None;
        loop {
            let id = lookahead.current_block(graph)?;
            let block = graph.block(id);
            let (start, target, terminator) = (block.start, block.target, block.terminator);
            if block.writes_cr3 {
                let found = self.find(graph, Role::WriteCr3);
                return found.map_or(Ok(()), |instruction| self.walk_to(graph, sink, instruction.end));
            }
            if direct_unseen && matches!(terminator, Terminator::Jump | Terminator::Call) {
                match &filter {
                    Filtering::By(traced) if !traced(graph, target) => {
                        self.advance(graph, sink, lookahead.steps + 1);
                        return Ok(());
                    }
                    Filtering::Unknown => _ = perhaps_last.get_or_insert((lookahead.steps + 1, start)),
                    Filtering::By(_) | Filtering::Absent => {}
                }
            }
            if lookahead.step(graph, id)? {
                continue;
            }
            // A far transfer may leave the traced privilege level; at a near branch, only a filter ends tracing.
            return match (&filter, perhaps_last) {
                (Filtering::Absent, _) if terminator != Terminator::Far => {
                    Err(Trouble::Contradiction { at: start, expected: Expected::Indirect })
                }
                (_, Some((steps, at))) if terminator != Terminator::Far => {
                    self.advance(graph, sink, steps);
                    Err(Trouble::UnknownFilter { at })
                }
                _ => {
                    self.advance(graph, sink, lookahead.steps);
                    self.pass_decision(graph, sink)
                }
            };
        }
    }

    /// Walks past the next branch that needs a packet, whatever its target.
    pub(super) fn pass_decision<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<(), Trouble> {
        let id = self.seek_decision(graph, sink)?;
        self.follow_returns(graph, id);
        self.report(graph, id, sink);
        self.set_ip(graph.block(id).end);
        Ok(())
    }
}

/// Knowledge of a trace's address filter.
pub(super) enum Filtering<F> {
    /// There was none.
    Absent,
    /// There may have been one.
    Unknown,
    /// There was one: it traces the addresses for which this returns `true`.
    By(F),
}
