//! A saturating counter of two bits whose state at the begin may be unknown.

use serde::{Deserialize, Serialize};

/// The number of states of a counter. From 2 on it predicts that a branch is taken.
pub(super) const STATES: usize = 4;

/// The state of a counter now, for each state in which it may have begun: two bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counter(u8);

impl Counter {
    /// It is in the state in which it began.
    pub(super) const UNKNOWN: Counter = Counter(0b11_10_01_00);
    /// It began in state 0.
    pub(super) const ZERO: Counter = Counter(0);

    /// The state now, if it began in state `start`.
    #[inline]
    pub(super) fn now(self, start: usize) -> u8 {
        self.0 >> (2 * start) & 0b11
    }

    /// The state now, if it is the same for each begin.
    #[inline]
    pub(super) fn known(self) -> Option<u8> {
        let state = self.0 & 0b11;
        (self.0 == state * 0b01_01_01_01).then_some(state)
    }

    fn map(self, next: impl Fn(u8) -> u8) -> Counter {
        Counter((0..STATES).fold(0, |all, start| all | next(self.now(start)) << (2 * start)))
    }

    /// The counter after a branch.
    #[inline]
    pub(super) fn after(self, taken: bool) -> Counter {
        self.map(|state| if taken { (state + 1).min(3) } else { state.saturating_sub(1) })
    }

    /// The counter after what `later` counted.
    pub(super) fn then(self, later: Counter) -> Counter {
        self.map(|state| later.now(state.into()))
    }
}

/// Whether a counter in a state predicts wrongly.
pub(super) fn is_miss(state: u8, taken: bool) -> bool {
    (state >= 2) != taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_branches_of_one_kind_decide_the_state() {
        let twice = Counter::UNKNOWN.after(true).after(true);
        assert_eq!(twice.known(), None);
        assert_eq!(twice.after(true).known(), Some(3));
        assert_eq!([0, 1, 2, 3].map(|start| twice.now(start)), [2, 3, 3, 3]);
    }

    #[test]
    fn counting_on_is_the_same_as_joining() {
        let outcomes = [true, true, false, true, false, false, true];
        let all = outcomes.iter().fold(Counter::UNKNOWN, |counter, &taken| counter.after(taken));
        for cut in 0..outcomes.len() {
            let [one, two] = [&outcomes[..cut], &outcomes[cut..]]
                .map(|part| part.iter().fold(Counter::UNKNOWN, |counter, &taken| counter.after(taken)));
            assert_eq!(one.then(two), all);
        }
    }
}
