//! Walks over the code from one packet to the next.

use hodo_code::{BlockId, Graph, Labels, NOT_TAKEN, TAKEN, Terminator};
use hodo_flow::{Executed, Expected, Sink, Trouble};
use hodo_isa::riscv::Set;

use super::{
    code::{end_of, is_branch, last_address, sequential_target, upper_at_end},
    outcomes::Outcomes,
};
use crate::modes::{Calls, Predictor, TargetCache};

/// Blocks without an outcome after which a walk checks for a loop.
const SUSPICIOUS: u32 = 64;

/// Where a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// At the branch whose outcome is the last one.
    LastBranch,
    /// At a reported address.
    Address(Address),
    /// At the address of a synchronization packet.
    Synchronization {
        /// The address.
        address: u64,
        /// Whether the privilege level changed, so that a return from a trap leads there.
        is_changed: bool,
    },
    /// At this address, by the next uninferable jump.
    Jump(u64),
}

/// A reported address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) address: u64,
    /// How it may be reached.
    pub(super) by: By,
    /// The depth of calls there, or of the return that failed.
    pub(super) depth: Option<usize>,
}

/// How an address may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By an uninferable jump; or without one, if nothing contradicts that later.
    Any,
    /// Only by an uninferable jump.
    Jump,
    /// Only without one.
    Path,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// By an uninferable jump.
    ByJump,
    /// By the code.
    ByPath,
}

/// What a walk keeps besides its position.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) outcomes: Outcomes,
    pub(super) predictor: Predictor,
    pub(super) cache: TargetCache,
    pub(super) calls: Calls,
    /// Whether returns to the address on the stack are not reported.
    pub(super) implicit_return: bool,
    /// Whether returns are compared with the stack: otherwise the encoder counts calls only.
    pub(super) compares_returns: bool,
    /// Whether jumps whose target the instruction before loads are not reported.
    pub(super) sijump: bool,
}

/// The position of a walk.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    set: Set,
    /// Address of the first instruction that is not reported to the sink.
    pub(super) ip: u64,
    /// The block at `ip`, once looked up.
    block: Option<BlockId>,
    /// The end of the instructions of that block that are known to have retired.
    retired: u64,
    /// Register and value that the instruction before `ip` set, if the code determines it.
    upper: Option<(u8, u64)>,
    /// The tick whose code is walked over.
    tick: u64,
    /// Whether the walk only tests if a path exists.
    lookahead: Lookahead,
}

/// Whether a walk only tests if a path exists, and which ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookahead {
    /// It reports.
    No,
    /// Paths that may end by a jump.
    Any,
    /// Paths without uninferable jumps.
    WithoutJumps,
}

/// Detects walks that return to the same state (Brent's algorithm).
struct Guard {
    steps: u32,
    limit: u32,
    remembered: Option<(BlockId, Calls)>,
}

impl Guard {
    fn new() -> Guard {
        Guard { steps: 0, limit: SUSPICIOUS, remembered: None }
    }

    #[inline]
    fn is_circle(&mut self, block: BlockId, calls: &Calls) -> bool {
        if self.remembered.as_ref().is_some_and(|(known, stack)| *known == block && stack == calls) {
            return true;
        }
        self.steps += 1;
        if self.steps == self.limit {
            self.remembered = Some((block, calls.clone()));
            self.limit = self.limit.saturating_mul(2);
        }
        false
    }
}

/// What passing the end of a block did.
enum Passed {
    /// The walk is at the next block.
    On,
    /// The walk is at the goal, by an uninferable jump.
    Jumped,
}

impl Walk {
    pub(super) fn new(set: Set) -> Walk {
        Walk { set, ip: 0, block: None, retired: 0, upper: None, tick: 0, lookahead: Lookahead::No }
    }

    /// Continues at an instruction that retired, whatever came before.
    pub(super) fn begin<L: Labels>(&mut self, graph: &mut Graph<'_, L>, address: u64) -> Result<(), Trouble> {
        self.enter(address, None);
        self.upper = None;
        let id = self.current_block(graph)?;
        let length = graph.lengths(graph.block(id)).first().copied().unwrap_or(0);
        self.retired = address.wrapping_add(length.into());
        Ok(())
    }

    /// Returns the tick whose code is walked over.
    pub(super) fn tick(&self) -> u64 {
        self.tick
    }

    #[inline]
    fn enter(&mut self, address: u64, block: Option<BlockId>) {
        (self.ip, self.block, self.retired) = (address, block, address);
    }

