//! From one packet to the next over the code.

use hodo_code::{BlockId, Graph, Labels, Terminator};

use super::{Executed, Expected, Sink, Trouble};
use crate::return_stack::ReturnStack;

/// Where execution stands, and the calls that a compressed return may go back to.
///
/// Every step reports the blocks that it proves and moves on; what it can't follow it reports as
/// [`Trouble`], with the position unchanged since the last decision.
#[derive(Debug)]
pub(super) struct Walk {
    /// Address of the next instruction.
    pub(super) ip: u64,
    /// The block at `ip`, once it was looked up.
    block: Option<BlockId>,
    pub(super) returns: ReturnStack,
    /// Tick at which the code is looked at.
    pub(super) at: u64,
    /// Return compression is off: no return takes a TNT bit.
    no_return_compression: bool,
}

/// Blocks between two packets after which a walk looks whether it runs in a circle.
const SUSPICIOUS: u32 = 64;

/// Brent's cycle finder: remembers one block and compares, at growing distances.
struct CircleGuard {
    steps: u32,
    limit: u32,
    remembered: Option<BlockId>,
}

impl CircleGuard {
    fn new() -> CircleGuard {
        CircleGuard { steps: 0, limit: SUSPICIOUS, remembered: None }
    }

    /// Whether `block` was met before on a walk on which nothing but the position changes.
    #[inline]
    fn is_circle(&mut self, block: BlockId) -> bool {
        if self.remembered == Some(block) {
            return true;
        }
        self.steps += 1;
        if self.steps == self.limit {
            self.remembered = Some(block);
            self.limit = self.limit.saturating_mul(2);
        }
        false
    }
}

impl Walk {
    pub(super) fn new(no_return_compression: bool) -> Walk {
        Walk { ip: 0, block: None, returns: ReturnStack::default(), at: 0, no_return_compression }
    }

    /// Execution goes on at `ip`.
    #[inline]
    pub(super) fn go(&mut self, ip: u64) {
        self.ip = ip;
        self.block = None;
    }

    /// The code is that of another program or execution mode from now on.
    pub(super) fn forget_block(&mut self) {
        self.block = None;
    }

    /// Looks at the code as it was at another tick from now on.
    #[inline]
    pub(super) fn look_at<L: Labels>(&mut self, graph: &Graph<'_, L>, at: u64) {
        self.at = at;
        self.block = self.block.filter(|&id| graph.block(id).valid.contains(&at));
    }

