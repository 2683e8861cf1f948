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

/// The kinds of threads, the best subject last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It began before the trace, or did not end in it.
    Incomplete,
    /// It began and ended in the trace.
    Whole,
    /// The only thread of a board without a scheduler.
    Board,
}

/// Picks the best of the threads that the user chose. `None` if there are none.
pub(super) fn choose(histories: &Histories, naming: &PathNames<'_, '_>) -> Option<Subject> {
    let selection = naming.context.selection;
    let mut chosen = histories.all();
    chosen.retain(|(thread, _)| naming.is_wanted(*thread));
    let count = chosen.len() as u64;
    let boards = histories.boards();
    let rated = chosen.into_iter().map(|(thread, history)| {
        let (from, to) = life(history, naming.context.span);
        let lived = to.0.saturating_sub(from.0);
        let rating = if boards.contains(thread.trace) && !boards.has_scheduler(thread.trace) {
            (Rank::Board, lived)
        } else if is_whole(history) {
            (Rank::Whole, lived)
        } else {
            (Rank::Incomplete, running(history, naming.context.span))
        };
        (rating, Subject { thread, from, to, chosen: count })
    });
    // Of equal ones, the first.
    let (_, mut subject) = rated.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    if let Some((begin, end)) = selection.window {
        let Subject { from, to, .. } = subject;
        (subject.from, subject.to) = (from.max(begin).min(to), to.min(end).max(from));
    }
    subject.to = subject.to.max(subject.from);
    Some(subject)
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
