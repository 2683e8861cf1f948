//! Looks ahead along code that needs no packet, and reports nothing.

use hodo_code::{Block, BlockId, Graph, Labels, Terminator};
use iced_x86::Instruction;

use super::Trouble;

/// Blocks between two packets after which a walk looks whether it runs in a circle.
pub(super) const SUSPICIOUS: u32 = 64;

/// Brent's cycle finder: remembers one block and compares, at growing distances.
pub(super) struct CircleGuard {
    steps: u32,
    limit: u32,
    remembered: Option<BlockId>,
}

impl CircleGuard {
    /// After so many steps, fewer than [`SUSPICIOUS`].
    pub(super) fn after(steps: u32) -> CircleGuard {
        CircleGuard { steps, limit: SUSPICIOUS, remembered: None }
    }

    /// Whether `block` was met before on a walk on which nothing but the position changes.
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

/// Where the way that needs no packet would lead.
pub(super) struct Lookahead {
    /// Address of the next instruction.
    pub(super) ip: u64,
    /// The block at `ip`, once it was looked up.
    block: Option<BlockId>,
    /// Tick at which the code is looked at.
    at: u64,
    /// Blocks that were passed.
    pub(super) steps: u32,
    guard: CircleGuard,
}

impl Lookahead {
    pub(super) fn new(ip: u64, block: Option<BlockId>, at: u64) -> Lookahead {
        Lookahead { ip, block, at, steps: 0, guard: CircleGuard::after(0) }
    }

    /// The block that it stands before.
    pub(super) fn here<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        match self.block {
            Some(id) => Ok(id),
            None => graph.at(self.ip, self.at).map_err(Trouble::Code),
        }
    }

    /// Over the block `id`, unless its end needs a packet: then `false`.
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

    /// Goes on to the first instruction that is `wanted`: its address and length, where there is one
    /// before the next decision, or at it.
    pub(super) fn find<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        wanted: impl Fn(&Instruction) -> bool,
    ) -> Option<(u64, u64)> {
        loop {
            let id = self.here(graph).ok()?;
            if let Some(found) = find_inside(graph, id, self.at, &wanted) {
                return Some(found);
            }
            if !self.step(graph, id).ok()? {
                return None;
            }
        }
    }
}

/// The first instruction of a block that is `wanted`: its address and length.
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
        let (instruction, ..) = graph.snapshot(at).instruction(here).ok()?;
        wanted(&instruction).then_some((here, u64::from(length)))
    })
}

/// How many instructions of `block` stand before `ip`; `None` where none begins there.
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
