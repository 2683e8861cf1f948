//! Walking over blocks as machine code.
//!
//! ```text
//! hops ──translate──► code: a branch takes its outcome as the carry of a shift, a call pushes, a return pops and jumps
//!                       │
//! legs ────────run──────┴──► function runs, up to the end of the last leg or a block that code is not made of
//! ```
//!
//! What runs does no more than the tables of a [`Graph`] say, without looking them up: the processor foresees the
//! branches of the code as it foresaw those of the program. Code is made of a graph that is walked over much, of each
//! block when it is first reached, and only for the processor that this is built for; else tables do it.
//!
//! Straight ways are made code of only as a whole, from a block to the one that decides, so that one that runs in a
//! circle, or that code can't be read of, is always left to others from its start on.

mod code;
mod memory;
#[cfg(test)]
mod tests;
mod translate;

use self::{
    code::{BEFORE, Code, LANDED, OVER, Place, TAKEN, WHY},
    memory::State,
};
use crate::{
    BlockId, BranchBatches, EdgeKind, FunctionRun, FunctionRuns, Graph, Labels, ReturnStack, Transfer,
    returns::{Back, DEPTH, ReturnTarget},
};

/// Walks before a graph is one that is walked over much.
pub(crate) const MUCH: u32 = 1 << 12;

/// Room for code at first, and at last; each time that it is full it is made anew, with twice the room.
const ROOM: usize = 1 << 26;
const MOST_ROOM: usize = 1 << 30;

/// The longest straight way that code is made of.
const LONGEST: usize = 16;

/// The most function runs that legs lead to: for each decision, and before the first, a straight way and what comes behind it.
const MOST_FUNCTION_RUNS: usize = (BranchBatches::MOST_DECISIONS + 1) * (LONGEST + 2);

/// Code of a graph.
#[derive(Debug)]
pub(crate) enum Native {
    /// Is made after so many walks.
    Waits(u32),
    Made(Box<Code>),
    /// Can't be made here.
    Refused,
}

impl Default for Native {
    fn default() -> Native {
        Native::Waits(MUCH)
    }
}

/// How to walk over machine code.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Tick at which the code is looked at.
    pub at: u64,
    /// Returns are compressed, and take an outcome each.
    pub returns: bool,
}

/// Where machine code led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeExit {
    /// Before this block: all legs were passed, or what is left of one is to be followed otherwise.
    Before(BlockId),
    /// To this address, which no code can be read at.
    Unreadable(u64),
}

