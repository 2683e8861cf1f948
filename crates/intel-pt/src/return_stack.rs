//! Return compression (SDM, "RET Compression").

/// Depth of the processor's stack of return addresses.
pub(crate) const DEPTH: usize = 64;

/// Return addresses of the calls that the processor remembers; the oldest fall out at the bottom.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    entries: [u64; DEPTH],
    top: usize,
    count: usize,
}

impl Default for ReturnStack {
    fn default() -> Self {
        ReturnStack { entries: [0; DEPTH], top: 0, count: 0 }
    }
}

impl ReturnStack {
    /// A call that will return to `address`.
    #[inline]
    pub(crate) fn push(&mut self, address: u64) {
        self.top = (self.top + 1) % DEPTH;
        self.entries[self.top] = address;
        self.count = (self.count + 1).min(DEPTH);
    }

    /// Where the newest call returns to, which is then forgotten; `None` where none is remembered.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        let address = self.entries[self.top];
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(address)
    }

    /// Whether no call is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is remembered, the oldest call first.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        (0..self.count).rev().map(|newer| self.entries[(self.top + DEPTH - newer) % DEPTH])
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
        (0..70).for_each(|address| stack.push(address));
        assert!((6..70).rev().all(|address| stack.pop() == Some(address)));
        assert_eq!(stack.pop(), None);
        stack.push(1);
        stack.clear();
        assert_eq!(stack.pop(), None);
    }
}
