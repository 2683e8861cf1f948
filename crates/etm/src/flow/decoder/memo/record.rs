//! Walks over packets once and records what ran.

use hodo_code::{Graph, Isa, Labels, Terminator};
use hodo_flow::{Event, Executed, Sink, Step};

use super::{
    super::super::walk::{Reached, Return, Walk},
    table::State,
};
use crate::packet::PlainPackets;

/// Maximum blocks of a recorded walk.
const BLOCKS: usize = 1 << 12;

/// Records the blocks of a walk, joined into steps.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) steps: Vec<Step>,
    blocks: usize,
    /// Whether each step is a single block.
    single: bool,
    /// Whether the walk can't be recorded: code changes over time, or a limit is exceeded.
    unfit: bool,
}

impl Sink for Recorder {
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        self.blocks += 1;
        // Sinks must see where a far transfer goes.
        self.unfit |= block.terminator == Terminator::Far;
        self.unfit |= !executed.provenance().is_lasting() || self.blocks > BLOCKS;
        let step = Step::of_block(executed.id, block);
        let joins = |last: &mut Step| !self.single && last.join(&step);
        if !self.unfit && !self.steps.last_mut().is_some_and(joins) {
            self.steps.push(step);
        }
    }

    fn event(&mut self, _: Event) {}
}

impl Recorder {
    /// Walks over packets from a position, which is that of `state`. Returns the position after them; `None` if what they do
    /// can't be recorded.
    pub(super) fn walk<L: Labels>(
        &mut self,
        walk: &mut Walk,
        graph: &mut Graph<'_, L>,
        state: State,
        packets: &PlainPackets,
        single: bool,
    ) -> Option<State> {
        self.steps.clear();
        (self.blocks, self.single, self.unfit) = (0, single, false);
        let mut branch = state.is_after_indirect.then_some(state.block);
        let mut atoms = packets.atoms;
        while atoms > 1 {
            if branch.take().is_some() {
                let Return { address, isa } = walk.returns.pop().filter(|_| walk.remembers_calls)?;
                walk.set(address, isa);
            }
            if let Reached::Unknown(at) = walk.atom(graph, self, atoms & 1 == 1).ok()? {
                branch = Some(graph.at(at, walk.tick).ok()?);
            }
            if self.unfit {
                return None;
            }
            atoms >>= 1;
        }
        if let Some(address) = packets.address {
            match branch.take() {
                Some(_) => walk.set(address, Isa::A64),
                None if walk.ip == address => {}
                None => return None,
            }
        }
        let block = match branch {
            Some(block) => block,
            None => walk.current_block(graph).ok()?,
        };
        // Calls are chained by the caller.
        let is_lasting = graph.provenance(block).is_lasting();
        is_lasting.then_some(State { block, is_after_indirect: branch.is_some(), ..state })
    }
}