impl<L: Labels> Graph<'_, L> {
    /// Makes machine code after so many walks; never after [`u32::MAX`].
    pub(crate) fn native_after(mut self, walks: u32) -> Self {
        self.native = if walks == u32::MAX { Native::Refused } else { Native::Waits(walks) };
        self
    }

    /// Walks over machine code from a block, of which a function run is open, as far as that is made, and as the legs reach,
    /// which are passed. `None` where there is no code, and nothing was done.
    ///
    /// Without an indirect branch a leg ends right behind its last outcome.
    #[inline]
    pub fn run(
        &mut self,
        from: BlockId,
        branch_batches: &mut BranchBatches,
        function_runs: &mut FunctionRuns,
        returns: &mut ReturnStack,
        rules: Rules,
    ) -> Option<NativeExit> {
        if !self.has_code(rules.returns) {
            return None;
        }
        let at = rules.at;
        let mut from = from;
        // It may be forgotten on the way.
        while let (Native::Made(code), Some(_)) = (&mut self.native, branch_batches.current()) {
            returns.belong_to(code.generation());
            let gate = code.gate_of(from);
            if gate == 0 {
                self.translate(from, at);
                continue;
            }
            let out = code.walk(gate, branch_batches, function_runs, returns);
            let id = BlockId(out & !WHY);
            let led = match out & WHY {
                BEFORE if branch_batches.pass_if_over() => Ok(id),
                BEFORE => return Some(NativeExit::Before(id)),
                OVER => self.go_over(id, branch_batches, function_runs, at),
                why => {
                    branch_batches.pass_if_over();
                    self.leave(why, id, function_runs, returns, at)
                }
            };
            match led {
                Ok(next) => from = next,
                Err(address) => return Some(NativeExit::Unreadable(address)),
            }
        }
        Some(NativeExit::Before(from))
    }

    /// Goes over the indirect branch at the end of a block to the next leg, and remembers the way: the block there.
    ///
    /// # Errors
    /// The address, where no code can be read.
    fn go_over(
        &mut self,
        id: BlockId,
        branch_batches: &mut BranchBatches,
        function_runs: &mut FunctionRuns,
        at: u64,
    ) -> Result<BlockId, u64> {
        let to = branch_batches.current().and_then(|leg| leg.to()).unwrap_or_default();
        branch_batches.pass();
        let next = self.lead(id, to, at).map_err(|_| to)?;
        let hop = self.hop(next);
        function_runs.begin(self.start(next), hop);
        if let Native::Made(code) = &mut self.native
            && hop.pass != EdgeKind::Other
            && !code.know(to, next)
        {
            self.translate_landing(next, at);
        }
        Ok(next)
    }

    /// Makes code of the way on from where machine code did not know it: the block there.
    ///
    /// # Errors
    /// The address, where no code can be read.
    fn leave(
        &mut self,
        why: u32,
        id: BlockId,
        function_runs: &mut FunctionRuns,
        returns: &ReturnStack,
        at: u64,
    ) -> Result<BlockId, u64> {
        let next = if why == LANDED {
            let back = returns.popped();
            self.land(back, at).ok_or(back.address)?
        } else {
            let taken = why == TAKEN;
            let next = self.follow(id, taken, at).map_err(|unreadable| unreadable.address())?;
            self.join(id, taken, next, at);
            if self.hop(next).function == function_runs.open().function() {
                return Ok(next);
            }
            function_runs.end(0, Transfer::None, 0);
            next
        };
        function_runs.begin(self.start(next), self.hop(next));
        Ok(next)
    }

    /// Whether there is code, which is made after so many walks.
    #[inline]
    fn has_code(&mut self, returns: bool) -> bool {
        match &mut self.native {
            Native::Made(code) => code.returns == returns,
            Native::Refused => false,
            Native::Waits(walks) => {
                *walks = walks.saturating_sub(1);
                if *walks == 0 {
                    self.native = Native::of(ROOM, returns);
                }
                false
            }
        }
    }

    /// The block that a return goes back to.
    fn land(&mut self, back: Back, at: u64) -> Option<BlockId> {
        let known = back.block.filter(|&id| self.is_at(id, back.address, at));
        let landed = known.or_else(|| self.at(back.address, at).ok())?;
        self.translate_landing(landed, at);
        Some(landed)
    }

    /// Where returns to a block lead.
    #[inline]
    pub fn landing(&self, id: Option<BlockId>) -> ReturnTarget {
        match (&self.native, id) {
            (Native::Made(code), Some(id)) if code.places(id).landing != 0 => {
                ReturnTarget { code: code.places(id).landing, generation: code.generation() }
            }
            _ => ReturnTarget::UNKNOWN,
        }
    }
}

impl Native {
    fn of(room: usize, returns: bool) -> Native {
        Code::new(room, returns).map_or(Native::Refused, |code| Native::Made(Box::new(code)))
    }
}

impl Code {
    /// Walks from the gate of a block as [`Graph::run`] says: what the code returns.
    #[inline]
    fn walk(
        &mut self,
        gate: Place,
        branch_batches: &mut BranchBatches,
        function_runs: &mut FunctionRuns,
        returns: &mut ReturnStack,
    ) -> u32 {
        let room = function_runs.with_room(MOST_FUNCTION_RUNS);
        let start = room.as_mut_ptr();
        let mut state = State {
            leg: branch_batches.here(),
            instructions: room[0].until.into(),
            function_run: start,
            top: returns.top(),
            returns,
            base: self.address(0),
            target: self.address(gate),
            targets: self.targets().as_ptr(),
            gate: 0,
        };
        let out = self.run(&mut state);
        if out & WHY == BEFORE {
            self.leave_at(BlockId(out & !WHY), state.gate);
        }
        branch_batches.follow_to(state.leg);
        returns.set_top(state.top);
        function_runs.end_more((state.function_run.addr() - start.addr()) / size_of::<FunctionRun>());
        function_runs.open().until = state.instructions as u32;
        out
    }
}

const _: () = assert!(DEPTH * 4 == 1 << 8, "a byte counts the calls, four by four");
