//! The thread whose critical path is shown.

use hodo_clock::Nanos;

use super::{
    history::{Doing, ThreadHistory, TraceKey},
    machine::Histories,
    table::PathNames,
};

/// A thread and the span of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) thread: TraceKey,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    /// How many threads were chosen; the path is of the first.
    pub(super) chosen: u64,
}

/// How good a subject is: its rank, then how long it lived or ran.
type Rank = (u8, u64);

/// Picks the best of the threads that the user chose. `None` if there are none.
pub(super) fn choose(histories: &Histories, naming: &PathNames<'_, '_>) -> Option<Subject> {
    let selection = naming.context.selection;
    let mut chosen = histories.all();
    chosen.retain(|(thread, _)| naming.is_wanted(*thread));
    let count = chosen.len() as u64;
    let boards = histories.boards();
    let rated = chosen.into_iter().map(|(thread, history)| {
        let (from, to) = life(history, naming.context.span);
        let is_main = boards.contains(thread.trace) && !boards.has_scheduler(thread.trace);
        let rank: Rank = match (is_main, is_whole(history)) {
            (true, _) => (2, to.0.saturating_sub(from.0)),
            (false, true) => (1, to.0.saturating_sub(from.0)),
            (false, false) => (0, running(history, naming.context.span)),
        };
        (rank, thread, from, to)
    });
    // Of equal ones, the first.
    let (_, thread, from, to) = rated.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    let (from, to) = match selection.window {
        Some((begin, end)) => (from.max(begin).min(to), to.min(end).max(from)),
        None => (from, to),
    };
    Some(Subject { thread, from, to: to.max(from), chosen: count })
}

/// When a thread began and ended in the trace.
fn life(history: &ThreadHistory, (begin, end): (Nanos, Nanos)) -> (Nanos, Nanos) {
    let first = history.first().map_or(begin, |change| change.time).max(begin);
    let last = history.last().filter(|change| change.to == Doing::Ended);
    (first, last.map_or(end, |change| change.time).max(first))
}

/// Whether a thread both began and ended in the trace.
fn is_whole(history: &ThreadHistory) -> bool {
    matches!(history.first().map(|change| change.to), Some(Doing::Born(_)))
        && history.last().is_some_and(|change| change.to == Doing::Ended)
}

/// How long a thread ran.
fn running(history: &ThreadHistory, (begin, end): (Nanos, Nanos)) -> u64 {
    let runs = history.stretches().filter(|stretch| matches!(stretch.to, Doing::Running(_)));
    runs.map(|stretch| stretch.end.unwrap_or(end).0.saturating_sub(stretch.begin.max(begin).0)).sum()
}
