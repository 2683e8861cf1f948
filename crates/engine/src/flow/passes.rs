//! The passes over a recording that come before the one that folds or writes it.

use hodo_model::Root;

use crate::{
    flow::{
        calls::{NthCalls, find_calls},
        selection_filter::numbers,
        system_calls::find_system_calls,
        trace::Trace,
    },
    reading::Reading,
    refusal::Refusal,
};

/// Receives the number of bytes read so far; returns whether to continue.
pub type Progress<'p> = &'p mut (dyn FnMut(u64) -> bool + Send);

/// A selection by the numbers of a thread's instructions, which first must be found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executions<'a> {
    /// Only while these calls execute.
    pub calls: Option<&'a NthCalls>,
    /// Only while this system call executes.
    pub system_call: Option<&'a Root>,
    /// Whether the instructions are numbered even if everything is selected.
    pub numbered: bool,
}

impl Executions<'_> {
    /// Returns the number of passes that find the executions.
    pub fn passes(&self) -> u64 {
        let finding = u64::from(self.calls.is_some()) + u64::from(self.system_call.is_some());
        finding + u64::from(finding > 0 || self.numbered)
    }
}

impl Trace<'_> {
    /// Finds executions, and calls `work` with the settings that select them. `progress` counts the bytes of all passes,
    /// also of the one that `work` does with the progress passed to it.
    ///
    /// # Errors
    /// Returns a refusal if the function was never called as selected.
    pub fn read<R>(
        &self,
        reading: Reading<'_>,
        executions: Executions<'_>,
        progress: Progress<'_>,
        work: impl FnOnce(Reading<'_>, Progress<'_>) -> R,
    ) -> Result<R, Refusal> {
        let (mut before, mut keep_going) = (0, true);
        let mut pass = |before: u64, done: u64| {
            keep_going &= progress(before + done);
            keep_going
        };
        let mut spans = None;
        if let Some(calls) = executions.calls {
            let found = find_calls(self, calls, reading, |done| pass(before, done));
            before += self.bytes();
            // A pass that `progress` stopped may have found nothing, too.
            if found.is_empty() && pass(before, 0) {
                return Err(calls.never_made(self));
            }
            spans = Some(found);
        }
        if let Some(root) = executions.system_call {
            let found = find_system_calls(self, root, reading, |done| pass(before, done));
            before += self.bytes();
            spans = Some(match &spans {
                Some(calls) => found.within(calls),
                None => found,
            });
        }
        let numbered = spans.is_some() || executions.numbered;
        let numbers = numbered.then(|| numbers(self, reading, |done| pass(before, done)));
        before += if numbered { self.bytes() } else { 0 };
        let reading = Reading { spans: spans.as_ref(), numbers: numbers.as_ref(), ..reading };
        Ok(work(reading, &mut |done| pass(before, done)))
    }
}
