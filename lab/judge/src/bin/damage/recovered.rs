//! Measures how much of what ran a decoder recovers from damaged bytes: ours and perf's, in the same way.

use std::{
    collections::HashMap,
    path::Path,
    process::{Command, Stdio},
};

use imara_diff::{Algorithm, Diff, InternedInput};
use memchr::memmem;

/// The time limit of perf, in seconds.
const PERF_LIMIT: &str = "30";

/// Correct instructions, in order, and wrong ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) right: u64,
    pub(crate) wrong: u64,
}

/// The length of a sequence of instructions that identifies a position in a stream.
const ANCHOR: usize = 64;

/// What ran, and the positions of the unique sequences of [`ANCHOR`] instructions.
pub(crate) struct Ran {
    pub(crate) instructions: Vec<u64>,
    anchors: HashMap<u64, Option<usize>>,
}

/// A run in both streams: its begin in the shown and in the true instructions, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    shown: usize,
    ran: usize,
    length: usize,
}

impl Ran {
    pub(crate) fn new(instructions: Vec<u64>) -> Ran {
        let mut anchors = HashMap::new();
        for (at, hash) in hashes(&instructions).enumerate() {
            anchors.entry(hash).and_modify(|position| *position = None).or_insert(Some(at));
        }
        Ran { instructions, anchors }
    }

    /// Aligns the shown instructions with what ran.
    pub(crate) fn recovered(&self, shown: &[u64]) -> Recovered {
        let (mut shown_until, mut ran_until, mut right) = (0_usize, 0_usize, 0);
        let end = Match { shown: shown.len(), ran: self.instructions.len(), length: 0 };
        for next in chain(&self.matches(shown)).into_iter().chain([end]) {
            // A run that overlaps the one before it continues after that.
            let overlap = shown_until.saturating_sub(next.shown).max(ran_until.saturating_sub(next.ran));
            let skip = overlap.min(next.length);
            let shown_between = &shown[shown_until..shown_until.max(next.shown + skip)];
            let ran_between = &self.instructions[ran_until..ran_until.max(next.ran + skip)];
            right += between(shown_between, ran_between) + (next.length - skip) as u64;
            (shown_until, ran_until) = (next.shown + next.length, next.ran + next.length);
        }
        Recovered { right, wrong: shown.len() as u64 - right }
    }

    /// The runs around each anchor, extended as far as possible in both directions.
    fn matches(&self, shown: &[u64]) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        let mut behind = 0;
        for (at, hash) in hashes(shown).enumerate() {
            let Some(&Some(position)) = self.anchors.get(&hash).filter(|_| at >= behind) else { continue };
            let back = alike(shown[behind..at].iter().rev(), self.instructions[..position].iter().rev());
            let length = back + alike(&shown[at..], &self.instructions[position..]);
            matches.push(Match { shown: at - back, ran: position - back, length });
            behind = at - back + length.max(1);
        }
        matches
    }
}

/// The runs in order in both streams that contain the most instructions in total. A run may begin before the one before
/// it ends.
fn chain(matches: &[Match]) -> Vec<Match> {
    // For each run, the most instructions in a chain that ends with it, and the run before it.
    let mut best: Vec<(usize, Option<usize>)> = Vec::new();
    for this in matches {
        let longer_chains =
            matches.iter().zip(&best).enumerate().filter_map(|(index, (before, (sum, _)))| {
                let twice = (before.ran + before.length).saturating_sub(this.ran);
                (before.ran < this.ran && twice < this.length)
                    .then(|| (sum + this.length - twice, Some(index)))
            });
        best.push(longer_chains.chain([(this.length, None)]).max().unwrap_or_default());
    }
    let mut last = (0..matches.len()).max_by_key(|&index| best[index].0);
    let mut chain = Vec::new();
    while let Some(index) = last {
        chain.push(matches[index]);
        last = best[index].1;
    }
    chain.reverse();
    chain
}

