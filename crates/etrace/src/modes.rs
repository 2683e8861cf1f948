//! What encoder and decoder keep alike in the optional modes ("Optional and run-time configurable modes"). A
//! synchronization packet resets all of it.

use crate::Parameters;

/// The branch predictor: two bits for each of its entries, the prediction and the last outcome.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    entries: Vec<u8>,
    shift: u8,
}

/// "Predict not taken, transition to 00 if prediction succeeds, else 11."
const INITIAL: u8 = 0b01;
/// The bit with the prediction.
const TAKEN: u8 = 0b10;

impl Predictor {
    pub(crate) fn new(parameters: &Parameters) -> Predictor {
        let entries = match parameters.bpred_size {
            0 => Vec::new(),
            size => vec![INITIAL; 1 << size],
        };
        Predictor { entries, shift: parameters.iaddress_lsb }
    }

    pub(crate) fn reset(&mut self) {
        self.entries.fill(INITIAL);
    }

    fn index(&self, address: u64) -> usize {
        (address >> self.shift) as usize & (self.entries.len() - 1)
    }

    /// Returns whether a branch is predicted as taken; `None` without a predictor.
    pub(crate) fn predict(&self, address: u64) -> Option<bool> {
        (!self.entries.is_empty()).then(|| self.entries[self.index(address)] & TAKEN != 0)
    }

    /// Learns the outcome of a branch.
    pub(crate) fn learn(&mut self, address: u64, taken: bool) {
        if self.entries.is_empty() {
            return;
        }
        let index = self.index(address);
        self.entries[index] = match (self.entries[index], taken) {
            // The prediction changes after two failures.
            (0b00 | 0b01, false) | (0b10, false) => 0b00,
            (0b00, true) => 0b01,
            (0b11, false) => 0b10,
            _ => 0b11,
        };
    }
}

/// The cache of jump targets, direct-mapped.
#[derive(Clone, Debug)]
pub(crate) struct TargetCache {
    entries: Vec<Option<u64>>,
    shift: u8,
}

impl TargetCache {
    pub(crate) fn new(parameters: &Parameters) -> TargetCache {
        let entries = match parameters.cache_size {
            0 => Vec::new(),
            size => vec![None; 1 << size],
        };
        TargetCache { entries, shift: parameters.iaddress_lsb }
    }

    pub(crate) fn reset(&mut self) {
        self.entries.fill(None);
    }

    fn index(&self, address: u64) -> usize {
        (address >> self.shift) as usize & (self.entries.len() - 1)
    }

    /// Returns the index of the entry with this address.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let index = (!self.entries.is_empty()).then(|| self.index(address))?;
        (self.entries[index] == Some(address)).then_some(index as u32)
    }

    pub(crate) fn at(&self, index: u32) -> Option<u64> {
        self.entries.get(index as usize).copied().flatten()
    }

    /// Enters the target of an uninferable jump.
    pub(crate) fn enter(&mut self, address: u64) {
        if !self.entries.is_empty() {
            let index = self.index(address);
            self.entries[index] = Some(address);
        }
    }
}

/// The return addresses of calls that have not returned yet. When it is full, a call drops the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    addresses: std::collections::VecDeque<u64>,
    deepest: usize,
}

impl Calls {
    pub(crate) fn new(parameters: &Parameters) -> Calls {
        Calls::with_depth(parameters.deepest())
    }

    pub(crate) fn with_depth(deepest: usize) -> Calls {
        Calls { addresses: std::collections::VecDeque::new(), deepest }
    }

    pub(crate) fn clear(&mut self) {
        self.addresses.clear();
    }

    pub(crate) fn depth(&self) -> usize {
        self.addresses.len()
    }

    pub(crate) fn push(&mut self, back: u64) {
        if self.addresses.len() == self.deepest {
            self.addresses.pop_front();
        }
        if self.deepest > 0 {
            self.addresses.push_back(back);
        }
    }

    pub(crate) fn top(&self) -> Option<u64> {
        self.addresses.back().copied()
    }

    pub(crate) fn pop(&mut self) -> Option<u64> {
        self.addresses.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_changes_after_two_failures() {
        let mut predictor = Predictor::new(&Parameters { bpred_size: 4, ..Parameters::default() });
        let mut after = |taken| {
            predictor.learn(0x1002, taken);
            predictor.predict(0x1002)
        };
        // From 01: 11, 10, 11, 10, 00, 01, 00.
        let outcomes = [true, false, true, false, false, true, false];
        let predicted: Vec<_> = outcomes.into_iter().map(&mut after).collect();
        let expected = [true, true, true, true, false, false, false].map(Some);
        assert_eq!(predicted, expected);
        assert_eq!(predictor.predict(0x1002 + 32), Some(false), "the same entry");
        assert_eq!(predictor.predict(0x1004), Some(false), "an entry that learnt nothing");
        let none = Predictor::new(&Parameters::default());
        assert_eq!(none.predict(0x1002), None);
    }

    #[test]
    fn a_full_stack_drops_the_oldest_call() {
        let mut calls = Calls::new(&Parameters { return_stack_size: 1, ..Parameters::default() });
        for back in [1, 2, 3] {
            calls.push(back);
        }
        assert_eq!((calls.depth(), calls.pop(), calls.pop(), calls.pop()), (2, Some(3), Some(2), None));
    }
}
