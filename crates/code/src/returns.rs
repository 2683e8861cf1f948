//! Calls that returns go back to.

use crate::{BlockId, block::UNMET};

/// Depth of the processor's stack of return addresses (SDM, "RET Compression").
pub const DEPTH: usize = 64;

/// Return addresses of the calls that the processor remembers; the oldest fall out at the bottom. Machine code pushes
/// and pops, too, so it is laid out as in C.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct ReturnStack {
    /// Where the [machine code](ReturnTarget) of each is; 0 where there is none, as it was popped.
    pub(crate) codes: [u32; DEPTH],
    pub(crate) addresses: [u64; DEPTH],
    pub(crate) blocks: [BlockId; DEPTH],
    /// The newest one.
    top: u32,
    /// Which machine code that is.
    pub(crate) generation: u32,
}

/// Where a call will return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// The address.
    pub address: u64,
    /// The block that is likely to be there, by the graph that was walked over when it was called.
    pub block: Option<BlockId>,
}

/// Where the machine code of a block begins that returns lead to.
#[derive(Clone, Copy, Debug)]
pub struct ReturnTarget {
    pub(crate) code: u32,
    pub(crate) generation: u32,
}

impl ReturnTarget {
    /// There is none that is known: returns leave machine code.
    pub const UNKNOWN: ReturnTarget = ReturnTarget { code: 1, generation: 0 };
}

impl Default for ReturnStack {
    fn default() -> Self {
        ReturnStack {
            codes: [0; DEPTH],
            addresses: [0; DEPTH],
            blocks: [UNMET; DEPTH],
            top: 0,
            generation: 0,
        }
    }
}

impl ReturnStack {
    /// A call.
    #[inline]
    pub fn push(&mut self, back: Back, landing: ReturnTarget) {
        let top = (self.top as usize + 1) % DEPTH;
        self.top = top as u32;
        let is_known = landing.generation == self.generation;
        self.codes[top] = if is_known { landing.code } else { ReturnTarget::UNKNOWN.code };
        self.addresses[top] = back.address;
        self.blocks[top] = back.block.unwrap_or(UNMET);
    }

    /// Where the newest call returns to, which is then forgotten; `None` where none is remembered.
    #[inline]
    pub fn pop(&mut self) -> Option<Back> {
        let top = self.top as usize % DEPTH;
        if self.codes[top] == 0 {
            return None;
        }
        self.codes[top] = 0;
        self.top = ((top + DEPTH - 1) % DEPTH) as u32;
        Some(self.at(top))
    }

    /// The call that was popped last.
    pub(crate) fn popped(&self) -> Back {
        self.at((self.top as usize + 1) % DEPTH)
    }

    fn at(&self, place: usize) -> Back {
        let block = Some(self.blocks[place]).filter(|&block| block != UNMET);
        Back { address: self.addresses[place], block }
    }

    /// Whether no call is remembered.
    pub fn is_empty(&self) -> bool {
        self.codes[self.top as usize % DEPTH] == 0
    }

    /// What is remembered, the oldest call first.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        let oldest_first = (1..=DEPTH).map(|above| (self.top as usize + above) % DEPTH);
        oldest_first.filter(|&place| self.codes[place] != 0).map(|place| self.addresses[place])
    }

    /// Forgets all calls.
    #[inline]
    pub fn clear(&mut self) {
        self.codes = [0; DEPTH];
    }

    /// The newest call, as machine code counts them.
    pub(crate) fn top(&self) -> u64 {
        u64::from(self.top) * 4
    }

    pub(crate) fn set_top(&mut self, top: u64) {
        self.top = top as u32 / 4 % DEPTH as u32;
    }

    /// Machine code that is made by another, or anew, knows none of the calls.
    pub(crate) fn belong_to(&mut self, generation: u32) {
        if self.generation != generation {
            self.generation = generation;
            self.codes
                .iter_mut()
                .filter(|code| **code != 0)
                .for_each(|code| *code = ReturnTarget::UNKNOWN.code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_calls_fall_out() {
        let mut stack = ReturnStack::default();
        let back = |address| Back { address, block: None };
        (0..70).for_each(|address| stack.push(back(address), ReturnTarget::UNKNOWN));
        assert!(stack.addresses().eq(6..70));
        assert!((6..70).rev().all(|address| stack.pop() == Some(back(address))));
        assert_eq!(stack.pop(), None);
        stack.push(back(1), ReturnTarget::UNKNOWN);
        stack.clear();
        assert!(stack.is_empty());
        assert_eq!(stack.pop(), None);
    }
}
