//! Outcomes of branches that packets reported and the walk did not reach yet.

use crate::{modes::Predictor, packet::BranchMap};

/// The outcomes, the oldest first: known ones, then predicted ones, then one that was predicted wrongly.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcomes {
    /// A bit for each, the oldest lowest; 1 = not taken.
    not_taken: u64,
    known: u8,
    /// Branches that went as predicted.
    predicted: u64,
    /// Whether one more follows that did not.
    failed: bool,
}

impl Outcomes {
    /// Returns the number of branches.
    #[inline]
    pub(super) fn left(&self) -> u64 {
        u64::from(self.known) + self.predicted + u64::from(self.failed)
    }

    pub(super) fn clear(&mut self) {
        *self = Outcomes::default();
    }

    /// Adds the outcomes of a map. At most the one of the last reported branch is pending before.
    #[inline]
    pub(super) fn add(&mut self, map: BranchMap) {
        self.not_taken |= u64::from(map.not_taken) << self.known;
        self.known += map.count;
    }

    /// Adds branches that went as predicted, and perhaps one that did not.
    pub(super) fn add_predicted(&mut self, count: u64, then_failed: bool) {
        (self.predicted, self.failed) = (count, then_failed);
    }

    /// Takes the outcome of the branch at an address.
    #[inline]
    pub(super) fn take(&mut self, address: u64, predictor: &mut Predictor) -> Option<bool> {
        if self.known == 0 {
            self.resolve(address, predictor);
        }
        self.known = self.known.checked_sub(1)?;
        let taken = self.not_taken & 1 == 0;
        self.not_taken >>= 1;
        predictor.learn(address, taken);
        Some(taken)
    }

    /// Makes the next outcome, of the branch at an address, a known one: later packets add theirs behind it.
    pub(super) fn resolve(&mut self, address: u64, predictor: &Predictor) {
        let (0, Some(prediction)) = (self.known, predictor.predict(address)) else { return };
        let taken = if self.predicted > 0 {
            self.predicted -= 1;
            prediction
        } else if self.failed {
            self.failed = false;
            !prediction
        } else {
            return;
        };
        (self.not_taken, self.known) = (u64::from(!taken), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameters;

    #[test]
    fn known_outcomes_come_before_predicted_ones() {
        let mut predictor = Predictor::new(&Parameters { bpred_size: 2, ..Parameters::default() });
        let mut outcomes = Outcomes::default();
        outcomes.add(BranchMap { count: 2, not_taken: 0b10 });
        outcomes.add_predicted(2, true);
        assert_eq!(outcomes.left(), 5);
        let taken: Vec<_> = (0..6).map(|_| outcomes.take(0, &mut predictor)).collect();
        // The entry goes from 01 to 11, 10, 11, 11, and the last prediction failed.
        assert_eq!(taken, [Some(true), Some(false), Some(true), Some(true), Some(false), None]);
    }
}
