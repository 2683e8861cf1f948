//! Return compression (SDM, "RET Compression").

/// Depth of the processor's stack of return addresses.
pub(crate) const DEPTH: usize = 64;

use hodo_code::BlockId;

/// Return addresses of the calls that the processor remembers; the oldest fall out at the bottom.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    entries: [Back; DEPTH],
    top: usize,
    count: usize,
}

/// Where a call will return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    pub(crate) address: u64,
    /// The block that is likely to be there, by the graph that was walked over when it was called.
    pub(crate) block: Option<BlockId>,
}

impl Default for ReturnStack {
    fn default() -> Self {
        ReturnStack { entries: [Back { address: 0, block: None }; DEPTH], top: 0, count: 0 }
    }
}

impl ReturnStack {
    /// A call.
    #[inline]
    pub(crate) fn push(&mut self, back: Back) {
        self.top = (self.top + 1) % DEPTH;
        self.entries[self.top] = back;
        self.count = (self.count + 1).min(DEPTH);
    }

    /// Where the newest call returns to, which is then forgotten; `None` where none is remembered.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Back> {
        self.count = self.count.checked_sub(1)?;
        let back = self.entries[self.top];
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(back)
    }

    /// Whether no call is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is remembered, the oldest call first.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        (0..self.count).rev().map(|newer| self.entries[(self.top + DEPTH - newer) % DEPTH].address)
    }

    /// Forgets all calls.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_calls_fall_out() {
        let mut stack = ReturnStack::default();
        let back = |address| Back { address, block: None };
        (0..70).for_each(|address| stack.push(back(address)));
        assert!((6..70).rev().all(|address| stack.pop() == Some(back(address))));
        assert_eq!(stack.pop(), None);
        stack.push(back(1));
        stack.clear();
        assert_eq!(stack.pop(), None);
    }
}
