//! The exact profile as a tree of call paths, from which the profile by function can also be derived.

mod nodes;
mod partial;
mod paths;
mod roles;
mod rooted;
mod whole;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, Every, FastFlow, FinishContext, FlowEvent, FlowInterest, FunctionRun, Interest, Item,
    Numbering, Root, Run, Start, Table, kernel::Threads,
};

use self::{partial::TreePartial, paths::TreePaths, whole::MergedTree};
use super::ProfileReport;

/// An analysis that computes the profile with its call paths, and samples if requested.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The sampling period, if samples are counted too.
    pub every: Option<Every>,
    /// The report to make.
    pub report: ProfileReport,
}

impl FastFlow for Profile {
    type Memory = TreePaths;

    const TAKES_FUNCTION_RUNS: bool = true;

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut TreePartial,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        FunctionRun::runs(runs, functions).for_each(|run| partial.fold_run(self.every, &run));
        until.into_iter().for_each(|until| partial.fold(self.every, FlowEvent::Time(until)));
    }

    fn exchange(&self, partial: &mut TreePartial, memory: &mut TreePaths) {
        partial.exchange(memory);
    }

    fn state(&self, partial: &mut TreePartial) -> Option<u32> {
        // Samples depend on the order of execution, so paths can't be memoized.
        if self.every.is_some() { None } else { partial.state() }
    }

    fn learn(
        &self,
        partial: &mut TreePartial,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        partial.learn(state, runs)
    }

    fn join(&self, partial: &mut TreePartial, first: u32, second: u32) -> Option<u32> {
        Some(partial.join(first, second))
    }

    #[inline]
    fn fold_path(&self, partial: &mut TreePartial, path: u32) {
        partial.fold_path(path);
    }

    fn resume(&self, partial: &mut TreePartial, state: u32) {
        partial.resume(state);
    }
}

impl Analysis for Profile {
    type Partial = TreePartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(match self.every {
            Some(Every::Instructions(_)) => FlowInterest::Numbered,
            _ => FlowInterest::Runs,
        })
    }

    fn begin(&self, _: &Start<'_>) -> TreePartial {
        TreePartial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut TreePartial, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(self.every, event);
        }
    }

    fn merge(&self, earlier: TreePartial, later: TreePartial, _: &Threads) -> TreePartial {
        earlier.merge(later)
    }

    fn is_sound(&self, partial: &TreePartial) -> bool {
        partial.is_sound()
    }

    fn finish(&self, threads: Vec<TreePartial>, context: &FinishContext<'_>) -> Table {
        if self.report == ProfileReport::Tree && context.selection.view == "thread" {
            return roles::roles(threads, context);
        }
        let threads = threads.into_iter().map(TreePartial::close);
        let interrupts = matches!(context.selection.root, Some(Root::SystemCall(_)));
        match self.report {
            ProfileReport::Functions => MergedTree::functions(threads, context, self.every),
            ProfileReport::Tree => {
                let interrupts = false;
                let whole = MergedTree::new(threads, interrupts);
                whole.tree(context.functions(), self.every, context.selection.view != "path")
            }
            ProfileReport::Paths => {
                MergedTree::new(threads, interrupts).paths(context.functions(), context.selection)
            }
        }
    }
}
