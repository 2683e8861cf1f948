//! Generates native code for the blocks of a graph.

use super::{
    MOST_ROOM, MOST_STRAIGHT_BLOCKS, Native,
    code::{Code, CodeOffset},
};
use crate::{BlockId, CompactBlock, EdgeKind, Graph, Labels, NOT_TAKEN, TAKEN};

/// An entry into the code of a block; [`Entries`](super::code::Entries) describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Checked,
    Body,
    ReturnTarget,
}

/// A reference to the code of a block, to be resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reference {
    /// The distance of a jump out of a function is at `site`.
    Jump { site: CodeOffset, function: u32, to: BlockId },
    /// The offset of a return entry is at `site`.
    ReturnTarget { site: CodeOffset, to: BlockId },
}

/// How to generate code for a block, with its successors. `back` is the block that a call returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Branch,
    Free(BlockId),
    Call {
        target: BlockId,
        back: BlockId,
    },
    Return,
    IndirectJump,
    IndirectCall {
        back: BlockId,
    },
    /// No code: the walk exits.
    Other,
}

/// Generates code for blocks and for those that they refer to.
struct Translation<'g, 'a, L> {
    graph: &'g mut Graph<'a, L>,
    code: &'g mut Code,
    tick: u64,
}

impl<'a, L: Labels> Graph<'a, L> {
    /// Generates code for a block and its known successors. Returns `None` if the graph no longer has code, because the
    /// maximum size is exceeded.
    pub(super) fn translate(&mut self, id: BlockId, tick: u64) -> Option<()> {
        self.with_code(tick, |translation| {
            translation.emit(id, Entry::Checked);
        })
    }

    /// Like [`Graph::translate`], for the target of a return or indirect branch.
    pub(super) fn translate_landing(&mut self, id: BlockId, tick: u64) {
        self.with_code(tick, |translation| {
            translation.offset(id, Entry::Checked);
            translation.offset(id, Entry::ReturnTarget);
        });
    }

    /// Connects a branch in native code to a successor that the walk found.
    pub(super) fn join(&mut self, id: BlockId, taken: bool, next: BlockId, tick: u64) {
        self.with_code(tick, |translation| {
            let CompactBlock { instructions, function, .. } = translation.graph.compact(id);
            let checked = translation.code.offsets(id).checked;
            if translation.can_follow(function, next)
                && translation.code.continue_after(checked, instructions, taken)
            {
                translation.emit(next, Entry::Checked);
                return;
            }
            let site = translation.code.site_of(checked, instructions, taken);
            translation.code.references.push(Reference::Jump { site, function, to: next });
        });
    }

    /// Runs `generate`, then resolves all references. Returns `None` if the graph has no code, or no longer.
    fn with_code(&mut self, tick: u64, generate: impl FnOnce(&mut Translation<'_, 'a, L>)) -> Option<()> {
        let Native::Made(mut code) = std::mem::replace(&mut self.native, Native::Refused) else {
            return None;
        };
        let mut translation = Translation { graph: self, code: &mut code, tick };
        generate(&mut translation);
        while !translation.code.is_full() && translation.resolve() {}
        code.references.clear();
        // The exit reason takes the highest bits of a block id.
        let is_large = self.len() > 1 << 29;
        let room = code.size() * 2;
        self.native = if is_large || (code.is_full() && room > MOST_ROOM) {
            Native::Refused
        } else if code.is_full() {
            Native::of(room, code.are_returns_compressed)
        } else {
            Native::Made(code)
        };
        matches!(self.native, Native::Made(_)).then_some(())
    }
}

impl<L: Labels> Translation<'_, '_, L> {
    /// Returns the offset of a block's entry, and generates its code if needed.
    fn offset(&mut self, id: BlockId, entry: Entry) -> CodeOffset {
        let offsets = self.code.offsets(id);
        let offset = match entry {
            Entry::Checked => offsets.checked,
            Entry::Body => offsets.body,
            Entry::ReturnTarget => offsets.landing,
        };
        if offset == 0 { self.emit(id, entry) } else { offset }
    }

