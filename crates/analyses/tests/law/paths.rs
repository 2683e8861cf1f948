//! Random control flow as memoized paths.

use hodo_model::{Analysis, FastFlow, FlowEvent, Item, Run, Start, Table, Transfer};

use crate::traces::flow::finish;

/// A run, and the events that it stands for.
type RunEvents<'e> = (Run, Vec<FlowEvent<'e>>);

/// Folds runs as paths, as far as the analysis takes them.
struct Walk<'a, A: FastFlow> {
    analysis: &'a A,
    partial: A::Partial,
    memory: A::Memory,
    /// The state after the last path; `None` while events are folded one by one.
    state: Option<u32>,
    /// The number of paths so far, which decides how long the next is.
    paths: usize,
}

impl<A: FastFlow> Walk<'_, A> {
    fn event(&mut self, event: FlowEvent<'_>) {
        Analysis::fold(self.analysis, &mut self.partial, Item::Flow(event));
    }

    /// Ends a sequence of paths.
    fn resume(&mut self) {
        if let Some(state) = self.state.take() {
            self.analysis.resume(&mut self.partial, state);
        }
    }

    /// Memoizes runs; returns the path and the state after it.
    fn learn(&mut self, state: u32, runs: &[RunEvents<'_>]) -> Option<(u32, u32)> {
        self.analysis.learn(&mut self.partial, state, runs.iter().map(|(run, _)| *run))
    }

    /// Folds runs that follow each other: in paths of different lengths, every second one joined of two.
    fn runs(&mut self, mut runs: &[RunEvents<'_>]) {
        while !runs.is_empty() {
            self.paths += 1;
            let (path, rest) = runs.split_at((1 + self.paths % 3).min(runs.len()));
            runs = rest;
            let state = self.state.or_else(|| self.analysis.state(&mut self.partial));
            let Some((learned, after)) = state.and_then(|state| self.learn(state, path)) else {
                self.resume();
                path.iter().flat_map(|(_, events)| events).for_each(|event| self.event(*event));
                continue;
            };
            let (next, rest) = runs.split_at(self.paths % 2 * runs.len().min(2));
            let joined = match next {
                [] => None,
                next => self.learn(after, next).and_then(|(second, after)| {
                    Some((self.analysis.join(&mut self.partial, learned, second)?, after))
                }),
            };
            if joined.is_some() {
                runs = rest;
            }
            let (path, after) = joined.unwrap_or((learned, after));
            self.analysis.fold_path(&mut self.partial, path);
            self.state = Some(after);
        }
    }
}

/// The table of a thread that is folded as paths.
pub(crate) fn table_of_paths<A: FastFlow>(analysis: &A, segments: &[Vec<FlowEvent<'_>>]) -> Table {
    let partial = Analysis::begin(analysis, &Start::default());
    let mut walk = Walk { analysis, partial, memory: A::Memory::default(), state: None, paths: 0 };
    walk.analysis.exchange(&mut walk.partial, &mut walk.memory);
    let mut runs: Vec<RunEvents<'_>> = Vec::new();
    for &event in segments.iter().flatten() {
        match (event, runs.last_mut()) {
            // Code beyond the border of a filter's range makes no runs.
            (FlowEvent::Run { at, instructions, .. }, _) if instructions > 0 => {
                runs.push((Run { at, instructions, transfer: Transfer::None, end: 0 }, vec![event]));
                continue;
            }
            (FlowEvent::Call { return_address }, Some((run, events))) => {
                (run.transfer, run.end) = (Transfer::Call, return_address);
                events.push(event);
            }
            (FlowEvent::Return, Some((run, events))) => {
                run.transfer = Transfer::Return;
                events.push(event);
            }
            (FlowEvent::IndirectJump, Some((run, events))) => {
                run.transfer = Transfer::IndirectJump;
                events.push(event);
            }
            _ => {
                walk.runs(&runs);
                runs.clear();
                if !matches!(event, FlowEvent::Time(_)) {
                    walk.resume();
                }
                walk.event(event);
            }
        }
    }
    walk.runs(&runs);
    walk.resume();
    walk.analysis.exchange(&mut walk.partial, &mut walk.memory);
    finish(analysis, vec![Box::new(walk.partial)])
}
