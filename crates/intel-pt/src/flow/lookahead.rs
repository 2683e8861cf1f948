//! Walks ahead along code that needs no packet, without reports.

use hodo_code::{Block, BlockId, Graph, Labels, Terminator};
use iced_x86::Instruction;

use super::Trouble;

/// Number of blocks without a packet after which a walk checks for a loop.
pub(super) const SUSPICIOUS: u32 = 64;

/// Brent's cycle detection: compares with one remembered block, which it replaces at growing distances.
pub(super) struct CircleGuard {
    steps: u32,
    limit: u32,
    remembered: Option<BlockId>,
}

impl CircleGuard {
    /// Starts after `steps` blocks, fewer than [`SUSPICIOUS`].
    pub(super) fn after(steps: u32) -> CircleGuard {
        CircleGuard { steps, limit: SUSPICIOUS, remembered: None }
    }

    /// Returns whether the walk has visited `block` before, with only the position changing.
    #[inline]
    pub(super) fn is_circle(&mut self, block: BlockId) -> bool {
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

/// A walk ahead along code that needs no packet.
pub(super) struct Lookahead {
    /// Address of the next instruction.
    pub(super) ip: u64,
    /// The block at `ip`, once looked up.
    block: Option<BlockId>,
    /// Tick of the code to walk over.
    at: u64,
    /// Number of blocks passed.
    pub(super) steps: u32,
    guard: CircleGuard,
}

impl Lookahead {
    pub(super) fn new(ip: u64, block: Option<BlockId>, at: u64) -> Lookahead {
        Lookahead { ip, block, at, steps: 0, guard: CircleGuard::after(0) }
    }

    /// Returns the block at the current position.
    pub(super) fn current_block<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        match self.block {
            Some(id) => Ok(id),
            None => graph.at(self.ip, self.at).map_err(Trouble::Code),
        }
    }

    /// Passes block `id`; returns `false` if its end needs a packet.
    pub(super) fn step<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId) -> Result<bool, Trouble> {
        let block = graph.block(id);
        let (to, runs_on) = match block.terminator {
            Terminator::None => (block.end, true),
            Terminator::Jump | Terminator::Call => (block.target, false),
            _ => return Ok(false),
        };
        if self.guard.is_circle(id) {
            return Err(Trouble::EndlessLoop { at: self.ip });
        }
        self.ip = to;
        self.block = graph.follow(id, !runs_on, self.at).ok();
        self.steps += 1;
        Ok(true)
    }

    /// Continues to the first `wanted` instruction and returns its address and length, if there is one before the
    /// next decision or at it.
    pub(super) fn find<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        wanted: impl Fn(&Instruction) -> bool,
    ) -> Option<(u64, u64)> {
        loop {
            let id = self.current_block(graph).ok()?;
            if let Some(found) = find_inside(graph, id, self.at, &wanted) {
                return Some(found);
            }
            if !self.step(graph, id).ok()? {
                return None;
            }
        }
    }
}

/// Returns address and length of the first `wanted` instruction of a block.
fn find_inside<L: Labels>(
    graph: &Graph<'_, L>,
    id: BlockId,
    at: u64,
    wanted: impl Fn(&Instruction) -> bool,
) -> Option<(u64, u64)> {
    let block = graph.block(id);
    let mut address = block.start;
    graph.lengths(block).iter().find_map(|&length| {
        let here = address;
        address += u64::from(length);
        let read = graph.snapshot(at).instruction(here).ok()?;
        wanted(&read.instruction).then_some((here, u64::from(length)))
    })
}

/// Returns the number of instructions of `block` before `ip`, or `None` if none begins there.
pub(super) fn instructions_before<L: Labels>(graph: &Graph<'_, L>, block: &Block, ip: u64) -> Option<usize> {
    let mut address = block.start;
    let mut count = 0;
    for &length in graph.lengths(block) {
        if address >= ip {
            break;
        }
        address += u64::from(length);
        count += 1;
    }
    (address == ip).then_some(count)
}