    /// Returns how to generate code for a block.
    fn kind(&mut self, id: BlockId) -> Kind {
        let compact = self.graph.compact(id);
        match compact.edge {
            EdgeKind::Branch => Kind::Branch,
            EdgeKind::Return => Kind::Return,
            EdgeKind::IndirectJump => Kind::IndirectJump,
            EdgeKind::IndirectCall => {
                let back = self.graph.follow(id, NOT_TAKEN, self.tick);
                back.map_or(Kind::Other, |back| Kind::IndirectCall { back })
            }
            EdgeKind::Free | EdgeKind::Call | EdgeKind::PushOnly if self.decides(id) => {
                self.straight(id, compact).unwrap_or(Kind::Other)
            }
            _ => Kind::Other,
        }
    }

    /// Classifies a block with a single successor; `None` if code can't be read.
    fn straight(&mut self, id: BlockId, compact: CompactBlock) -> Option<Kind> {
        let next = self.graph.follow(id, TAKEN, self.tick).ok()?;
        match compact.edge {
            EdgeKind::Call | EdgeKind::PushOnly => {
                let back = self.graph.follow(id, NOT_TAKEN, self.tick).ok()?;
                Some(Kind::Call { target: next, back })
            }
            _ => Some(Kind::Free(next)),
        }
    }

    /// Returns whether straight-line code from a block leads to a block that ends in a decision.
    fn decides(&mut self, mut id: BlockId) -> bool {
        for _ in 0..MOST_STRAIGHT_BLOCKS {
            let compact = self.graph.compact(id);
            match compact.edge {
                EdgeKind::Branch | EdgeKind::Return | EdgeKind::IndirectJump | EdgeKind::IndirectCall => {
                    return true;
                }
                EdgeKind::Other => return false,
                EdgeKind::Free | EdgeKind::Call | EdgeKind::PushOnly => match self.straight(id, compact) {
                    Some(Kind::Free(next) | Kind::Call { target: next, .. }) => id = next,
                    _ => return false,
                },
            }
        }
        false
    }

    /// Returns the start address and compact form of a block, to begin a function run.
    fn start(&self, id: BlockId) -> (u64, CompactBlock) {
        (self.graph.start(id), self.graph.compact(id))
    }

    /// Resolves the newest reference; returns `false` if there is none.
    fn resolve(&mut self) -> bool {
        // Read in place: a wide load right after narrow stores stalls, as it can't be forwarded.
        let newest = self.code.references.len().wrapping_sub(1);
        match self.code.references.get(newest) {
            None => return false,
            Some(&Reference::ReturnTarget { site, to }) => {
                self.code.references.truncate(newest);
                let offset = self.offset(to, Entry::ReturnTarget);
                self.code.write_offset(site, offset);
            }
            Some(&Reference::Jump { site, function, to }) => {
                self.code.references.truncate(newest);
                let into = self.graph.compact(to).function;
                let checked = self.offset(to, Entry::Checked);
                if into == function {
                    self.code.redirect(site, checked);
                    return true;
                }
                let crossing = self.code.here();
                let (start, compact) = self.start(to);
                self.code.enter_function(start, compact);
                self.code.jump(checked);
                self.code.commit();
                self.code.redirect(site, crossing);
            }
        }
        true
    }

