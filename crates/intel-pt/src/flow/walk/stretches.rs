//! From one packet to the next over the code, told as stretches.

use hodo_code::{BlockId, Graph, Labels, Led, NO_OUTCOMES, Pass, Rules, Stretch, Transfer};

use super::{super::Sink, LONGEST_STRAIGHT, Walk};
use crate::packet::Tnt;

/// So many stretches are told at once, if nothing else comes before; or one of so many instructions.
const ENOUGH: usize = 1 << 8;
const LONG: u32 = 1 << 30;

/// How many outcomes of branches are left, in the form that [`Graph::pass_branches`] takes.
fn left(outcomes: u64) -> u8 {
    63 - outcomes.trailing_zeros() as u8
}

impl Walk {
    /// The same for a sink that takes stretches, which are [told](Walk::tell) later; and then over an indirect branch to
    /// an address, if one is given. How many bits are left, and whether it went there. Code that is not the same at
    /// all times is left to others.
    #[inline(always)]
    pub(in super::super) fn stretches<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        tnt: Tnt,
        tip: Option<u64>,
    ) -> (u8, bool) {
        let Ok(mut id) = self.here(graph) else { return (tnt.count, false) };
        // The next bit is the highest one, and one that is set follows the last.
        let mut bits = (tnt.bits << 1 | 1) << (63 - tnt.count);
        let mut straight = 0;
        let mut stretch = self.go_on_with(graph, id);
        if bits != NO_OUTCOMES {
            let rules = Rules { at: self.at, returns: !self.no_return_compression, stops: tip.is_none() };
            match graph.run(id, &mut bits, &mut stretch, &mut self.untold, &mut self.returns, rules) {
                Some(Led::Before(to)) => id = to,
                // Code that can't be read is trouble only once a packet proves that it ran.
                Some(Led::Unreadable(address)) => {
                    self.go(address);
                    return (left(bits), false);
                }
                None => {}
            }
        }
        while bits != NO_OUTCOMES && straight < LONGEST_STRAIGHT {
            let (to, instructions) = graph.pass_branches(id, stretch.function(), &mut bits);
            stretch.instructions += instructions;
            (id, straight) = (to, if instructions > 0 { 0 } else { straight });
            if bits == NO_OUTCOMES {
                break;
            }
            let hop = graph.hop(id);
            if hop.function != stretch.function() {
                self.untold.push(stretch);
                stretch = graph.stretch_before(id);
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
                    stretch.end = self.push_return(graph, id);
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
            stretch.transfer = Transfer::over(hop.pass);
            let Some(next) = next else {
                // Code that can't be read is trouble only once a packet proves that it ran.
                if hop.pass != Pass::Return {
                    let block = graph.block(id);
                    self.go(if hop.pass == Pass::Branch && !taken { block.end } else { block.target });
                }
                self.untold.push(stretch);
                return (left(bits), false);
            };
            if hop.pass > Pass::Branch {
                self.untold.push(stretch);
                stretch = graph.stretch_before(next);
            }
            id = next;
        }
        if let Some(to) = tip
            && bits == NO_OUTCOMES
        {
            return (0, self.stretch_to(graph, (id, stretch, straight), to));
        }
        self.open = Some(stretch).filter(|stretch| stretch.instructions > 0);
        self.stand_before(graph, id);
        self.straight = straight;
        (left(bits), false)
    }

    /// The stretch that a block goes on with.
    #[inline]
    fn go_on_with<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) -> Stretch {
        match self.open.take() {
            Some(open) if open.function() == graph.hop(id).function => open,
            open => {
                self.untold.extend(open);
                graph.stretch_before(id)
            }
        }
    }

    /// Tells of the stretches that ran.
    #[inline]
    pub(in super::super) fn tell<L: Labels>(&mut self, graph: &Graph<'_, L>, sink: &mut impl Sink) {
        if self.has_to_tell() {
            self.untold.extend(self.open.take());
            sink.stretches(&self.untold, graph);
            self.untold.clear();
        }
    }

    /// Whether anything waits to be told.
    #[inline]
    pub(in super::super) fn has_to_tell(&self) -> bool {
        self.open.is_some() || !self.untold.is_empty()
    }

    /// Whether much waits to be told.
    #[inline]
    pub(in super::super) fn has_much_to_tell(&self) -> bool {
        self.untold.len() >= ENOUGH || self.open.is_some_and(|open| open.instructions >= LONG)
    }

    /// Execution goes on at a block, which may not be the one that is there at this time.
    #[inline]
    fn stand_before<L: Labels>(&mut self, graph: &Graph<'_, L>, id: BlockId) {
        self.ip = graph.start(id);
        self.block = Some(id).filter(|&id| graph.hop(id).pass != Pass::Other || graph.holds(id, self.at));
    }

    /// Over blocks up to an indirect branch, and over that to an address, after so many blocks without a decision;
    /// whether that was all.
    #[inline]
    fn stretch_to<L: Labels>(
        &mut self,
        graph: &mut Graph<'_, L>,
        (mut id, mut stretch, mut straight): (BlockId, Stretch, u32),
        to: u64,
    ) -> bool {
        while straight < LONGEST_STRAIGHT {
            let hop = graph.hop(id);
            if hop.function != stretch.function() {
                self.untold.extend(Some(stretch).filter(|stretch| stretch.instructions > 0));
                stretch = graph.stretch_before(id);
            }
            match hop.pass {
                Pass::Free | Pass::Call => {
                    let Some(next) = hop.next(true).or_else(|| graph.follow(id, true, self.at).ok()) else {
                        break;
                    };
                    stretch.instructions += u32::from(hop.instructions);
                    if hop.pass == Pass::Call {
                        stretch.end = self.push_return(graph, id);
                        stretch.transfer = Transfer::Call;
                        self.untold.push(stretch);
                        stretch = graph.stretch_before(next);
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
                        stretch.end = self.push_return(graph, id);
                    }
                    stretch.instructions += u32::from(hop.instructions);
                    stretch.transfer = Transfer::over(hop.pass);
                    self.untold.push(stretch);
                    let known = back.and_then(|back| back.block).filter(|&id| graph.is_at(id, to, self.at));
                    self.ip = to;
                    self.block = known.or_else(|| graph.lead(id, to, self.at).ok());
                    return true;
                }
                _ => break,
            }
        }
        self.open = Some(stretch).filter(|stretch| stretch.instructions > 0);
        self.stand_before(graph, id);
        self.straight = straight;
        false
    }
}
