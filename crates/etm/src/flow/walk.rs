//! Walks over the code from one waypoint to the next.

use hodo_code::{BlockId, Graph, Isa, Labels, NOT_TAKEN, TAKEN, Terminator};
use hodo_flow::{Executed, Expected, Hidden, Sink, Trouble, instructions_before};

/// Whether the condition of the last instruction failed, so that it did nothing.
const FAILED: bool = true;
const HELD: bool = false;

/// Calls that the unit remembers, at most.
pub(super) const DEPTH: usize = 16;

/// The return stack.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns {
    calls: Vec<Return>,
    /// Why calls that the unit remembers may be missing.
    pub(super) hidden: Option<Hidden>,
}

/// The place after a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    pub(super) address: u64,
    pub(super) isa: Isa,
}

impl Returns {
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }

    fn push(&mut self, call: Return) {
        if self.calls.len() == DEPTH {
            self.calls.remove(0);
        }
        self.calls.push(call);
    }

    pub(super) fn pop(&mut self) -> Option<Return> {
        self.calls.pop()
    }

    /// The addresses after the calls, the oldest first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.calls.iter().map(|call| call.address)
    }

    /// Sets the calls, the oldest first, to code of one instruction set.
    pub(super) fn replace(&mut self, addresses: impl Iterator<Item = u64>, isa: Isa) {
        self.calls.clear();
        self.calls.extend(addresses.map(|address| Return { address, isa }));
    }

    pub(super) fn top(&self) -> Option<Return> {
        self.calls.last().copied()
    }
}

/// The position in the code.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Address of the next instruction.
    pub(super) ip: u64,
    /// The instruction set there.
    pub(super) isa: Isa,
    /// The block at `ip`, once looked up.
    block: Option<BlockId>,
    /// The tick whose code is walked over.
    pub(super) tick: u64,
    pub(super) returns: Returns,
    /// Whether calls are remembered: there is a return stack, and an address was seen since the last Trace Info.
    pub(super) remembers_calls: bool,
    waits_have_atoms: bool,
}

/// Where an atom leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// To the walk's new position.
    Position,
    /// To an address that the code does not contain. The address of the branch's block.
    Unknown(u64),
}

/// What may be between the position and an address that a packet reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// Instructions without atoms only.
    NoWaypoint,
    /// Also branches that were not taken, and barriers.
    BranchesNotTaken,
}

impl Walk {
    pub(super) fn new(waits_have_atoms: bool) -> Walk {
        Walk {
            ip: 0,
            isa: Isa::A64,
            block: None,
            tick: 0,
            returns: Returns::default(),
            remembers_calls: false,
            waits_have_atoms,
        }
    }

    pub(super) fn set(&mut self, ip: u64, isa: Isa) {
        (self.ip, self.isa, self.block) = (ip, isa, None);
    }

    /// Sets the position to the begin of a block, in the same instruction set.
    pub(super) fn go_to_block(&mut self, start: u64, id: BlockId) {
        (self.ip, self.block) = (start, Some(id));
    }

    /// Selects the code of another tick, or of another program.
    pub(super) fn forget_block(&mut self) {
        self.block = None;
    }

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

    /// Returns whether a block ends in a waypoint.
    fn is_waypoint(&self, terminator: Terminator) -> bool {
        match terminator {
            Terminator::None | Terminator::Trap => false,
            Terminator::Wait => self.waits_have_atoms,
            _ => true,
        }
    }

    fn report<L: Labels>(
        &self,
        graph: &Graph<'_, L>,
        id: BlockId,
        count: usize,
        condition_failed: bool,
        sink: &mut impl Sink,
    ) {
        let (block, code) = (graph.block(id), graph.snapshot(self.tick));
        let (bytes, provenances) = (graph.bytes(), graph.provenances());
        let lengths = &graph.lengths(block)[..count];
        sink.executed(Executed { block, lengths, id, bytes, provenances, code, condition_failed });
    }

