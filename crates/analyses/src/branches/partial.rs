//! Counts of straight-line runs and of branches in some chunks of a thread.

use hodo_model::{Arrival, Code, FlowEvent, FunctionId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CountKind {
    /// A branch, call or return, and its target.
    Taken,
    /// A branch that was not taken, or a call of the system, and the next instruction.
    Next,
    /// The first and the last instruction of straight-line code.
    Run,
}

impl CountKind {
    /// The name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            CountKind::Taken => "taken",
            CountKind::Next => "next",
            CountKind::Run => "run",
        }
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Site {
    /// Its offset in the module, as [`Code::offset`].
    pub(super) offset: u64,
    pub(super) function: FunctionId,
}

/// What was counted, from which instruction to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct CountKey {
    pub(super) kind: CountKind,
    pub(super) from: Site,
    pub(super) to: Site,
}

/// Where a partial begins.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum FirstInstruction {
    /// No instruction ran yet.
    #[default]
    Unknown,
    /// At this address.
    At { address: u64, site: Site },
    /// Unknown, because flow is missing before it.
    Lost,
}

/// The instruction that ran last.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum LastInstruction {
    /// It ran before the partial.
    #[default]
    Unknown,
    /// This one, and the address after it.
    At { site: Site, next: u64 },
    /// Unknown, because flow is missing after it.
    Lost,
}

/// The counts of some chunks of a thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BranchCounts {
    counts: FxHashMap<CountKey, u64>,
    first: FirstInstruction,
    /// Whether the thread left the traced code before the first instruction.
    left_first: bool,
    last: LastInstruction,
    /// Whether it left the traced code after the last instruction.
    left: bool,
}

impl BranchCounts {
    #[inline]
    pub(super) fn fold(&mut self, event: &FlowEvent<'_>) {
        match event {
            FlowEvent::Run { at, code, .. } => self.run(at, code),
            FlowEvent::Leave { .. } => self.left = true,
            FlowEvent::Gap | FlowEvent::Skip { .. } => self.lose(),
            _ => {}
        }
    }

    fn run(&mut self, at: &Arrival, code: &Code<'_>) {
        let site = Site { offset: code.offset, function: at.function };
        if let FirstInstruction::Unknown = self.first {
            (self.first, self.left_first) = (FirstInstruction::At { address: at.address, site }, self.left);
        }
        self.arrive(at.address, site);
        let size: u64 = code.lengths.iter().map(|&length| u64::from(length)).sum();
        let before = size - code.lengths.last().map_or(0, |&length| u64::from(length));
        let last = Site { offset: site.offset.wrapping_add(before), ..site };
        self.add(CountKind::Run, site, last);
        self.last = LastInstruction::At { site: last, next: at.address.wrapping_add(size) };
        self.left = false;
    }

    /// Continues at an instruction.
    fn arrive(&mut self, address: u64, to: Site) {
        let LastInstruction::At { site, next } = self.last else { return };
        if address == next {
            self.add(CountKind::Next, site, to);
        } else if !self.left {
            // After a system call or an interrupt, a signal handler or another program may run.
            self.add(CountKind::Taken, site, to);
        }
    }

    fn lose(&mut self) {
        if matches!(self.first, FirstInstruction::Unknown) {
            self.first = FirstInstruction::Lost;
        }
        (self.last, self.left) = (LastInstruction::Lost, false);
    }

    #[inline]
    fn add(&mut self, kind: CountKind, from: Site, to: Site) {
        *self.counts.entry(CountKey { kind, from, to }).or_default() += 1;
    }

    fn add_counts(&mut self, other: &FxHashMap<CountKey, u64>) {
        for (key, executions) in other {
            let count = self.counts.entry(*key).or_default();
            *count = count.saturating_add(*executions);
        }
    }

    /// Joins two neighbouring partials.
    pub(super) fn merge(mut self, later: BranchCounts) -> BranchCounts {
        self.add_counts(&later.counts);
        match later.first {
            FirstInstruction::At { address, site } => {
                self.left |= later.left_first;
                self.arrive(address, site);
                if let FirstInstruction::Unknown = self.first {
                    (self.first, self.left_first) = (later.first, self.left);
                }
                (self.last, self.left) = (later.last, later.left);
            }
            FirstInstruction::Lost => {
                if let FirstInstruction::Unknown = self.first {
                    self.first = FirstInstruction::Lost;
                }
                (self.last, self.left) = (later.last, later.left);
            }
            FirstInstruction::Unknown => self.left |= later.left,
        }
        self
    }

    /// Returns the counts of all threads.
    pub(super) fn together(threads: Vec<BranchCounts>) -> FxHashMap<CountKey, u64> {
        let mut all = BranchCounts::default();
        threads.iter().for_each(|thread| all.add_counts(&thread.counts));
        all.counts
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::{End, Place};

    use super::*;

    fn run(address: u64, lengths: &'static [u8]) -> FlowEvent<'static> {
        let function = FunctionId { module: 0, index: 0 };
        let at = Arrival { address, function, place: Place::Middle };
        let size: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let code = Code {
            offset: address,
            since: 0,
            lengths,
            bytes: &[],
            isa: hodo_model::Isa::X86_64,
            end: End::Conditional,
            target: address + size,
        };
        FlowEvent::Run { at, instructions: lengths.len() as u64, code }
    }

    /// A loop of two runs, left by a system call; a signal handler far away; then flow is missing.
    fn events() -> Vec<FlowEvent<'static>> {
        let leave = FlowEvent::Leave { next: None };
        vec![
            run(0x10, &[2, 3]),
            run(0x15, &[1, 2]),
            run(0x10, &[2, 3]),
            leave,
            run(0x15, &[1, 2]),
            leave,
            run(0x90, &[1]),
            FlowEvent::Gap,
            run(0x10, &[2, 3]),
        ]
    }

    fn folded(events: &[FlowEvent<'_>]) -> BranchCounts {
        let mut partial = BranchCounts::default();
        events.iter().for_each(|event| partial.fold(event));
        partial
    }

    /// The counts in words, in order.
    fn list(partial: &BranchCounts) -> Vec<String> {
        let mut counts: Vec<_> = partial.counts.iter().collect();
        counts.sort_unstable();
        let line = |(CountKey { kind, from, to }, count): (&CountKey, &u64)| {
            format!("{} {:#x} → {:#x}: {count}", kind.name(), from.offset, to.offset)
        };
        counts.into_iter().map(line).collect()
    }

    #[test]
    fn steps_are_taken_or_next_and_interruptions_are_neither() {
        let expected = [
            "taken 0x16 → 0x10: 1",
            "next 0x12 → 0x15: 2",
            "run 0x10 → 0x12: 3",
            "run 0x15 → 0x16: 2",
            "run 0x90 → 0x90: 1",
        ];
        assert_eq!(list(&folded(&events())), expected);
    }

    #[test]
    fn any_two_cuts_give_the_same_counts() {
        let (events, whole) = (events(), list(&folded(&events())));
        for first in 0..=events.len() {
            for second in first..=events.len() {
                let [a, b, c] = [&events[..first], &events[first..second], &events[second..]].map(folded);
                assert_eq!(list(&a.clone().merge(b.clone()).merge(c.clone())), whole, "{first} {second}");
                assert_eq!(list(&a.merge(b.merge(c))), whole, "{first} {second}");
            }
        }
    }
}
