//! The stack of return addresses.

use crate::{BlockId, block::NOT_SEEN};

/// Depth of the processor's stack of return addresses (SDM, "RET Compression").
pub const DEPTH: usize = 64;

/// Return addresses of the calls that the processor keeps; on overflow the oldest is lost. Native code pushes and
/// pops too, hence the C layout.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct ReturnStack {
    /// Offset of the native code of each [return target](ReturnTarget); 0 if the slot is empty.
    pub(crate) codes: [u32; DEPTH],
    pub(crate) addresses: [u64; DEPTH],
    pub(crate) blocks: [BlockId; DEPTH],
    /// Index of the newest call.
    top: u32,
    /// Generation of the code that `codes` refers to.
    pub(crate) generation: u32,
}

/// The return address of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// The address.
    pub address: u64,
    /// The block likely to be there, in the graph that the walk used at the call.
    pub block: Option<BlockId>,
}

/// Entry for returns in the native code of a block.
#[derive(Clone, Copy, Debug)]
pub struct ReturnTarget {
    pub(crate) code: u32,
    pub(crate) generation: u32,
}

impl ReturnTarget {
    /// No known entry: the native code begins, at offset 1, with code that leaves it.
    pub const UNKNOWN: ReturnTarget = ReturnTarget { code: 1, generation: 0 };
}

impl Default for ReturnStack {
    fn default() -> Self {
        ReturnStack {
            codes: [0; DEPTH],
            addresses: [0; DEPTH],
            blocks: [NOT_SEEN; DEPTH],
            top: 0,
            generation: 0,
        }
    }
}

impl ReturnStack {
    /// Pushes a call.
    #[inline]
    pub fn push(&mut self, back: Back, target: ReturnTarget) {
        let top = (self.top as usize + 1) % DEPTH;
        self.top = top as u32;
        let is_known = target.generation == self.generation;
        self.codes[top] = if is_known { target.code } else { ReturnTarget::UNKNOWN.code };
        self.addresses[top] = back.address;
        self.blocks[top] = back.block.unwrap_or(NOT_SEEN);
    }

    /// Pops the newest call, or returns `None` if the stack is empty.
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

    /// Returns the call popped last.
    pub(crate) fn popped(&self) -> Back {
        self.at((self.top as usize + 1) % DEPTH)
    }

    fn at(&self, index: usize) -> Back {
        let block = Some(self.blocks[index]).filter(|&block| block != NOT_SEEN);
        Back { address: self.addresses[index], block }
    }

    /// Returns whether the stack is empty.
    pub fn is_empty(&self) -> bool {
        self.codes[self.top as usize % DEPTH] == 0
    }

    /// Returns the return addresses, the oldest call first.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        let oldest_first = (1..=DEPTH).map(|above| (self.top as usize + above) % DEPTH);
        oldest_first.filter(|&index| self.codes[index] != 0).map(|index| self.addresses[index])
    }

    /// Removes all calls.
    #[inline]
    pub fn clear(&mut self) {
        self.codes = [0; DEPTH];
    }

    /// Returns the newest call's index as native code uses it: in bytes of `codes`.
    pub(crate) fn top(&self) -> u64 {
        u64::from(self.top) * 4
    }

    pub(crate) fn set_top(&mut self, top: u64) {
        self.top = top as u32 / 4 % DEPTH as u32;
    }

    /// Invalidates the entries of all calls if they belong to other native code.
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
