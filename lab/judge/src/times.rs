//! Where and why perf's time of an instruction differs from ours.
//!
//! Our time is that of the last timing packet that the processor made before the instruction. perf's time differs for
//! one of three reasons, which the time itself shows.

use std::fmt;

use super::streams::Digest;

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
    /// Thread and number of the first instruction with this difference.
    at: Option<(u32, u64)>,
}

impl Times {
    /// Adds a thread whose instructions are the same in both; `cycles`: it has CYC packets.
    pub(super) fn add(&mut self, tid: u32, ours: &Digest, theirs: &Digest, cycles: bool) {
        let mut theirs = theirs.times.iter().peekable();
        let mut their = None;
        for (index, &(from, our)) in ours.times.iter().enumerate() {
            let end = ours.times.get(index + 1).map_or(ours.instructions, |(next, _)| *next);
            let mut at = from;
            while at < end {
                while let Some((_, time)) = theirs.next_if(|(from, _)| *from <= at) {
                    their = Some(*time);
                }
                let next = theirs.peek().map_or(end, |(next, _)| end.min(*next));
                if let Some(their) = their {
                    let why = why(ours, our, their, cycles);
                    self.count(why, our.abs_diff(their), (tid, at), next - at);
                }
                at = next;
            }
        }
    }

    /// Counts consecutive instructions whose times differ by this much; the first one is `at`.
    fn count(&mut self, why: Why, difference: u64, at: (u32, u64), instructions: u64) {
        self.instructions += instructions;
        if difference == 0 {
            return;
        }
        let apart = &mut self.apart[why as usize];
        apart.instructions += instructions;
        if difference > apart.most {
            (apart.most, apart.at) = (difference, Some(at));
        }
    }

    /// Adds the comparison of other streams.
    pub(super) fn merge(&mut self, other: &Times) {
        self.instructions += other.instructions;
        for (sum, apart) in self.apart.iter_mut().zip(&other.apart) {
            sum.instructions += apart.instructions;
            if apart.most > sum.most {
                (sum.most, sum.at) = (apart.most, apart.at);
            }
        }
    }

    /// A sentence for each reason that occurs.
    pub(super) fn explain(&self) -> impl Iterator<Item = String> {
        let differing = REASONS.iter().zip(&self.apart).filter(|(_, apart)| apart.instructions > 0);
        differing.map(|((_, reason), apart)| {
            let share = 100.0 * apart.instructions as f64 / self.instructions as f64;
            let (tid, at) = apart.at.unwrap_or_default();
            format!(
                "{share:.2} % of the instructions have another time, by at most {} ns (instruction {at} of thread \
                 {tid}): {reason}",
                apart.most
            )
        })
    }
}

/// Our times never step back, so a search finds whether a packet has perf's time, and on which side of ours. An
/// estimate may happen to be the time of a later packet; perf only looks ahead for CYC packets.
fn why(ours: &Digest, our: u64, their: u64, cycles: bool) -> Why {
    match ours.times.binary_search_by_key(&their, |(_, time)| *time) {
        Ok(_) if their < our => Why::Behind,
        Ok(_) if cycles => Why::Ahead,
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
        Digest { instructions: 20, times: times.to_vec(), ..Digest::default() }
    }

    #[test]
    fn each_difference_has_its_reason() {
        let mut times = Times::default();
        let ours = digest(&[(2, 100), (10, 200), (16, 300)]);
        times.add(7, &ours, &digest(&[(0, 100), (9, 200), (12, 205), (16, 200), (19, 300)]), true);
        assert_eq!(times.instructions, 18);
        let apart = |instructions, most, at| Apart { instructions, most, at: Some((7, at)) };
        assert_eq!(times.apart, [apart(3, 100, 16), apart(1, 100, 9), apart(4, 5, 12)]);
    }
}
