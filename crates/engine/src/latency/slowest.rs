//! Which executions to compare.

use std::ops::Range;

use super::{Interval, humps};

/// An execution whose length is known.
pub trait Measured {
    /// Number of instructions executed in it; `None` for events.
    fn instructions(&self) -> Option<u64>;

    /// Duration in nanoseconds, if known.
    fn time(&self) -> Option<u64>;
}

impl Measured for Interval {
    fn instructions(&self) -> Option<u64> {
        self.instructions
    }

    fn time(&self) -> Option<u64> {
        self.time
    }
}

/// Call trees in memory at most.
const MOST_TREES: usize = 20_000;

/// Returns the slowest 1 % of executions; of two kinds of executions ([`humps`]) all slow ones if they are more; at most
/// 20,000. They are given worst first.
pub fn slowest<'i, E: Measured>(worst_first: &[&'i E]) -> Vec<&'i E> {
    let slow: Vec<&E> = match large_hump(worst_first) {
        Some(from) => {
            worst_first.iter().copied().filter(|execution| execution.instructions() >= Some(from)).collect()
        }
        None => worst_first.iter().copied().take(worst_first.len().div_ceil(100)).collect(),
    };
    slow.into_iter().take(MOST_TREES).collect()
}

/// Returns the median execution by instructions; of two kinds of executions the median of the fast ones if the slow ones
/// are more than 1 %.
pub fn typical<'i, E: Measured>(executions: &[&'i E]) -> Option<&'i E> {
    let mut sorted = executions.to_vec();
    if let Some(from) = large_hump(executions) {
        sorted.retain(|execution| execution.instructions() < Some(from));
    }
    sorted.sort_by_key(|interval| (interval.instructions(), interval.time()));
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Returns the instructions of the shortest slow execution: of the slow kind, or of the slowest 1 % by rank.
pub fn slow_from<E: Measured>(executions: &[&E]) -> Option<u64> {
    let lengths = lengths(executions);
    let mut rank = (executions.len() as u64).div_ceil(100);
    let by_rank = lengths.iter().rev().find(|(_, count)| {
        rank = rank.saturating_sub(*count);
        rank == 0
    });
    humps(&lengths).map(|humps| humps.from).or(by_rank.map(|(length, _)| *length))
}

/// Returns the lengths of executions in ascending order, with their counts.
fn lengths<E: Measured>(executions: &[&E]) -> Vec<(u64, u64)> {
    let mut lengths: Vec<u64> = executions.iter().filter_map(|execution| execution.instructions()).collect();
    lengths.sort_unstable();
    lengths.chunk_by(|one, other| one == other).map(|same| (same[0], same.len() as u64)).collect()
}

/// Returns the instructions of the shortest execution of the slow kind, if there are two kinds and the slow ones are more
/// than 1 %.
fn large_hump<E: Measured>(executions: &[&E]) -> Option<u64> {
    let humps = humps(&lengths(executions))?;
    (humps.slow.count > (executions.len() as u64).div_ceil(100)).then_some(humps.from)
}

/// Where an execution is in the control flow.
#[derive(Clone, Debug)]
pub struct ExecutionLocation {
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// The numbers of its instructions in the thread.
    pub instructions: Range<u64>,
}

/// Returns where an execution is in the control flow; `None` if it is of software events.
pub fn location(execution: &Interval) -> Option<ExecutionLocation> {
    let (pid, tid) = execution.thread.split_once('/')?;
    let first = execution.first?;
    let instructions = first..first + execution.instructions?;
    Some(ExecutionLocation { pid: pid.parse().ok()?, tid: tid.parse().ok()?, instructions })
}
