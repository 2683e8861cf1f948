//! The exact profile as a tree of call paths, of which that of functions can be told too.

mod nodes;
mod partial;
mod paths;
mod whole;

use hodo_clock::Nanos;
use hodo_trace::{Analysis, Names, Numbering, Run, Seen, Stretch, Table};

use self::{partial::Partial, paths::Paths, whole::Whole};
use super::{Every, Report};

/// The profile with its call paths, and with samples if they are asked for, as an analysis.
pub struct Profile<'a> {
    /// How far the samples lie apart that are counted too, if any are.
    pub every: Option<Every>,
    /// How it is drawn.
    pub report: Report,
    /// Names of functions.
    pub names: &'a dyn Names,
}

impl Analysis for Profile<'_> {
    type Partial = Partial;
    type Memory = Paths;

    fn needs_numbers(&self) -> bool {
        matches!(self.every, Some(Every::Instructions(_)))
    }

    fn unknown(&self) -> Partial {
        Partial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, seen: Seen<'_>) {
        partial.fold(self.every, seen);
    }

    const TAKES_STRETCHES: bool = true;

    #[inline]
    fn fold_stretches(
        &self,
        partial: &mut Partial,
        functions: &impl Numbering,
        stretches: &[Stretch],
        until: Option<Nanos>,
    ) {
        Stretch::runs(stretches, functions).for_each(|run| partial.fold_run(self.every, &run));
        until.into_iter().for_each(|until| partial.fold(self.every, Seen::Time(until)));
    }

    fn exchange(&self, partial: &mut Partial, memory: &mut Paths) {
        partial.exchange(memory);
    }

    fn state(&self, partial: &mut Partial) -> Option<u32> {
        // Samples depend on the order of what ran.
        if self.every.is_some() { None } else { partial.state() }
    }

    fn learn(
        &self,
        partial: &mut Partial,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        partial.learn(state, runs)
    }

    #[inline]
    fn fold_path(&self, partial: &mut Partial, path: u32) {
        partial.fold_path(path);
    }

    fn resume(&self, partial: &mut Partial, state: u32) {
        partial.resume(state);
    }

    fn merge(&self, earlier: Partial, later: Partial) -> Partial {
        earlier.merge(later)
    }

    fn finish(&self, threads: Vec<Partial>) -> Table {
        let whole = Whole::new(threads.into_iter().map(Partial::close));
        match self.report {
            Report::Functions => whole.functions(self.names, self.every),
            Report::Tree => whole.tree(self.names, self.every),
        }
    }
}
