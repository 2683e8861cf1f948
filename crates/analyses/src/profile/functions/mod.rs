//! The exact profile of functions: sums alone, without a tree of call paths.
//!
//! The inclusive cost of a function is the total when its last frame is popped minus the total when its first frame is
//! pushed. So each function has a count of its frames on the stack, and only a change of this count from or to zero
//! needs a subtraction.
//!
//! A chunk begins with an unknown stack, like that of a [tree](super::tree). Each of its *pieces* has its own sums:
//! merging drops the sums of functions that are on the stack below, because the difference there includes them.

mod costs;
mod partial;
mod paths;

use hodo_clock::Nanos;
use hodo_model::{
    Analysis, FastFlow, FinishContext, FlowInterest, FunctionRun, Interest, Item, Numbering, Run, Start,
    Table, kernel::Threads,
};

use self::{costs::CostAmount, partial::FunctionsPartial, paths::FunctionPaths};
use super::{
    cost::{OwnCost, ProfileCost, RareCosts},
    table::{self, Amounts},
};

/// The analysis of function profiles without samples.
#[derive(Clone, Copy, Debug)]
pub struct Functions;

impl FastFlow for Functions {
    type Memory = FunctionPaths;

    const TAKES_FUNCTION_RUNS: bool = true;

    #[inline]
    fn fold_function_runs(
        &self,
        partial: &mut FunctionsPartial,
        functions: &impl Numbering,
        runs: &[FunctionRun],
        until: Option<Nanos>,
    ) {
        partial.fold_function_runs(functions, runs, until);
    }

    fn exchange(&self, partial: &mut FunctionsPartial, memory: &mut FunctionPaths) {
        partial.exchange(memory);
    }

    fn state(&self, partial: &mut FunctionsPartial) -> Option<u32> {
        partial.state()
    }

    fn learn(
        &self,
        partial: &mut FunctionsPartial,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        partial.learn(state, runs)
    }

    fn join(&self, partial: &mut FunctionsPartial, first: u32, second: u32) -> Option<u32> {
        Some(partial.join(first, second))
    }

    #[inline]
    fn fold_path(&self, partial: &mut FunctionsPartial, path: u32) {
        partial.fold_path(path);
    }

    fn resume(&self, partial: &mut FunctionsPartial, state: u32) {
        partial.resume(state);
    }
}

impl Analysis for Functions {
    type Partial = FunctionsPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> FunctionsPartial {
        FunctionsPartial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut FunctionsPartial, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(event);
        }
    }

    fn merge(&self, earlier: FunctionsPartial, later: FunctionsPartial, _: &Threads) -> FunctionsPartial {
        earlier.merge(later)
    }

    fn is_sound(&self, partial: &FunctionsPartial) -> bool {
        partial.is_sound()
    }

    fn finish(&self, threads: Vec<FunctionsPartial>, context: &FinishContext<'_>) -> Table {
        let mut functions = table::Functions::new(&context.selection.view);
        let mut all = Amounts { threads: threads.len() as u64, ..Amounts::default() };
        for thread in threads {
            let whole = thread.close();
            all.sums.add(&whole.sums);
            all.cost.rare.outside = all.cost.rare.outside.saturating_add(whole.outside);
            let of_thread = functions.next_thread();
            for (holder, account) in whole.by_function() {
                let CostAmount { instructions, time } = account.own;
                let own = OwnCost { entries: 0, instructions, time };
                let own = ProfileCost { ran: own, rare: RareCosts::default() };
                all.cost.add(&own);
                let function = of_thread.entry(holder.function).or_default();
                function.own.add(&own);
                function.calls = function.calls.saturating_add(account.calls);
                function.jumps = function.jumps.saturating_add(holder.jumps);
                function.instructions = function.instructions.saturating_add(account.sum.instructions);
                function.time = function.time.saturating_add(account.sum.time);
            }
        }
        table::functions(functions, &all, context, None)
    }
}
