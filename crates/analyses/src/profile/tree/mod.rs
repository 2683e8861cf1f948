//! The exact profile as a tree of call paths, from which the profile by function can also be derived.

mod nodes;
mod partial;
mod paths;
mod rooted;
mod whole;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Every, FastFlow, FinishContext, FlowEvent, FlowInterest, FunctionRun, Interest, Item,
    Numbering, Root, Run, Start, Table, kernel::Threads,
};

use self::{partial::Partial, paths::Paths, whole::CallTree};
use super::Report;

/// An analysis that computes the profile with its call paths, and samples if requested.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The sampling period, if samples are counted too.
    pub every: Option<Every>,
    /// The report to make.
    pub report: Report,
}

impl FastFlow for Profile {
    type Memory = Paths;

    const TAKES_FUNCTION_RUNS: bool = true;

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut Partial,
        functions: &impl Numbering,
        function_runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        FunctionRun::runs(function_runs, functions).for_each(|run| partial.fold_run(self.every, &run));
        until.into_iter().for_each(|until| partial.fold(self.every, FlowEvent::Time(until)));
    }

    fn exchange(&self, partial: &mut Partial, memory: &mut Paths) {
        partial.exchange(memory);
    }

    fn state(&self, partial: &mut Partial) -> Option<u32> {
        // Samples depend on the order of execution, so paths can't be memoized.
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

    fn join(&self, partial: &mut Partial, first: u32, second: u32) -> Option<u32> {
        Some(partial.join(first, second))
    }

    #[inline]
    fn fold_path(&self, partial: &mut Partial, path: u32) {
        partial.fold_path(path);
    }

    fn resume(&self, partial: &mut Partial, state: u32) {
        partial.resume(state);
    }
}

impl Analysis for Profile {
    type Partial = Partial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(match self.every {
            Some(Every::Instructions(_)) => FlowInterest::Numbered,
            _ => FlowInterest::Runs,
        })
    }

    fn begin(&self, _: &Start<'_>) -> Partial {
        Partial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, item: Item<'_>) {
        if let Item::Flow(seen) = item {
            partial.fold(self.every, seen);
        }
    }

    fn merge(&self, earlier: Partial, later: Partial, _: &Threads) -> Partial {
        earlier.merge(later)
    }

    fn is_sound(&self, partial: &Partial) -> bool {
        partial.is_sound()
    }

    fn finish(&self, threads: Vec<Partial>, of: &FinishContext<'_>) -> Table {
        let of_system_call =
            self.report == Report::Paths && matches!(of.selection.root, Some(Root::SystemCall(_)));
        let whole = CallTree::new(threads.into_iter().map(Partial::close), of_system_call);
        match self.report {
            Report::Functions => whole.functions(of.functions(), self.every),
            Report::Tree => whole.tree(of.functions(), self.every),
            Report::Paths => whole.paths(of.functions(), of.selection),
        }
    }
}