/// The number of common instructions, in order, in two sequences without anchors.
fn between(shown: &[u64], ran: &[u64]) -> u64 {
    // A contiguous match needs no diff, whose heuristics are imprecise in loops.
    let bytes =
        |stretch: &[u64]| stretch.iter().flat_map(|address| address.to_le_bytes()).collect::<Vec<u8>>();
    if memmem::find_iter(&bytes(ran), &bytes(shown)).any(|at| at % size_of::<u64>() == 0) {
        return shown.len() as u64;
    }
    let mut input = InternedInput::default();
    input.update_before(ran.iter().copied());
    input.update_after(shown.iter().copied());
    shown.len() as u64 - u64::from(Diff::compute(Algorithm::Myers, &input).count_additions())
}

fn alike<'a>(one: impl IntoIterator<Item = &'a u64>, other: impl IntoIterator<Item = &'a u64>) -> usize {
    one.into_iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// A polynomial hash of each sequence of [`ANCHOR`] instructions (Rabin and Karp, 1987).
fn hashes(instructions: &[u64]) -> impl Iterator<Item = u64> {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let oldest = BASE.wrapping_pow(ANCHOR as u32);
    instructions
        .iter()
        .enumerate()
        .scan(0u64, move |hash, (at, &address)| {
            *hash = hash.wrapping_mul(BASE).wrapping_add(address);
            if let Some(gone) = at.checked_sub(ANCHOR) {
                *hash = hash.wrapping_sub(instructions[gone].wrapping_mul(oldest));
            }
            Some(*hash)
        })
        .skip(ANCHOR - 1)
}

/// The instructions that perf decodes from a recording.
pub(crate) fn perf(file: &Path, symfs: Option<&Path>) -> Result<Vec<u64>, String> {
    let mut perf = Command::new("timeout");
    perf.args([PERF_LIMIT, "perf", "script", "--itrace=i0ns", "-F", "ip", "-i"]).arg(file);
    if let Some(symfs) = symfs {
        perf.arg("--symfs").arg(symfs);
    }
    let output = perf.stderr(Stdio::null()).output().map_err(|error| format!("can't start perf: {error}"))?;
    // A line without an address is an error that perf found in the trace.
    let lines = output.stdout.split(|&byte| byte == b'\n');
    Ok(lines
        .filter_map(|line| {
            std::str::from_utf8(line.trim_ascii()).ok().and_then(|line| u64::from_str_radix(line, 16).ok())
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(shown: &[u64], ran: &[u64]) -> (u64, u64) {
        let Recovered { right, wrong } = Ran::new(ran.to_vec()).recovered(shown);
        (right, wrong)
    }

    #[test]
    fn what_is_right_is_counted_once_and_in_order() {
        let ran: Vec<u64> = (0..1000).collect();
        assert_eq!(recovered(&ran, &ran), (1000, 0));
        assert_eq!(recovered(&ran[..400], &ran), (400, 0));
        assert_eq!(recovered(&[&ran[..300], &ran[500..]].concat(), &ran), (800, 0));
        assert_eq!(recovered(&[&ran[..300], &[7; 50], &ran[500..]].concat(), &ran), (800, 50));
        // Repeated or late instructions do not count again.
        assert_eq!(recovered(&[&ran[..600], &ran[500..]].concat(), &ran), (1000, 100));
        assert_eq!(recovered(&[&ran[500..], &ran[..400]].concat(), &ran), (500, 400));
        assert_eq!(recovered(&[], &ran), (0, 0));
    }

    #[test]
    fn loops_without_anchors_count_too() {
        let ran: Vec<u64> = (0..1000).map(|at| at % 10).collect();
        assert_eq!(recovered(&ran[..500], &ran), (500, 0));
        // Longer loops, in which no sequence is unique.
        let ran: Vec<u64> = (0..40_000).map(|at| at % 7 + 10 * (at / 100 % 3)).collect();
        assert_eq!(recovered(&ran[20_000..29_000], &ran), (9000, 0));
    }
}
