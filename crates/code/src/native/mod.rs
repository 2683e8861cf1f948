//! Native code that walks over blocks.
//!
//! ```text
//! compact blocks ──translate──► code: branch = shift and jump on carry, call = push, return = pop and jump
//!                                │
//! branch batches ──────run───────┴──► function runs, up to the end of the batches or a block without code
//! ```
//!
//! The code has the same effect as the tables of a [`Graph`], but without look-ups, and the processor predicts its
//! branches as well as those of the traced program. Code is generated only for graphs that walks use often, for each
//! block when a walk first reaches it, and only on x86-64 Linux; otherwise the walk uses the tables.
//!
//! Straight-line code is translated only as a whole, up to the block that ends in a decision. If it loops, or part of
//! it is unreadable, no block of it gets code.

mod code;
mod memory;
#[cfg(test)]
mod tests;
mod translate;

use self::{
    code::{BEFORE, Code, CodeOffset, LANDED, OVER, TAKEN, WHY},
    memory::State,
};
use crate::{
    BlockId, BranchBatches, EdgeKind, FunctionRun, FunctionRuns, Graph, Labels, ReturnStack, Transfer,
    returns::{Back, DEPTH, ReturnTarget},
};

/// Number of walks after which a graph gets code.
pub(crate) const WALKS_BEFORE_CODE: u32 = 1 << 12;

/// Initial and maximum size of the code, in bytes. When the code is full, it is discarded and its size doubles.
const ROOM: usize = 1 << 26;
const MOST_ROOM: usize = 1 << 30;

/// Maximum number of blocks of straight-line code.
const MOST_STRAIGHT_BLOCKS: usize = 16;

/// Maximum number of function runs of a walk: for each decision, and before the first, the blocks of straight-line
/// code and the one after them.
const MOST_FUNCTION_RUNS: usize = (BranchBatches::MOST_DECISIONS + 1) * (MOST_STRAIGHT_BLOCKS + 2);

/// Native code of a graph.
#[derive(Debug)]
pub(crate) enum Native {
    /// Not generated yet: the number of walks until then.
    Waits(u32),
    Made(Box<Code>),
    /// Not possible or not wanted.
    Refused,
}

impl Default for Native {
    fn default() -> Native {
        Native::Waits(WALKS_BEFORE_CODE)
    }
}

/// How to walk over native code.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Tick of the code to walk over.
    pub tick: u64,
    /// Whether returns are compressed and take an outcome each.
    pub are_returns_compressed: bool,
}

/// The point at which a walk left the native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeExit {
    /// Before this block: all batches are completed, or the rest of one needs another walk.
    Before(BlockId),
    /// At this address, where no code can be read.
    Unreadable(u64),
}

