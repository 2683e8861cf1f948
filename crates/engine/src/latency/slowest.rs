//! Which executions to compare.

use std::ops::Range;

use super::Interval;

/// Call trees in memory at most.
const MOST_TREES: usize = 20_000;

/// Returns the slowest 1 % of executions, at most 20,000; they are given worst first.
pub fn slowest<'i>(worst_first: &[&'i Interval]) -> Vec<&'i Interval> {
    worst_first.iter().copied().take(worst_first.len().div_ceil(100).min(MOST_TREES)).collect()
}

/// Returns the median execution by instructions.
pub fn typical<'i>(executions: &[&'i Interval]) -> Option<&'i Interval> {
    let mut sorted = executions.to_vec();
    sorted.sort_by_key(|interval| (interval.instructions, interval.time));
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
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