    /// Reports a block, and continues after it or at its target.
    #[inline]
    fn pass<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        id: BlockId,
        taken: bool,
        condition_failed: bool,
    ) {
        let block = graph.block(id);
        let (count, to) = (block.instructions as usize, if taken { block.target } else { block.end });
        self.report(graph, id, count, condition_failed, sink);
        self.ip = to;
        // Unreadable code is trouble only once a packet proves that it ran.
        self.block = graph.follow(id, taken, self.tick).ok();
    }

    /// Passes blocks up to one that ends in a waypoint; that one is not reported.
    #[inline]
    fn seek_waypoint<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<BlockId, Trouble> {
        loop {
            let id = self.current_block(graph)?;
            if self.is_waypoint(graph.block(id).terminator) {
                return Ok(id);
            }
            self.pass(graph, sink, id, NOT_TAKEN, HELD);
        }
    }

    /// Follows an atom.
    #[inline]
    pub(super) fn atom<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        taken: bool,
    ) -> Result<Reached, Trouble> {
        let id = self.seek_waypoint(graph, sink)?;
        let (terminator, start, end) = {
            let block = graph.block(id);
            (block.terminator, block.start, block.end)
        };
        match terminator {
            Terminator::Conditional => {
                self.pass(graph, sink, id, taken, HELD);
                return Ok(Reached::Position);
            }
            // In A32 and T32 any branch may be conditional.
            _ if !taken && self.isa != Isa::A64 => {
                self.pass(graph, sink, id, NOT_TAKEN, FAILED);
                return Ok(Reached::Position);
            }
            _ if !taken => {
                return Err(Trouble::Contradiction { at: start, expected: Expected::Conditional });
            }
            Terminator::Barrier | Terminator::Wait => {
                self.pass(graph, sink, id, NOT_TAKEN, HELD);
                return Ok(Reached::Position);
            }
            Terminator::Jump => {
                self.pass(graph, sink, id, TAKEN, HELD);
                return Ok(Reached::Position);
            }
            _ => {}
        }
        let calls = matches!(terminator, Terminator::Call | Terminator::IndirectCall);
        if calls && self.remembers_calls {
            self.returns.push(Return { address: end, isa: self.isa });
        }
        let count = graph.block(id).instructions as usize;
        if terminator == Terminator::Call {
            match self.isa {
                Isa::A32 | Isa::T32 => {
                    let (to, isa) = self.target_of_call(graph, id);
                    self.report(graph, id, count, HELD, sink);
                    self.set(to, isa);
                }
                _ => self.pass(graph, sink, id, TAKEN, HELD),
            }
            return Ok(Reached::Position);
        }
        self.report(graph, id, count, HELD, sink);
        self.set(end, self.isa);
        Ok(Reached::Unknown(start))
    }

    /// Returns the target of the direct call at the end of a block, and its instruction set, which BLX changes.
    fn target_of_call<L: Labels>(&self, graph: &Graph<'_, L>, id: BlockId) -> (u64, Isa) {
        let block = graph.block(id);
        let length = graph.lengths(block).last().copied().unwrap_or(0);
        let last = graph.snapshot(self.tick).instruction(block.end.wrapping_sub(length.into()));
        let isa = last.ok().and_then(|read| read.instruction.target_isa());
        (block.target, isa.unwrap_or(self.isa))
    }

    /// Walks over a number of instructions, if only the last of them may be a branch. Otherwise, or if code is missing,
    /// reports nothing and returns `None`.
    pub(super) fn counted<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        count: u32,
        to: Option<u64>,
    ) -> Option<Reached> {
        let (mut left, mut at, mut blocks) = (count, self.ip, Vec::new());
        let reached = loop {
            let id = graph.at(at, self.tick).ok()?;
            let block = graph.block(id);
            let is_branch = self.is_waypoint(block.terminator) && !block.terminator.runs_on();
            blocks.push(id);
            if left < block.instructions || left == block.instructions && !is_branch {
                break Reached::Position;
            }
            left -= block.instructions;
            if is_branch {
                // What runs after a branch is not known.
                break Some(Reached::Unknown(block.start)).filter(|_| left == 0)?;
            }
            at = block.end;
        };
        let last = blocks.pop()?;
        let count = match reached {
            Reached::Position => left,
            Reached::Unknown(_) => graph.block(last).instructions,
        } as usize;
        let lengths = &graph.lengths(graph.block(last))[..count];
        let end = at.wrapping_add(lengths.iter().map(|&length| u64::from(length)).sum());
        if reached == Reached::Position && to.is_some_and(|to| to != end) {
            // A branch among them was taken.
            return None;
        }
        for id in blocks {
            self.report(graph, id, graph.block(id).instructions as usize, false, sink);
        }
        if count > 0 {
            self.report(graph, last, count, false, sink);
        }
        self.set(end, self.isa);
        Some(reached)
    }

    /// Walks to `ip`.
    ///
    /// # Errors
    /// A waypoint comes before, or the code can't be read. Nothing is reported in the first case; in the second what
    /// comes before the unreadable code.
    pub(super) fn reach<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        ip: u64,
        between: Between,
    ) -> Result<(), Trouble> {
        let blocks = self.blocks_before(graph, ip, between)?;
        for _ in 0..blocks {
            let Ok(id) = self.current_block(graph) else { break };
            let terminator = graph.block(id).terminator;
            // Without a condition of its own, a branch that is not taken is one of A32 or T32 whose condition failed.
            let needs_condition = !terminator.runs_on() && terminator != Terminator::Conditional;
            let condition_failed = needs_condition && self.is_waypoint(terminator);
            self.pass(graph, sink, id, NOT_TAKEN, condition_failed);
        }
        if self.ip == ip {
            return Ok(());
        }
        let id = self.current_block(graph)?;
        let block = graph.block(id);
        let expected = Expected::Reach(ip);
        let inside = instructions_before(graph, block, ip)
            .ok_or(Trouble::Contradiction { at: block.start, expected })?;
        self.report(graph, id, inside, HELD, sink);
        self.set(ip, self.isa);
        Ok(())
    }

    /// Returns the number of blocks that end before `ip` or at it, or up to code that can't be read.
    fn blocks_before<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        ip: u64,
        between: Between,
    ) -> Result<u32, Trouble> {
        let (mut at, mut block, mut blocks) = (self.ip, self.block, 0);
        while at != ip {
            let found = match block {
                Some(id) => Ok(id),
                None => graph.at(at, self.tick),
            };
            // Code before unreadable code has run, as there is no other path.
            let Ok(id) = found else { return Ok(blocks) };
            let (start, end, terminator) = {
                let block = graph.block(id);
                (block.start, block.end, block.terminator)
            };
            let contradiction = Trouble::Contradiction { at: start, expected: Expected::Reach(ip) };
            if (start..end).contains(&ip) {
                let inside = instructions_before(graph, graph.block(id), ip);
                return inside.map(|_| blocks).ok_or(contradiction);
            }
            let stops = match between {
                Between::NoWaypoint => self.is_waypoint(terminator),
                // In A32 and T32 any branch may be conditional.
                Between::BranchesNotTaken => {
                    let may_run_on = terminator.runs_on() || terminator == Terminator::Conditional;
                    !may_run_on && self.isa == Isa::A64
                }
            };
            // Code without branches that are taken only leads to higher addresses.
            if stops || end > ip || end <= at {
                return Err(contradiction);
            }
            at = end;
            block = graph.follow(id, NOT_TAKEN, self.tick).ok();
            blocks += 1;
        }
        Ok(blocks)
    }
}
