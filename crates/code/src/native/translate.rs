//! Machine code of the blocks of a graph.

use super::{
    LONGEST, MOST_ROOM, Native,
    code::{Code, Place},
};
use crate::{BlockId, CompactBlock, EdgeKind, Graph, Labels};

/// Where in the code of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Gate,
    Body,
    ReturnTarget,
}

/// A place in the code that is to lead to a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reference {
    /// The distance of a jump from a function stands there.
    Jump { site: Place, function: u32, to: BlockId },
    /// The place that returns lead to stands there.
    ReturnTarget { site: Place, to: BlockId },
}

/// What code is made of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Branch,
    Free(BlockId),
    /// Where it goes, and where it returns to.
    Call(BlockId, BlockId),
    Return,
    IndirectJump,
    /// Where it returns to.
    IndirectCall(BlockId),
    /// None: it is left to others.
    Other,
}

/// Makes code of blocks, of each that something leads to.
struct Translation<'g, 'a, L> {
    graph: &'g mut Graph<'a, L>,
    code: &'g mut Code,
    at: u64,
}

impl<'a, L: Labels> Graph<'a, L> {
    /// Makes code of a block and of those that are known to follow. `None` where there is no more room, and no code.
    pub(super) fn translate(&mut self, id: BlockId, at: u64) -> Option<()> {
        self.with_code(at, |translation| {
            translation.emit(id, Entry::Gate);
        })
    }

    /// The same for a block that returns lead to.
    pub(super) fn translate_landing(&mut self, id: BlockId, at: u64) {
        self.with_code(at, |translation| {
            translation.place(id, Entry::Gate);
            translation.place(id, Entry::ReturnTarget);
        });
    }

    /// Joins a branch, which is code, to the block that it was seen to go to.
    pub(super) fn join(&mut self, id: BlockId, taken: bool, next: BlockId, at: u64) {
        self.with_code(at, |translation| {
            let CompactBlock { instructions, function, .. } = translation.graph.hop(id);
            let gate = translation.code.places(id).gate;
            if translation.may_come_behind(function, next)
                && translation.code.go_on_behind(gate, instructions, taken)
            {
                translation.emit(next, Entry::Gate);
                return;
            }
            let site = translation.code.site_of(gate, instructions, taken);
            translation.code.references.push(Reference::Jump { site, function, to: next });
        });
    }

    /// Makes code by a rule, and then of all that was left for later.
    fn with_code(&mut self, at: u64, by: impl FnOnce(&mut Translation<'_, 'a, L>)) -> Option<()> {
        let Native::Made(mut code) = std::mem::replace(&mut self.native, Native::Refused) else {
            return None;
        };
        let mut translation = Translation { graph: self, code: &mut code, at };
        by(&mut translation);
        while !translation.code.is_full() && translation.resolve() {}
        code.references.clear();
        // Blocks that can't be told from the reasons why code is left.
        let is_large = self.len() > 1 << 29;
        self.native = match code.size() * 2 {
            _ if is_large => Native::Refused,
            _ if !code.is_full() => Native::Made(code),
            room if room <= MOST_ROOM => Native::of(room, code.returns),
            _ => Native::Refused,
        };
        matches!(self.native, Native::Made(_)).then_some(())
    }
}

impl<L: Labels> Translation<'_, '_, L> {
    /// Where the code of a block is, made if need be.
    fn place(&mut self, id: BlockId, entry: Entry) -> Place {
        let places = self.code.places(id);
        let place = match entry {
            Entry::Gate => places.gate,
            Entry::Body => places.body,
            Entry::ReturnTarget => places.landing,
        };
        if place == 0 { self.emit(id, entry) } else { place }
    }

    /// What code is made of a block.
    fn kind(&mut self, id: BlockId) -> Kind {
        let hop = self.graph.hop(id);
        match hop.pass {
            EdgeKind::Branch => Kind::Branch,
            EdgeKind::Return => Kind::Return,
            EdgeKind::IndirectJump => Kind::IndirectJump,
            EdgeKind::IndirectCall => {
                self.graph.follow(id, false, self.at).map_or(Kind::Other, Kind::IndirectCall)
            }
            EdgeKind::Free | EdgeKind::Call if self.decides(id) => {
                self.straight(id, hop).unwrap_or(Kind::Other)
            }
            _ => Kind::Other,
        }
    }

    /// What is made of a block without a decision; `None` where code can't be read.
    fn straight(&mut self, id: BlockId, hop: CompactBlock) -> Option<Kind> {
        let next = self.graph.follow(id, true, self.at).ok()?;
        match hop.pass {
            EdgeKind::Call => Some(Kind::Call(next, self.graph.follow(id, false, self.at).ok()?)),
            _ => Some(Kind::Free(next)),
        }
    }

    /// Whether the straight way from a block leads to a decision.
    fn decides(&mut self, mut id: BlockId) -> bool {
        for _ in 0..LONGEST {
            let hop = self.graph.hop(id);
            match hop.pass {
                EdgeKind::Branch | EdgeKind::Return | EdgeKind::IndirectJump | EdgeKind::IndirectCall => {
                    return true;
                }
                EdgeKind::Other => return false,
                EdgeKind::Free | EdgeKind::Call => match self.straight(id, hop) {
                    Some(Kind::Free(next) | Kind::Call(next, _)) => id = next,
                    _ => return false,
                },
            }
        }
        false
    }

    /// Where a block starts that a function run begins with, and what else is to be known of it.
    fn start(&self, id: BlockId) -> (u64, CompactBlock) {
        (self.graph.start(id), self.graph.hop(id))
    }

