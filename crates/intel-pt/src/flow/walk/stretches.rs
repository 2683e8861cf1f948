//! From one packet to the next over the code, told as stretches.

use hodo_code::{BlockId, Graph, Labels, NO_OUTCOMES, Pass};

use super::{
    super::{Sink, Stretch},
    LONGEST_STRAIGHT, Walk,
};
use crate::packet::Tnt;

/// How many outcomes of branches are left, in the form that [`Graph::pass_branches`] takes.
fn left(outcomes: u64) -> u8 {
    63 - outcomes.trailing_zeros() as u8
}

impl Walk {
    /// The same for a sink that takes stretches; code that is not the same at all times is left to others.
    #[inline(always)]
    pub(in super::super) fn stretches<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        tnt: Tnt,
    ) -> u8 {
        let Ok(mut id) = self.here(graph) else { return tnt.count };
        // The next bit is the highest one, and one that is set follows the last.
        let mut bits = (tnt.bits << 1 | 1) << (63 - tnt.count);
        let mut straight = 0;
        let mut stretch = Stretch::before(graph, id);
        while bits != NO_OUTCOMES && straight < LONGEST_STRAIGHT {
            let (to, instructions) = graph.pass_branches(id, stretch.function, &mut bits);
            stretch.instructions += instructions;
            (id, straight) = (to, if instructions > 0 { 0 } else { straight });
            if bits == NO_OUTCOMES {
                break;
            }
            let hop = graph.hop(id);
            if hop.function != stretch.function {
                stretch.tell(graph, sink);
                stretch = Stretch::before(graph, id);
            }
            let taken = bits >> 63 == 1;
            let next = match hop.pass {
                Pass::Free | Pass::Branch => {
                    let branches = hop.pass == Pass::Branch;
                    bits <<= u8::from(branches);
                    straight = if branches { 0 } else { straight + 1 };
                    hop.next(taken).or_else(|| graph.follow(id, taken || !branches, self.at).ok())
                }
                Pass::Call => {
                    straight += 1;
                    self.push_return(graph, id);
                    hop.next(true).or_else(|| graph.follow(id, true, self.at).ok())
                }
                Pass::Return if taken && !self.no_return_compression => {
                    let Some(back) = self.returns.pop() else { break };
                    (bits, straight) = (bits << 1, 0);
                    self.go(back.address);
                    let known = back.block.filter(|&id| graph.is_at(id, back.address, self.at));
                    known.or_else(|| graph.at(back.address, self.at).ok())
                }
                _ => break,
            };
            stretch.instructions += u32::from(hop.instructions);
            let Some(next) = next else {
                // Code that can't be read is trouble only once a packet proves that it ran.
                if hop.pass != Pass::Return {
                    let block = graph.block(id);
                    self.go(if hop.pass == Pass::Branch && !taken { block.end } else { block.target });
                }
                stretch.last = (hop.pass > Pass::Branch).then_some(id);
                stretch.tell(graph, sink);
                return left(bits);
            };
            if hop.pass > Pass::Branch {
                stretch.last = Some(id);
                stretch.tell(graph, sink);
                stretch = Stretch::before(graph, next);
            }
            id = next;
        }
        stretch.tell(graph, sink);
        self.stand_before(graph, id);
        self.straight = straight;
        left(bits)
    }

    /// Execution goes on at a block, which may not be the one that is there at this time.
    #[inline]
    fn stand_before<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) {
        self.ip = graph.start(id);
        self.block = Some(id).filter(|&id| graph.hop(id).pass != Pass::Other || graph.holds(id, self.at));
    }

    /// Over blocks up to an indirect branch, and over that to an address; whether that was all.
    #[inline]
    pub(super) fn stretch_to<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        sink: &mut impl Sink,
        to: u64,
    ) -> bool {
        let Ok(mut id) = self.here(graph) else { return false };
        let mut stretch = Stretch::before(graph, id);
        let mut straight = 0;
        while straight < LONGEST_STRAIGHT {
            let hop = graph.hop(id);
            if hop.function != stretch.function {
                stretch.tell(graph, sink);
                stretch = Stretch::before(graph, id);
            }
            match hop.pass {
                Pass::Free | Pass::Call => {
                    let Some(next) = hop.next(true).or_else(|| graph.follow(id, true, self.at).ok()) else {
                        break;
                    };
                    stretch.instructions += u32::from(hop.instructions);
                    if hop.pass == Pass::Call {
                        self.push_return(graph, id);
                        stretch.last = Some(id);
                        stretch.tell(graph, sink);
                        stretch = Stretch::before(graph, next);
                    }
                    (id, straight) = (next, straight + 1);
                }
                Pass::Return | Pass::IndirectJump | Pass::IndirectCall
                    if hop.pass != Pass::Return || !self.returns_are_hidden =>
                {
                    let back = match hop.pass {
                        Pass::Return => self.returns.pop().filter(|back| back.address == to),
                        _ => None,
                    };
                    if hop.pass == Pass::IndirectCall {
                        self.push_return(graph, id);
                    }
                    stretch.instructions += u32::from(hop.instructions);
                    stretch.last = Some(id);
                    stretch.tell(graph, sink);
                    let known = back.and_then(|back| back.block).filter(|&id| graph.is_at(id, to, self.at));
                    self.ip = to;
                    self.block = known.or_else(|| graph.lead(id, to, self.at).ok());
                    return true;
                }
                _ => break,
            }
        }
        stretch.tell(graph, sink);
        self.stand_before(graph, id);
        self.straight = straight;
        false
    }
}