    /// Selects the code of another tick.
    pub(super) fn set_tick(&mut self, tick: u64) {
        if self.tick != tick {
            self.tick = tick;
            self.forget_block();
        }
    }

    /// Looks up the block at the position again, as another program runs.
    pub(super) fn forget_block(&mut self) {
        self.block = None;
    }

    #[inline]
    fn current_block<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        match self.block {
            Some(id) => Ok(id),
            None => {
                let id = graph.at(self.ip, self.tick).map_err(Trouble::Code)?;
                self.block = Some(id);
                Ok(id)
            }
        }
    }

    /// Reports the first `count` instructions of a block.
    #[inline]
    fn report<L: Labels>(&self, graph: &Graph<'_, L>, id: BlockId, count: usize, sink: &mut impl Sink) {
        let (block, code) = (graph.block(id), graph.snapshot(self.tick));
        let (bytes, provenances) = (graph.bytes(), graph.provenances());
        let lengths = &graph.lengths(block)[..count];
        sink.executed(Executed { block, lengths, id, bytes, provenances, code, condition_failed: false });
    }

    /// Walks to the goal. On trouble the position is where the walk could not go on.
    pub(super) fn advance<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        memory: &mut Memory,
        goal: Goal,
    ) -> Result<Reached, Trouble> {
        let mut guard = Guard::new();
        loop {
            let id = self.current_block(graph)?;
            let left = memory.outcomes.left();
            if left <= 1 && self.stops_in(graph, id, memory, goal) {
                return Ok(Reached::ByPath);
            }
            match self.pass(graph, sink, memory, id, goal)? {
                Passed::Jumped => return Ok(Reached::ByJump),
                Passed::On if memory.outcomes.left() < left => guard = Guard::new(),
                Passed::On => {
                    if guard.is_circle(id, &memory.calls) {
                        return Err(Trouble::EndlessLoop { at: self.ip });
                    }
                }
            }
        }
    }

    /// Whether the goal is in the rest of the block; then the walk stops there.
    fn stops_in<L: Labels>(
        &mut self,
        graph: &Graph<'_, L>,
        id: BlockId,
        memory: &mut Memory,
        goal: Goal,
    ) -> bool {
        let block = graph.block(id);
        let last = match block.terminator {
            Terminator::Conditional => Some(last_address(graph, id)),
            _ => None,
        };
        let address = match goal {
            Goal::LastBranch => match last {
                Some(last) => last,
                None => return false,
            },
            Goal::Address(Address { address, by, depth }) => {
                let is_depth = depth.is_none_or(|depth| depth == memory.calls.depth());
                if by == By::Jump || !is_depth {
                    return false;
                }
                address
            }
            Goal::Synchronization { address, is_changed: false } => address,
            Goal::Synchronization { .. } | Goal::Jump(_) => return false,
        };
        let pending = u64::from(last == Some(address));
        if address < self.retired || address >= block.end || memory.outcomes.left() != pending {
            return false;
        }
        let Some(end) = end_of(graph, id, address) else { return false };
        self.retired = end;
        if pending == 1 {
            memory.outcomes.resolve(address, &memory.predictor);
        }
        true
    }

    /// Passes the end of a block.
    #[inline]
    fn pass<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        memory: &mut Memory,
        id: BlockId,
        goal: Goal,
    ) -> Result<Passed, Trouble> {
        let block = graph.block(id);
        let (count, terminator) = (block.instructions as usize, block.terminator);
        let (target, end) = (block.target, block.end);
        let (to, next) = match terminator {
            Terminator::Conditional => {
                let at = last_address(graph, id);
                let taken =
                    memory.outcomes.take(at, &mut memory.predictor).ok_or_else(|| missed(at, goal))?;
                (if taken { target } else { end }, graph.follow(id, taken, self.tick).ok())
            }
            Terminator::None | Terminator::Barrier | Terminator::Wait => {
                (end, graph.follow(id, NOT_TAKEN, self.tick).ok())
            }
            Terminator::Jump => (target, graph.follow(id, TAKEN, self.tick).ok()),
            Terminator::Call => {
                self.push(memory, end);
                (target, graph.follow(id, TAKEN, self.tick).ok())
            }
            Terminator::Trap => return Err(missed(last_address(graph, id), goal)),
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => {
                return self.pass_indirect(graph, sink, memory, id, goal);
            }
        };
        self.report(graph, id, count, sink);
        self.upper = match terminator {
            Terminator::None if memory.sijump => upper_at_end(graph, id, self.set),
            _ => None,
        };
        self.enter(to, next);
        Ok(Passed::On)
    }

    #[inline]
    fn push(&self, memory: &mut Memory, back: u64) {
        if memory.implicit_return {
            memory.calls.push(back);
        }
    }

    /// Passes an indirect jump, whose target the code, the stack or the goal gives.
    fn pass_indirect<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        memory: &mut Memory,
        id: BlockId,
        goal: Goal,
    ) -> Result<Passed, Trouble> {
        let block = graph.block(id);
        let (count, terminator, end) = (block.instructions as usize, block.terminator, block.end);
        let inferred = if memory.sijump { sequential_target(graph, id, self.upper, self.set) } else { None };
        let known = match inferred {
            Some(target) => Some(target),
            None => self.implicit_target(graph, memory, id, goal)?,
        };
        let to = match known {
            Some(target) => target,
            None if self.lookahead == Lookahead::WithoutJumps => return Err(missed(end, goal)),
            None => explicit_target(last_address(graph, id), goal)?,
        };
        let next = graph.indirect_target(id, to, self.tick).ok();
        let reaches_goal = known.is_none() && !matches!(goal, Goal::Jump(_));
        if reaches_goal {
            // Of code that is missing, it is unknown whether a branch is there.
            let pending = match next {
                Some(next) => u64::from(is_branch(graph.block(next))),
                None => memory.outcomes.left().min(1),
            };
            if memory.outcomes.left() != pending {
                let at = last_address(graph, id);
                return Err(Trouble::Contradiction { at, expected: Expected::Conditional });
            }
            memory.outcomes.resolve(to, &memory.predictor);
        }
        if terminator == Terminator::IndirectCall {
            self.push(memory, end);
        }
        self.report(graph, id, count, sink);
        self.upper = None;
        self.enter(to, next);
        if known.is_some() {
            return Ok(Passed::On);
        }
        if !matches!(goal, Goal::Synchronization { .. }) {
            memory.cache.enter(to);
        }
        let id = self.current_block(graph)?;
        let length = graph.lengths(graph.block(id)).first().copied().unwrap_or(0);
        self.retired = to.wrapping_add(length.into());
        Ok(Passed::Jumped)
    }

    /// The target of a return that is not reported.
    fn implicit_target<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        memory: &mut Memory,
        id: BlockId,
        goal: Goal,
    ) -> Result<Option<u64>, Trouble> {
        let (true, Terminator::Return) = (memory.implicit_return, graph.block(id).terminator) else {
            return Ok(None);
        };
        let Some(top) = memory.calls.top() else { return Ok(None) };
        if self.may_fail(graph, memory, goal, top) {
            let is_ambiguous =
                self.lookahead == Lookahead::No && self.could_return_later(graph, memory, goal, top);
            return if is_ambiguous { Err(Trouble::Ambiguous { at: self.ip }) } else { Ok(None) };
        }
        memory.calls.pop();
        Ok(Some(top))
    }

    /// Whether the return at the current block's end can be the one that the goal's packet reports because it failed.
    fn may_fail<L: Labels>(&self, graph: &mut Graph<'_, L>, memory: &Memory, goal: Goal, top: u64) -> bool {
        let address = match goal {
            Goal::Address(Address { address, by, depth: Some(depth) })
                if by != By::Path && depth == memory.calls.depth() =>
            {
                address
            }
            // A synchronization packet replaces the one about the return.
            Goal::Synchronization { address, is_changed: false } => address,
            _ => return false,
        };
        if !memory.compares_returns || address == top {
            return false;
        }
        let left = memory.outcomes.left();
        match graph.at(address, self.tick) {
            Ok(id) => left == u64::from(is_branch(graph.block(id))),
            // Of code that is missing, it is unknown whether a branch is there.
            Err(_) => left <= 1,
        }
    }

    /// Reports the instructions that are known to have retired, and returns what comes after them, if the code
    /// determines it.
    pub(super) fn finish<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        memory: &mut Memory,
    ) -> Option<u64> {
        let id = self.current_block(graph).ok()?;
        let block = graph.block(id);
        let start = block.start;
        if self.retired == start {
            return Some(start);
        }
        let lengths = graph.lengths(block);
        let mut address = start;
        let before = |length: &&u8| {
            address = address.wrapping_add(u64::from(**length));
            address <= self.retired
        };
        let count = lengths.iter().take_while(before).count();
        self.report(graph, id, count, sink);
        self.successor(graph, id, memory)
    }

    /// The address after the instruction that retired last, if the code determines it.
    fn successor<L: Labels>(&self, graph: &Graph<'_, L>, id: BlockId, memory: &mut Memory) -> Option<u64> {
        let block = graph.block(id);
        if self.retired != block.end {
            return Some(self.retired);
        }
        match block.terminator {
            Terminator::None | Terminator::Barrier | Terminator::Wait | Terminator::Trap => Some(block.end),
            Terminator::Jump | Terminator::Call => Some(block.target),
            Terminator::Conditional => {
                let at = last_address(graph, id);
                let taken = memory.outcomes.take(at, &mut memory.predictor)?;
                Some(if taken { block.target } else { block.end })
            }
            Terminator::Return if memory.implicit_return => memory.calls.pop(),
            _ if memory.sijump => sequential_target(graph, id, self.upper, self.set),
            _ => None,
        }
    }

    /// Whether an address may come directly after the instruction that retired last.
    pub(super) fn may_precede<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        memory: &Memory,
        address: u64,
    ) -> bool {
        let Ok(id) = self.current_block(graph) else { return true };
        self.successor(graph, id, &mut memory.clone()).is_none_or(|successor| successor == address)
    }

    /// Reports what comes before an address at which the walk stopped.
    pub(super) fn finish_before<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        address: u64,
    ) {
        let Ok(id) = self.current_block(graph) else { return };
        let mut at = graph.block(id).start;
        let mut count = 0;
        for &length in graph.lengths(graph.block(id)) {
            if at == address {
                break;
            }
            at = at.wrapping_add(length.into());
            count += 1;
        }
        if count > 0 {
            self.report(graph, id, count, sink);
        }
    }

    /// Returns whether the code up to the current position could go on to the goal once more, without further packets:
    /// then the packet does not determine where it stopped.
    pub(super) fn could_go_on<L: Labels>(
        &self,
        graph: &mut Graph<'_, L>,
        memory: &Memory,
        goal: Goal,
    ) -> bool {
        let lookahead = Lookahead::WithoutJumps;
        let (walk, mut memory) = (Walk { lookahead, ..self.clone() }, memory.clone());
        walk.may_reach(graph, &mut memory, goal)
    }

    /// Whether the goal could be reached from here.
    pub(super) fn could_reach<L: Labels>(
        &self,
        graph: &mut Graph<'_, L>,
        memory: &Memory,
        goal: Goal,
    ) -> bool {
        let walk = Walk { lookahead: Lookahead::Any, ..self.clone() };
        walk.may_reach(graph, &mut memory.clone(), goal)
    }

    /// Whether a later return could be the one that the goal's packet reports, if the one at the current block's end goes
    /// where the stack says.
    fn could_return_later<L: Labels>(
        &self,
        graph: &mut Graph<'_, L>,
        memory: &Memory,
        goal: Goal,
        top: u64,
    ) -> bool {
        let (mut walk, mut memory) = (Walk { lookahead: Lookahead::Any, ..self.clone() }, memory.clone());
        memory.calls.pop();
        walk.upper = None;
        walk.enter(top, None);
        walk.may_reach(graph, &mut memory, goal)
    }
}

