//! Walks over packets once and records the result.

use hodo_code::{Graph, Labels, Terminator, Transfer};
use hodo_flow::Step;

use super::{
    super::super::{Event, Executed, Sink, Trouble, walk::Walk},
    plain_size,
    table::{Key, LONGEST, NO_REGION, Next, Table},
};
use crate::packet::{Tnt, tnt};

/// Maximum blocks of a recorded walk.
const BLOCKS: usize = 1 << 12;

/// Maximum call depth within recorded packets. It leaves space on the return stack for a call from before.
const DEEPEST: u32 = 48;

/// Records the blocks of a walk, joined into steps.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    steps: Vec<Step>,
    blocks: usize,
    /// Number of calls without a return.
    depth: u32,
    /// Whether each step is a single block.
    single: bool,
    /// Whether the walk can't be recorded: code on the transition changes over time, or a limit is exceeded.
    unfit: bool,
}

impl Sink for Recorder {
    fn executed(&mut self, executed: Executed<'_>) {
        let block = executed.block;
        let transfer = block.transfer();
        match transfer {
            Transfer::Call | Transfer::PushOnly => self.depth += 1,
            Transfer::Return => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.blocks += 1;
        // Sinks must see where a far transfer goes.
        self.unfit |= block.terminator == Terminator::Far;
        self.unfit |= !executed.provenance().is_lasting() || self.depth > DEEPEST || self.blocks > BLOCKS;
        let step = Step::new(block, transfer);
        let joins = |last: &mut Step| !self.single && last.join(&step);
        if self.unfit || self.steps.last_mut().is_some_and(joins) {
            return;
        }
        self.steps.push(step);
        self.unfit = self.steps.len() > LONGEST;
    }

    fn event(&mut self, _: Event) {}
}

/// Where a walk over packets ends.
#[derive(Clone, Copy)]
pub(super) struct WalkEnd {
    pub(super) next: Next,
    /// The region of the last IP, or [`NO_REGION`] if no packet changed it.
    pub(super) region: u16,
}

impl Recorder {
    /// Walks over packets up to the first that is not plain, or up to a limit. The return stack of `walk` is empty.
    pub(super) fn walk<L: Labels>(
        &mut self,
        table: &mut Table,
        walk: &Walk,
        graph: &mut Graph<'_, L>,
        key: Key,
        single: bool,
    ) -> WalkEnd {
        self.single = single;
        let mut most = usize::MAX;
        let reached = loop {
            match self.packets(table, walk.clone(), graph, key, most) {
                Ok(reached) => break reached,
                // Repeats the walk up to the packet that is not plain.
                Err(plain) => most = plain,
            }
        };
        for step in &mut self.steps {
            // This code never changes, so any tick is right.
            step.block = graph.at(step.start, 0).unwrap_or(step.block);
        }
        match self.steps.len() {
            1..=LONGEST => reached,
            _ => WalkEnd { next: Next::Unknown, region: NO_REGION },
        }
    }

    /// Returns the steps of the last walk.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Walks over at most `most` packets.
    ///
    /// # Errors
    /// The number of packets before the first one that can't be recorded.
    fn packets<L: Labels>(
        &mut self,
        table: &mut Table,
        mut walk: Walk,
        graph: &mut Graph<'_, L>,
        key: Key,
        most: usize,
    ) -> Result<WalkEnd, usize> {
        self.steps.clear();
        (self.blocks, self.depth, self.unfit) = (0, 0, false);
        walk.go_to_block(graph.block(key.block).start, key.block);
        let mut reached = WalkEnd { next: Next::Unknown, region: NO_REGION };
        let (mut packets, mut region, mut bytes) = (key.packets, key.region, 0);
        for plain in 0..most {
            let opcode = packets as u8;
            let size = plain_size(packets);
            if size == 0 {
                break;
            }
            reached.next = if opcode & 1 == 0 {
                self.branches(&mut walk, graph, tnt(u64::from(opcode >> 1)))
            } else {
                let to = join(table.ip(region), opcode, packets);
                region = table.region(to).ok_or(plain)?;
                reached.region = region;
                let walked = walk.indirect(graph, self, to);
                if walked.is_ok() { end(&mut walk, graph) } else { Next::Unknown }
            };
            if reached.next == Next::Unknown || self.unfit {
                return Err(plain);
            }
            if let Next::Return { branches_left, .. } = reached.next {
                let consumed = if branches_left == 0 { bytes + size } else { bytes };
                reached.next = Next::Return { branches_left, consumed };
                break;
            }
            bytes += size;
            packets = packets.unbounded_shr(8 * u32::from(size));
        }
        if let (Next::Block(block), true) = (reached.next, packets != 0) {
            reached.next = Next::Part(block, bytes);
        }
        Ok(reached)
    }

    /// Returns where a TNT leads.
    fn branches<L: Labels>(&mut self, walk: &mut Walk, graph: &mut Graph<'_, L>, tnt: Tnt) -> Next {
        let mut left = tnt.count;
        while left > 0 {
            match walk.branch(graph, self, tnt.bits >> (left - 1) & 1 == 1) {
                Ok(true) => left -= 1,
                Err(Trouble::EmptyReturnStack { .. }) => {
                    let Some(id) = walk.block() else { return Next::Unknown };
                    walk.report(graph, id, self);
                    // The caller counts the bytes.
                    return Next::Return { branches_left: left - 1, consumed: 0 };
                }
                // A deferred TIP, or trouble.
                Ok(false) | Err(_) => return Next::Unknown,
            }
        }
        end(walk, graph)
    }
}

/// Returns the position of a walk, if its code never changes.
fn end<L: Labels>(walk: &mut Walk, graph: &mut Graph<'_, L>) -> Next {
    let next = walk.current_block(graph).ok().filter(|&id| graph.provenance(id).is_lasting());
    next.map_or(Next::Unknown, Next::Block)
}

/// Returns the last IP after the TIP in the lowest bytes of `packets`.
pub(in crate::flow) fn join(last_ip: u64, opcode: u8, packets: u64) -> u64 {
    let low = packets >> 8;
    match opcode >> 5 {
        1 => last_ip & !0xffff | low & 0xffff,
        2 => last_ip & !0xffff_ffff | low & 0xffff_ffff,
        _ => ((low << 16) as i64 >> 16) as u64,
    }
}
