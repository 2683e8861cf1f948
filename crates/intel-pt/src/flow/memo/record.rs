//! Walks once over what a packet proves, and writes down what it meets.

use hodo_code::{Block, BlockId, Graph, Labels, Terminator};

use super::{
    super::{Event, Executed, Sink, Trouble, walk::Walk},
    table::{Next, Step, Transfer},
};
use crate::packet::Tnt;

/// Most steps of a packet that is remembered, and most blocks.
const LONGEST: [usize; 2] = [256, 1 << 12];

/// Most calls within a packet that is remembered: so few that a stack of returns remembers one from before.
const DEEPEST: u32 = 48;

/// Blocks that ran, joined to steps.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) steps: Vec<Step>,
    blocks: usize,
    /// Calls that did not return.
    depth: u32,
    /// The packet is not one to remember: code on the way is not the same at all times, or there is too much.
    unfit: bool,
}

impl Sink for Recorder {
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        self.blocks += 1;
        let transfer = transfer(block);
        match transfer {
            Transfer::Call(_) => self.depth += 1,
            Transfer::Return => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.unfit |= !is_lasting(block) || self.depth > DEEPEST || self.blocks > LONGEST[1];
        let joins = |step: &&mut Step| {
            let [one, other] = [step.label, block.label].map(|label| (label.module, label.function));
            step.transfer == Transfer::None && one == other
        };
        let room = self.steps.len() < LONGEST[0];
        match self.steps.last_mut().filter(joins) {
            Some(step) => {
                step.instructions = step.instructions.saturating_add(block.instructions);
                step.transfer = transfer;
            }
            None if room => {
                let Block { start, label, instructions, .. } = *block;
                self.steps.push(Step { start, label, instructions, transfer, back: u32::MAX });
            }
            None => self.unfit = true,
        }
    }

    fn event(&mut self, _: Event) {}
}

/// What the end of a block does to the call stack.
fn transfer(block: &Block) -> Transfer {
    match block.terminator {
        Terminator::Call | Terminator::IndirectCall if block.is_call() => Transfer::Call(block.end),
        Terminator::Return => Transfer::Return,
        Terminator::IndirectJump => Transfer::IndirectJump,
        _ => Transfer::None,
    }
}

/// Whether code is the same at all times.
pub(super) fn is_lasting(block: &Block) -> bool {
    block.valid == (0..u64::MAX)
}

impl Recorder {
    /// Where a TNT leads from where `walk` stands, which has no calls to return from.
    pub(super) fn tnt<L: Labels>(&mut self, mut walk: Walk, graph: &mut Graph<'_, L>, tnt: Tnt) -> Next {
        self.reset();
        let mut left = tnt.count;
        while left > 0 {
            match walk.branch(graph, self, tnt.bits >> (left - 1) & 1 == 1) {
                Ok(true) => left -= 1,
                Err(Trouble::EmptyReturnStack { .. }) => {
                    let Some(id) = walk.block() else { return Next::Untold };
                    walk.report(graph, id, self);
                    return self.end(graph, Some(Next::Return(left - 1)));
                }
                // A TIP that was deferred, or one of many kinds of trouble.
                Ok(false) | Err(_) => return Next::Untold,
            }
        }
        self.end_at(walk, graph)
    }

    /// Where a TIP with the address `to` leads.
    pub(super) fn tip<L: Labels>(&mut self, mut walk: Walk, graph: &mut Graph<'_, L>, to: u64) -> Next {
        self.reset();
        match walk.indirect(graph, self, to) {
            Ok(()) => self.end_at(walk, graph),
            Err(_) => Next::Untold,
        }
    }

    fn reset(&mut self) {
        self.steps.clear();
        (self.blocks, self.depth, self.unfit) = (0, 0, false);
    }

    fn end_at<L: Labels>(&mut self, mut walk: Walk, graph: &mut Graph<'_, L>) -> Next {
        let next = walk.here(graph).ok().filter(|&id| is_lasting(graph.block(id)));
        self.end(graph, next.map(Next::Block))
    }

    fn end<L: Labels>(&mut self, graph: &mut Graph<'_, L>, next: Option<Next>) -> Next {
        if self.unfit {
            return Next::Untold;
        }
        for step in &mut self.steps {
            if let Transfer::Call(back) = step.transfer {
                // Any tick will do for what is the same at all times.
                step.back = graph.at(back, 0).unwrap_or(BlockId(u32::MAX)).0;
            }
        }
        next.unwrap_or(Next::Untold)
    }
}