    /// Leads the newest reference to its block; `false` where there is none.
    fn resolve(&mut self) -> bool {
        // Looked at where it stands: a processor waits where it copies as a whole what was just written in parts.
        let newest = self.code.references.len().wrapping_sub(1);
        match self.code.references.get(newest) {
            None => return false,
            Some(&Reference::ReturnTarget { site, to }) => {
                self.code.references.truncate(newest);
                let place = self.place(to, Entry::ReturnTarget);
                self.code.name(site, place);
            }
            Some(&Reference::Jump { site, function, to }) => {
                self.code.references.truncate(newest);
                let into = self.graph.hop(to).function;
                let gate = self.place(to, Entry::Gate);
                if into == function {
                    self.code.lead(site, gate);
                    return true;
                }
                let crossing = self.code.here();
                let (start, hop) = self.start(to);
                self.code.cross(start, hop);
                self.code.jump(gate);
                self.code.commit();
                self.code.lead(site, crossing);
            }
        }
        true
    }

    /// Makes the code of a block, from an entry on that there is none of yet, and of those that come right behind it.
    fn emit(&mut self, id: BlockId, entry: Entry) -> Place {
        let start = self.code.here();
        let (mut id, mut entry) = (id, entry);
        loop {
            if entry == Entry::ReturnTarget {
                self.code.places_of(id).landing = self.code.here();
                let (start, hop) = self.start(id);
                self.code.begin_function_run(start, hop);
                if let gate @ 1.. = self.code.places(id).gate {
                    self.code.jump(gate);
                    break;
                }
            }
            let kind = self.kind(id);
            if matches!(kind, Kind::Free(_) | Kind::Call(..)) && entry != Entry::Body {
                self.code.places_of(id).gate = self.code.here();
                let out = self.code.leave_before(id);
                self.code.gate(out);
                if let body @ 1.. = self.code.places(id).body {
                    self.code.jump(body);
                    break;
                }
            }
            match self.body(id, kind) {
                Some(next) if !self.code.is_full() => (id, entry) = next,
                _ => break,
            }
            self.code.commit();
        }
        self.code.commit();
        start
    }

    /// Makes the body of a block: the block whose code is to come right behind, and from which entry on.
    fn body(&mut self, id: BlockId, kind: Kind) -> Option<(BlockId, Entry)> {
        let hop = self.graph.hop(id);
        let body = self.code.here();
        let places = self.code.places_of(id);
        places.body = body;
        if !matches!(kind, Kind::Free(_) | Kind::Call(..)) {
            places.gate = body;
        }
        match kind {
            Kind::Branch => self.branch(id, hop),
            Kind::Free(to) => {
                self.code.count(hop.instructions);
                let into = self.graph.hop(to).function;
                if into != hop.function {
                    let (start, hop) = self.start(to);
                    self.code.cross(start, hop);
                }
                self.go_on(to)
            }
            Kind::Call(to, back) => {
                let site = self.code.call(hop, back, self.graph.start(back));
                self.code.references.push(Reference::ReturnTarget { site, to: back });
                let (start, hop) = self.start(to);
                self.code.begin_function_run(start, hop);
                self.go_on(to)
            }
            Kind::Return if self.code.returns => {
                self.code.ret(id, hop.instructions);
                None
            }
            Kind::Return => {
                self.code.last(id);
                self.code.told_ret(id, hop.instructions);
                None
            }
            Kind::IndirectJump => {
                self.code.last(id);
                self.code.indirect(hop.instructions);
                self.code.over(id);
                None
            }
            Kind::IndirectCall(back) => {
                self.code.last(id);
                let site = self.code.call(hop, back, self.graph.start(back));
                self.code.references.push(Reference::ReturnTarget { site, to: back });
                self.code.over(id);
                None
            }
            Kind::Other => {
                let out = self.code.leave_before(id);
                self.code.jump(out);
                None
            }
        }
    }

    /// Makes the body of a block that ends in a conditional branch.
    fn branch(&mut self, id: BlockId, hop: CompactBlock) -> Option<(BlockId, Entry)> {
        let function = hop.function;
        let jump = |site, to: Option<BlockId>| to.map(|to| Reference::Jump { site, function, to });
        let [not_taken, taken] = [false, true].map(|taken| hop.next(taken));
        let behind = |next: &BlockId| self.may_come_behind(function, *next);
        let next = not_taken.filter(behind).map(|next| (next, true));
        let next = next.or_else(|| taken.filter(behind).map(|next| (next, false)));
        let jumps_if_taken = next.is_none_or(|(_, jumps)| jumps);
        let site = self.code.branch(id, hop.instructions, jumps_if_taken);
        self.code.references.extend(jump(site, if jumps_if_taken { taken } else { not_taken }));
        if next.is_none() {
            let site = self.code.not_taken(id);
            self.code.references.extend(jump(site, not_taken));
        }
        next.map(|(next, _)| (next, Entry::Gate))
    }

    /// Whether the code of a block, of which there is none yet, may come right behind that of one of a function.
    fn may_come_behind(&self, function: u32, next: BlockId) -> bool {
        self.graph.hop(next).function == function && self.code.places(next).gate == 0
    }

    /// Goes on at the body of a block.
    fn go_on(&mut self, to: BlockId) -> Option<(BlockId, Entry)> {
        match self.code.places(to).body {
            0 => Some((to, Entry::Body)),
            body => {
                self.code.jump(body);
                None
            }
        }
    }
}
