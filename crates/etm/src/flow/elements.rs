//! Speculation: elements wait until the processor has committed them.

use std::collections::VecDeque;

use crate::packet::{Address, Atoms, Context, Exception};

/// An element of the trace. P0 elements are those that the processor commits or cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// P0: a waypoint that was executed; whether its branch was taken.
    Atom(bool),
    /// P0: an exception.
    Exception(Exception),
    /// P0: instructions without atoms.
    Q {
        count: Option<u32>,
        address: Option<Address>,
    },
    /// P0: a branch that was taken, and its address.
    SourceAddress(Address),
    /// P0, before the begin of decoding: not seen here.
    Unseen,
    /// P0, of units for which it is: a transaction began.
    TransactionStart,
    /// A transaction failed: what ran since its start has no effect, and tracing continues where it went on.
    TransactionFailure,
    Address(Address),
    Context(Context),
    ExceptionReturn,
    TraceOn,
    Discard,
    Overflow,
    Time(u64),
    Cycles(Option<u32>),
}

impl Element {
    fn is_p0(self) -> bool {
        matches!(
            self,
            Element::Atom(_)
                | Element::Exception(_)
                | Element::Q { .. }
                | Element::SourceAddress(_)
                | Element::Unseen
                | Element::TransactionStart
        )
    }

    /// Whether it stays if P0 elements around it are cancelled.
    fn is_time(self) -> bool {
        matches!(self, Element::Time(_) | Element::Cycles(_))
    }
}

/// An element and the position of its packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) element: Element,
    pub(super) at: usize,
}

/// Elements that are not committed yet, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Elements {
    waiting: VecDeque<Placed>,
    /// The number of P0 elements among them.
    uncommitted: u32,
}

/// Elements that may wait, at most: more are no trace of a processor.
const MOST: usize = 1 << 12;

impl Elements {
    pub(super) fn push(&mut self, element: Element, at: usize) {
        self.uncommitted += u32::from(element.is_p0());
        self.waiting.push_back(Placed { element, at });
    }

    pub(super) fn push_atoms(&mut self, atoms: Atoms, at: usize) {
        for index in 0..atoms.count {
            self.push(Element::Atom(atoms.bits >> index & 1 == 1), at);
        }
    }

    /// Sets the P0 elements before the begin of decoding.
    pub(super) fn begin(&mut self, unseen: u32, depth: u32, at: usize) {
        self.clear();
        for _ in 0..unseen.min(depth) {
            self.push(Element::Unseen, at);
        }
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.uncommitted = 0;
    }

    pub(super) fn uncommitted(&self) -> u32 {
        self.uncommitted
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > MOST
    }

    /// Takes the next element, if it comes before the `commits` oldest P0 elements are complete, or if no P0 element is
    /// before it.
    pub(super) fn take(&mut self, commits: &mut u32) -> Option<Placed> {
        let next = self.waiting.front()?;
        if next.element.is_p0() {
            *commits = commits.checked_sub(1)?;
            self.uncommitted -= 1;
        }
        self.waiting.pop_front()
    }

    /// Removes the newest `count` P0 elements, with what belongs to them. Returns `false` if there are fewer.
    pub(super) fn cancel(&mut self, count: u32) -> bool {
        let mut kept = Vec::new();
        let mut left = count;
        while left > 0 {
            let Some(newest) = self.waiting.pop_back() else { break };
            if newest.element.is_p0() {
                left -= 1;
                self.uncommitted -= 1;
            } else if newest.element.is_time() {
                kept.push(newest);
            }
        }
        self.waiting.extend(kept.into_iter().rev());
        left == 0
    }

    /// Inverts the newest atom, and removes the addresses after it. Returns `false` if there is none.
    pub(super) fn mispredict(&mut self) -> bool {
        let newest = self.waiting.iter().rposition(|placed| placed.element.is_p0());
        let Some(index) = newest else { return false };
        let Element::Atom(taken) = &mut self.waiting[index].element else { return false };
        *taken = !*taken;
        let after = self.waiting.split_off(index + 1);
        self.waiting.extend(after.into_iter().filter(|placed| placed.element.is_time()));
        true
    }
}
