//! Where and why perf's time of an instruction differs from ours.
//!
//! Our time is that of the last timing packet that the processor made before the instruction. perf's time differs for
//! one of three reasons, which the time itself shows.

use std::fmt;

use super::streams::{Digest, Time};

/// Why perf's time differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// perf's time is that of an earlier packet than ours.
    Behind,
    /// perf's time is that of a later packet than ours.
    Ahead,
    /// perf's time is that of no packet.
    Estimated,
}

const REASONS: [(Why, &str); 3] = [
    (Why::Behind, "perf reads a packet of the clock no sooner than a branch needs the packet behind it"),
    (
        Why::Ahead,
        "a CYC packet gives the time of the packet after it; perf gives that time to the branches in that packet too, which ran before",
    ),
    (
        Why::Estimated,
        "perf adds two ticks (by the core's frequency) for each instruction since the last packet where tracing comes on, and stays there until the clock has caught up",
    ),
];

/// A comparison of the times of one or more streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// Instructions that have a time in both.
    instructions: u64,
    /// For each of [`REASONS`].
    apart: [Apart; REASONS.len()],
}

/// Instructions whose times differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Apart {
    /// The number of instructions.
    instructions: u64,
    /// The greatest difference, in nanoseconds.
    most: u64,
    /// The first instruction with this difference.
    first: Option<Instruction>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Instruction {
    tid: u32,
    /// Its number in the thread.
    number: u64,
}

impl Times {
    /// Adds a thread whose instructions are the same in both; `has_cyc`: it has CYC packets.
    pub(super) fn add(&mut self, tid: u32, ours: &Digest, theirs: &Digest, has_cyc: bool) {
        let mut theirs = theirs.times.iter().peekable();
        let mut their = None;
        for (index, &Time { first, nanoseconds: our }) in ours.times.iter().enumerate() {
            let end = ours.times.get(index + 1).map_or(ours.instructions, |next| next.first);
            let mut number = first;
            while number < end {
                while let Some(time) = theirs.next_if(|time| time.first <= number) {
                    their = Some(time.nanoseconds);
                }
                let next = theirs.peek().map_or(end, |next| end.min(next.first));
                if let Some(their) = their {
                    let why = why(ours, our, their, has_cyc);
                    self.count(why, our.abs_diff(their), Instruction { tid, number }, next - number);
                }
                number = next;
            }
        }
    }

    /// Counts consecutive instructions whose times differ by this much.
    fn count(&mut self, why: Why, difference: u64, first: Instruction, instructions: u64) {
        self.instructions += instructions;
        if difference == 0 {
            return;
        }
        let apart = &mut self.apart[why as usize];
        apart.instructions += instructions;
        if difference > apart.most {
            (apart.most, apart.first) = (difference, Some(first));
        }
    }

    /// Adds the comparison of other streams.
    pub(super) fn merge(&mut self, other: &Times) {
        self.instructions += other.instructions;
        for (sum, apart) in self.apart.iter_mut().zip(&other.apart) {
            sum.instructions += apart.instructions;
            if apart.most > sum.most {
                (sum.most, sum.first) = (apart.most, apart.first);
            }
        }
    }

    /// A sentence for each reason that occurs.
    pub(super) fn explain(&self) -> impl Iterator<Item = String> {
        let differing = REASONS.iter().zip(&self.apart).filter(|(_, apart)| apart.instructions > 0);
        differing.map(|((_, reason), apart)| {
            let share = 100.0 * apart.instructions as f64 / self.instructions as f64;
            let Instruction { tid, number } = apart.first.unwrap_or_default();
            format!(
                "{share:.2} % of the instructions have another time, by at most {} ns (instruction {number} of thread \
                 {tid}): {reason}",
                apart.most
            )
        })
    }
}

/// Our times never step back, so a search finds whether a packet has perf's time, and on which side of ours. An
/// estimate may happen to be the time of a later packet; perf only looks ahead for CYC packets.
fn why(ours: &Digest, our: u64, their: u64, has_cyc: bool) -> Why {
    match ours.times.binary_search_by_key(&their, |time| time.nanoseconds) {
        Ok(_) if their < our => Why::Behind,
        Ok(_) if has_cyc => Why::Ahead,
        _ => Why::Estimated,
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most: Vec<String> = self.apart.iter().map(|apart| apart.most.to_string()).collect();
        f.write_str(&most.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(times: &[(u64, u64)]) -> Digest {
        let times = times.iter().map(|&(first, nanoseconds)| Time { first, nanoseconds }).collect();
        Digest { instructions: 20, times, ..Digest::default() }
    }

    #[test]
    fn each_difference_has_its_reason() {
        let mut times = Times::default();
        let ours = digest(&[(2, 100), (10, 200), (16, 300)]);
        let theirs = digest(&[(0, 100), (9, 200), (12, 205), (16, 200), (19, 300)]);
        let has_cyc = true;
        times.add(7, &ours, &theirs, has_cyc);
        assert_eq!(times.instructions, 18);
        let apart = |instructions, most, number| Apart {
            instructions,
            most,
            first: Some(Instruction { tid: 7, number }),
        };
        assert_eq!(times.apart, [apart(3, 100, 16), apart(1, 100, 9), apart(4, 5, 12)]);
    }
}