    #[inline]
    fn here<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        match self.block {
            Some(id) => Ok(id),
            None => {
                let id = graph.at(self.ip, self.at).map_err(Trouble::Code)?;
                self.block = Some(id);
                Ok(id)
            }
        }
    }

    #[inline]
    fn report<L: Labels>(&self, graph: &Graph<'_, L>, id: BlockId, sink: &mut impl Sink) {
        let block = graph.block(id);
        sink.executed(Executed { block, lengths: graph.lengths(block), code: graph.snapshot(self.at) });
    }

    /// Goes to the block at the end of `id`, or at its direct target.
    #[inline]
    fn go_on<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId, taken: bool) {
        let block = graph.block(id);
        self.ip = if taken { block.target } else { block.end };
        // An unreadable successor is trouble only once a packet proves that it ran.
        self.block = if taken { graph.target(id, self.at) } else { graph.next(id, self.at) }.ok();
    }

    /// Over blocks that need no packet, up to one that does; that one is not reported.
    #[inline]
    fn seek_decision<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
    ) -> Result<BlockId, Trouble> {
        let mut guard = CircleGuard::new();
        loop {
            let id = self.here(graph)?;
            if !self.step(graph, sink, id) {
                return Ok(id);
            }
            if guard.is_circle(id) {
                return Err(Trouble::EndlessLoop { at: self.ip });
            }
        }
    }

    /// Over the block `id`, unless its end needs a packet.
    #[inline]
    fn step<L: Labels>(&mut self, graph: &mut Graph<'_, L>, sink: &mut impl Sink, id: BlockId) -> bool {
        match graph.block(id).terminator {
            Terminator::None => self.pass(graph, sink, id, false),
            Terminator::Jump => self.pass(graph, sink, id, true),
            Terminator::Call => {
                self.remember_call(graph, id);
                self.pass(graph, sink, id, true);
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn pass<L: Labels>(&mut self, graph: &mut Graph<'_, L>, sink: &mut impl Sink, id: BlockId, taken: bool) {
        self.report(graph, id, sink);
        self.go_on(graph, id, taken);
    }

    #[inline]
    fn remember_call<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) {
        let block = graph.block(id);
        if block.is_call() {
            self.returns.push(block.end);
        }
    }

    /// What a branch that was not compressed does to the calls that returns may go back to. A return
    /// uses up its call even where it does not go there.
    fn follow_returns<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) {
        match graph.block(id).terminator {
            Terminator::Return => {
                self.returns.pop();
            }
            _ => self.remember_call(graph, id),
        }
    }

    /// Takes a TNT bit. `Ok(false)` where the next branch is not one that takes it, but an indirect
    /// one: its TIP was deferred and comes first (SDM, "Deferred TIPs").
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
                self.pass(graph, sink, id, taken);
                Ok(true)
            }
            Terminator::Return if taken && !self.no_return_compression => {
                let at = block.end;
                let to = self.returns.pop().ok_or(Trouble::EmptyReturnStack { at })?;
                self.report(graph, id, sink);
                self.go(to);
                Ok(true)
            }
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Far => Ok(false),
            Terminator::Return if self.no_return_compression => Ok(false),
            _ => Err(Trouble::Contradiction { at: block.start, expected: Expected::Conditional }),
        }
    }

    /// Takes a TIP: up to the next indirect branch, and over it.
    pub(super) fn indirect<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        to: u64,
    ) -> Result<(), Trouble> {
        let id = self.seek_decision(graph, sink)?;
        let block = graph.block(id);
        if block.terminator == Terminator::Conditional {
            return Err(Trouble::Contradiction { at: block.start, expected: Expected::Indirect });
        }
        self.follow_returns(graph, id);
        self.report(graph, id, sink);
        self.go(to);
        Ok(())
    }

    /// Up to `ip`, without a branch that needs a packet.
    pub(super) fn reach<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        ip: u64,
    ) -> Result<(), Trouble> {
        let mut guard = CircleGuard::new();
        while self.ip != ip {
            let id = self.here(graph)?;
            let block = graph.block(id);
            if (block.start..block.end).contains(&ip) {
                return self.reach_inside(graph, sink, id, ip);
            }
            let at = block.start;
            if !self.step(graph, sink, id) {
                return Err(Trouble::Contradiction { at, expected: Expected::Reach(ip) });
            }
            if guard.is_circle(id) {
                return Err(Trouble::EndlessLoop { at: self.ip });
            }
        }
        Ok(())
    }

    fn reach_inside<L: Labels>(
        &mut self,
        graph: &Graph<'_, L>,
        sink: &mut impl Sink,
        id: BlockId,
        ip: u64,
    ) -> Result<(), Trouble> {
        let block = graph.block(id);
        let lengths = graph.lengths(block);
        let mut address = block.start;
        let before = lengths.iter().take_while(|&&length| {
            let runs = address < ip;
            address += if runs { u64::from(length) } else { 0 };
            runs
        });
        let count = before.count();
        if address != ip {
            return Err(Trouble::Contradiction { at: block.start, expected: Expected::Reach(ip) });
        }
        sink.executed(Executed { block, lengths: &lengths[..count], code: graph.snapshot(self.at) });
        self.go(ip);
        Ok(())
    }

    /// Takes a TIP.PGD without a FUP: up to the branch that turned tracing off, and over it. `to` is
    /// where it went, which is outside the traced addresses, where the packet says so.
    pub(super) fn leave<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        to: Option<u64>,
    ) -> Result<(), Trouble> {
        let mut guard = CircleGuard::new();
        loop {
            if to == Some(self.ip) {
                return Ok(());
            }
            let id = self.here(graph)?;
            let block = graph.block(id);
            // Left by running on, into the middle of what is a block to us.
            if let Some(to) = to.filter(|to| (block.start..block.end).contains(to)) {
                return self.reach_inside(graph, sink, id, to);
            }
            if !self.step(graph, sink, id) {
                return self.leave_over(graph, sink, id, to);
            }
            if guard.is_circle(id) {
                return Err(Trouble::EndlessLoop { at: self.ip });
            }
        }
    }

    /// Over the branch that turned tracing off.
    fn leave_over<L: Labels>(
        &mut self,
        graph: &Graph<'_, L>,
        sink: &mut impl Sink,
        id: BlockId,
        to: Option<u64>,
    ) -> Result<(), Trouble> {
        let block = graph.block(id);
        let goes_there = to.is_some_and(|to| to == block.target || to == block.end);
        if block.terminator == Terminator::Conditional && !goes_there {
            return Err(Trouble::Contradiction { at: block.start, expected: Expected::Indirect });
        }
        self.follow_returns(graph, id);
        self.report(graph, id, sink);
        Ok(())
    }
}