impl<L: Labels> Graph<'_, L> {
    /// Sets the number of walks after which native code is generated; [`u32::MAX`] disables it.
    pub(crate) fn native_after(mut self, walks: u32) -> Self {
        self.native = if walks == u32::MAX { Native::Refused } else { Native::Waits(walks) };
        self
    }

    /// Walks over native code from a block at which a function run is open. It follows `branch_batches` as far as
    /// there is code. Returns `None` without any effect if the graph has no code.
    ///
    /// A batch without an indirect branch ends right after its last outcome.
    #[inline]
    pub fn run(
        &mut self,
        from: BlockId,
        branch_batches: &mut BranchBatches,
        function_runs: &mut FunctionRuns,
        returns: &mut ReturnStack,
        rules: Rules,
    ) -> Option<NativeExit> {
        if !self.has_code(rules.are_returns_compressed) {
            return None;
        }
        let tick = rules.tick;
        let mut from = from;
        // Translation may discard the code.
        while let (Native::Made(code), Some(_)) = (&mut self.native, branch_batches.current()) {
            returns.belong_to(code.generation());
            let checked = code.checked_entry_of(from);
            if checked == 0 {
                self.translate(from, tick);
                continue;
            }
            let out = code.walk(checked, branch_batches, function_runs, returns);
            let id = BlockId(out & !WHY);
            let next = match out & WHY {
                BEFORE if branch_batches.pass_if_over() => Ok(id),
                BEFORE => return Some(NativeExit::Before(id)),
                OVER => self.pass_indirect(id, branch_batches, function_runs, tick),
                reason => {
                    branch_batches.pass_if_over();
                    self.add_successor(reason, id, function_runs, returns, tick)
                }
            };
            match next {
                Ok(next) => from = next,
                Err(address) => return Some(NativeExit::Unreadable(address)),
            }
        }
        Some(NativeExit::Before(from))
    }

    /// Follows the indirect branch at the end of a block to the next batch, caches its target, and returns the block
    /// there.
    ///
    /// # Errors
    /// Returns the target's address, if no code can be read there.
    fn pass_indirect(
        &mut self,
        id: BlockId,
        branch_batches: &mut BranchBatches,
        function_runs: &mut FunctionRuns,
        tick: u64,
    ) -> Result<BlockId, u64> {
        let to = branch_batches.current().and_then(|batch| batch.to()).unwrap_or_default();
        branch_batches.pass();
        let next = self.indirect_target(id, to, tick).map_err(|_| to)?;
        let compact = self.compact(next);
        function_runs.begin(self.start(next), compact);
        if let Native::Made(code) = &mut self.native
            && compact.edge != EdgeKind::Other
            && !code.cache_target(to, next)
        {
            self.translate_landing(next, tick);
        }
        Ok(next)
    }

    /// Generates code for a successor that the native code did not know, and returns the block there.
    ///
    /// # Errors
    /// Returns the successor's address, if no code can be read there.
    fn add_successor(
        &mut self,
        reason: u32,
        id: BlockId,
        function_runs: &mut FunctionRuns,
        returns: &ReturnStack,
        tick: u64,
    ) -> Result<BlockId, u64> {
        let next = if reason == LANDED {
            let back = returns.popped();
            self.land(back, tick).ok_or(back.address)?
        } else {
            let taken = reason == TAKEN;
            let next = self.follow(id, taken, tick).map_err(|unreadable| unreadable.address())?;
            self.join(id, taken, next, tick);
            if self.compact(next).function == function_runs.open().function() {
                return Ok(next);
            }
            function_runs.end(0, Transfer::None, 0);
            next
        };
        function_runs.begin(self.start(next), self.compact(next));
        Ok(next)
    }

    /// Returns whether there is code, and generates it after the configured number of walks.
    #[inline]
    fn has_code(&mut self, are_returns_compressed: bool) -> bool {
        match &mut self.native {
            Native::Made(code) => code.are_returns_compressed == are_returns_compressed,
            Native::Refused => false,
            Native::Waits(walks) => {
                *walks = walks.saturating_sub(1);
                if *walks == 0 {
                    self.native = Native::of(ROOM, are_returns_compressed);
                }
                false
            }
        }
    }

    /// Returns the block that a return goes back to.
    fn land(&mut self, back: Back, tick: u64) -> Option<BlockId> {
        let known = back.block.filter(|&id| self.is_at(id, back.address, tick));
        let landed = known.or_else(|| self.at(back.address, tick).ok())?;
        self.translate_landing(landed, tick);
        Some(landed)
    }

    /// Returns the entry for returns to a block.
    #[inline]
    pub fn landing(&self, id: Option<BlockId>) -> ReturnTarget {
        match (&self.native, id) {
            (Native::Made(code), Some(id)) if code.offsets(id).landing != 0 => {
                ReturnTarget { code: code.offsets(id).landing, generation: code.generation() }
            }
            _ => ReturnTarget::UNKNOWN,
        }
    }
}

impl Native {
    /// Generates the common code in `room` bytes.
    fn of(room: usize, are_returns_compressed: bool) -> Native {
        Code::new(room, are_returns_compressed).map_or(Native::Refused, |code| Native::Made(Box::new(code)))
    }
}

impl Code {
    /// Walks from a checked entry as [`Graph::run`] does. Returns the exit reason and block.
    #[inline]
    fn walk(
        &mut self,
        checked: CodeOffset,
        branch_batches: &mut BranchBatches,
        function_runs: &mut FunctionRuns,
        returns: &mut ReturnStack,
    ) -> u32 {
        let room = function_runs.reserve(MOST_FUNCTION_RUNS);
        let start = room.as_mut_ptr();
        let mut state = State {
            batch: branch_batches.here(),
            instructions: room[0].until.into(),
            function_run: start,
            top: returns.top(),
            returns,
            base: self.address(0),
            target: self.address(checked),
            targets: self.targets().as_ptr(),
            checked: 0,
        };
        let out = self.run(&mut state);
        if out & WHY == BEFORE {
            self.leave_at(BlockId(out & !WHY), state.checked);
        }
        branch_batches.follow_to(state.batch);
        returns.set_top(state.top);
        function_runs.end_more((state.function_run.addr() - start.addr()) / size_of::<FunctionRun>());
        function_runs.open().until = state.instructions as u32;
        out
    }
}

const _: () = assert!(DEPTH * 4 == 1 << 8, "the index of the newest call, in bytes, wraps where a byte does");
