//! Return compression (SDM, "RET Compression").

/// Depth of the processor's stack of return addresses.
const DEPTH: usize = 64;

/// Entries that there is room for. More than are remembered, so that one more may be written to no effect.
const ROOM: usize = 2 * DEPTH;

/// Return addresses of the calls that the processor remembers; the oldest fall out at the bottom.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    /// Where each returns to, and what may have been told with it.
    entries: [(u64, u32); ROOM],
    top: usize,
    count: usize,
}

impl Default for ReturnStack {
    fn default() -> Self {
        ReturnStack { entries: [(0, 0); ROOM], top: 0, count: 0 }
    }
}

impl ReturnStack {
    /// A call that will return to `address`.
    #[inline]
    pub(crate) fn push(&mut self, address: u64) {
        self.take(true, false, (address, u32::MAX));
    }

    /// Takes in a call, a return, or neither, without a branch: what the newest entry was before it. `entry` is
    /// where a call returns to, and what to tell with that.
    #[inline]
    pub(crate) fn take(&mut self, is_call: bool, is_return: bool, entry: (u64, u32)) -> (u64, u32) {
        let newest = self.entries[self.top % ROOM];
        self.entries[(self.top + 1) % ROOM] = entry;
        let (call, known_return) = (usize::from(is_call), usize::from(is_return && self.count > 0));
        self.top = (self.top + call).wrapping_sub(known_return) % ROOM;
        self.count = (self.count + call - known_return).min(DEPTH);
        newest
    }

    /// Where the newest call returns to, which is then forgotten; `None` where none is remembered.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let known = self.count > 0;
        let (address, _) = self.take(false, true, (0, 0));
        known.then_some(address)
    }

    /// Whether no call is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
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
