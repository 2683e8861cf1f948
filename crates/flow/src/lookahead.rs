//! Walks ahead along code that needs no packet, without reports.

use std::ops::Range;

use hodo_code::{Block, BlockId, Graph, Labels, Role, Terminator};

use crate::Trouble;

/// Number of blocks without a packet after which a walk checks for a loop.
pub const SUSPICIOUS: u32 = 64;

/// Brent's cycle detection: compares with one remembered block, which it replaces at growing distances.
#[derive(Clone, Debug)]
pub struct CircleGuard {
    steps: u32,
    limit: u32,
    remembered: Option<BlockId>,
}

impl CircleGuard {
    /// Starts after `steps` blocks, fewer than [`SUSPICIOUS`].
    #[inline]
    pub fn after(steps: u32) -> CircleGuard {
        CircleGuard { steps, limit: SUSPICIOUS, remembered: None }
    }

    /// Returns whether the walk has visited `block` before, with only the position changing.
    #[inline]
    pub fn is_circle(&mut self, block: BlockId) -> bool {
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
#[derive(Clone, Debug)]
pub struct Lookahead {
    /// Address of the next instruction.
    pub ip: u64,
    /// The block at `ip`, once looked up.
    block: Option<BlockId>,
    /// The tick whose code is walked over.
    tick: u64,
    /// Number of blocks passed.
    pub steps: u32,
    guard: CircleGuard,
}

impl Lookahead {
    /// Starts at `ip`, whose block may be known.
    #[inline]
    pub fn new(ip: u64, block: Option<BlockId>, tick: u64) -> Lookahead {
        Lookahead { ip, block, tick, steps: 0, guard: CircleGuard::after(0) }
    }

    /// Returns the block at the current position.
    ///
    /// # Errors
    /// Its code can't be read.
    pub fn current_block<L: Labels>(&mut self, graph: &mut Graph<'_, L>) -> Result<BlockId, Trouble> {
        match self.block {
            Some(id) => Ok(id),
            None => graph.at(self.ip, self.tick).map_err(Trouble::Code),
        }
    }

    /// Passes block `id`; returns `false` if its end needs a packet.
    ///
    /// # Errors
    /// The code loops.
    pub fn step<L: Labels>(&mut self, graph: &mut Graph<'_, L>, id: BlockId) -> Result<bool, Trouble> {
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
        self.block = graph.follow(id, !runs_on, self.tick).ok();
        self.steps += 1;
        Ok(true)
    }

    /// Continues to the first `wanted` instruction and returns its addresses, if there is one before the next decision
    /// or at it.
    pub fn find<L: Labels>(&mut self, graph: &mut Graph<'_, L>, wanted: Role) -> Option<Range<u64>> {
        loop {
            let id = self.current_block(graph).ok()?;
            if let Some(found) = find_inside(graph, id, self.tick, wanted) {
                return Some(found);
            }
            if !self.step(graph, id).ok()? {
                return None;
            }
        }
    }
}

/// Returns the addresses of the first `wanted` instruction of a block.
fn find_inside<L: Labels>(graph: &Graph<'_, L>, id: BlockId, tick: u64, wanted: Role) -> Option<Range<u64>> {
    let block = graph.block(id);
    let mut address = block.start;
    graph.lengths(block).iter().find_map(|&length| {
        let start = address;
        address += u64::from(length);
        let read = graph.snapshot(tick).instruction(start).ok()?;
        (read.instruction.role() == wanted).then_some(start..address)
    })
}

/// Returns the number of instructions of `block` before `ip`, or `None` if none begins there.
pub fn instructions_before<L: Labels>(graph: &Graph<'_, L>, block: &Block, ip: u64) -> Option<usize> {
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