impl Walk {
    /// Whether a lookahead may reach the goal: it does, or code on the way is missing.
    fn may_reach<L: Labels>(mut self, graph: &mut Graph<'_, L>, memory: &mut Memory, goal: Goal) -> bool {
        matches!(self.advance(graph, &mut Nothing, memory, goal), Ok(_) | Err(Trouble::Code(_)))
    }
}

/// Receives a walk that only tests whether a path exists.
struct Nothing;

impl Sink for Nothing {
    fn executed(&mut self, _: Executed<'_>) {}

    fn event(&mut self, _: hodo_flow::Event) {}
}

/// The trouble of a walk that can't reach its goal behind the instruction at an address.
fn missed(at: u64, goal: Goal) -> Trouble {
    let expected = match goal {
        Goal::LastBranch => Expected::Conditional,
        Goal::Jump(_) | Goal::Address(Address { by: By::Jump, .. }) => Expected::Indirect,
        Goal::Address(Address { address, .. }) | Goal::Synchronization { address, .. } => {
            Expected::Reach(address)
        }
    };
    Trouble::Contradiction { at, expected }
}

/// The target that the goal gives for the uninferable jump at an address.
fn explicit_target(at: u64, goal: Goal) -> Result<u64, Trouble> {
    match goal {
        Goal::Address(Address { address, by: By::Any | By::Jump, .. })
        | Goal::Jump(address)
        | Goal::Synchronization { address, .. } => Ok(address),
        Goal::Address(_) | Goal::LastBranch => Err(missed(at, goal)),
    }
}