    /// Generates code for a block from an entry on that does not exist yet, and for the blocks that fall through from
    /// it. Returns the entry's offset.
    fn emit(&mut self, id: BlockId, entry: Entry) -> CodeOffset {
        let start = self.code.here();
        let (mut id, mut entry) = (id, entry);
        loop {
            if entry == Entry::ReturnTarget {
                self.code.entries_of(id).landing = self.code.here();
                let (start, compact) = self.start(id);
                self.code.begin_function_run(start, compact);
                if let checked @ 1.. = self.code.offsets(id).checked {
                    self.code.jump(checked);
                    break;
                }
            }
            let kind = self.kind(id);
            if matches!(kind, Kind::Free(_) | Kind::Call { .. }) && entry != Entry::Body {
                self.code.entries_of(id).checked = self.code.here();
                let out = self.code.leave_before(id);
                self.code.checked(out);
                if let body @ 1.. = self.code.offsets(id).body {
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

    /// Generates the body of a block. Returns the block whose code comes right after it, and its entry.
    fn body(&mut self, id: BlockId, kind: Kind) -> Option<(BlockId, Entry)> {
        let compact = self.graph.compact(id);
        let body = self.code.here();
        let entries = self.code.entries_of(id);
        entries.body = body;
        if !matches!(kind, Kind::Free(_) | Kind::Call { .. }) {
            entries.checked = body;
        }
        match kind {
            Kind::Branch => self.branch(id, compact),
            Kind::Free(to) => {
                self.code.count(compact.instructions);
                let into = self.graph.compact(to).function;
                if into != compact.function {
                    let (start, compact) = self.start(to);
                    self.code.enter_function(start, compact);
                }
                self.advance(to)
            }
            Kind::Call { target, back } => {
                let site = self.code.call(compact, back, self.graph.start(back));
                self.code.references.push(Reference::ReturnTarget { site, to: back });
                let (start, compact) = self.start(target);
                self.code.begin_function_run(start, compact);
                self.advance(target)
            }
            Kind::Return if self.code.are_returns_compressed => {
                self.code.ret(id, compact.instructions);
                None
            }
            Kind::Return => {
                self.code.exit_if_outcome_left(id);
                self.code.uncompressed_ret(id, compact.instructions);
                None
            }
            Kind::IndirectJump => {
                self.code.exit_if_outcome_left(id);
                self.code.indirect(compact.instructions);
                self.code.over(id);
                None
            }
            Kind::IndirectCall { back } => {
                self.code.exit_if_outcome_left(id);
                let site = self.code.call(compact, back, self.graph.start(back));
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

    /// Generates the body of a block that ends in a conditional branch. Returns the successor whose code comes right after
    /// it, if one can.
    fn branch(&mut self, id: BlockId, compact: CompactBlock) -> Option<(BlockId, Entry)> {
        let function = compact.function;
        let jump = |site, to: Option<BlockId>| to.map(|to| Reference::Jump { site, function, to });
        let [not_taken, taken] = [NOT_TAKEN, TAKEN].map(|taken| compact.next(taken));
        let can_follow = |next: &BlockId| self.can_follow(function, *next);
        let (next, jumps_if_taken) = match (not_taken.filter(can_follow), taken.filter(can_follow)) {
            (Some(not_taken), _) => (Some(not_taken), true),
            (None, Some(taken)) => (Some(taken), false),
            (None, None) => (None, true),
        };
        let site = self.code.branch(id, compact.instructions, jumps_if_taken);
        self.code.references.extend(jump(site, if jumps_if_taken { taken } else { not_taken }));
        if next.is_none() {
            let site = self.code.not_taken(id);
            self.code.references.extend(jump(site, not_taken));
        }
        next.map(|next| (next, Entry::Checked))
    }

    /// Returns whether the code of a block can follow that of a block of `function`: it is in the same function and
    /// has no code yet.
    fn can_follow(&self, function: u32, next: BlockId) -> bool {
        self.graph.compact(next).function == function && self.code.offsets(next).checked == 0
    }

    /// Continues at the unchecked entry of a block: falls through to new code, or jumps.
    fn advance(&mut self, to: BlockId) -> Option<(BlockId, Entry)> {
        match self.code.offsets(to).body {
            0 => Some((to, Entry::Body)),
            body => {
                self.code.jump(body);
                None
            }
        }
    }
}
