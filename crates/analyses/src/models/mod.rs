//! `models`: what a branch predictor and an instruction cache of a known design would do with the exact flow.
//!
//! ```text
//! runs of instructions ─┬─► Cache: lines fetched ─────────────────┐
//!                       ├─► Predictor ×3: outcomes of branches ───┼─► misses of each block ─► Table, columns `modelled_…`
//!                       └─► Targets: targets of indirect branches ┘
//! ```
//!
//! Nothing here was measured on a processor, so each column says `modelled`. A chunk begins in the middle of a run, where
//! the state of a model is unknown. Each model therefore keeps, beside what is certain, what depends on the state before
//! the chunk; joining two chunks decides it. So results are exact, however the trace is divided, and memory depends on
//! the code and on the sizes of the models only.
//!
//! Each thread has its own models, as on a core of its own. They begin empty, as Cachegrind's do.

mod cache;
mod counters;
mod predictor;
mod state;
mod table;
mod targets;

use hodo_model::{
    Analysis, CacheGeometry, Description, FastFlow, FinishContext, FlowInterest, FlowLoop, Interest, Item,
    Made, Report, Start, Table, Takes, kernel::Threads,
};

pub use self::state::ModelState;

/// The analysis.
#[derive(Clone, Copy, Debug, Default)]
pub struct Models {
    /// The size and shape of the instruction cache.
    pub icache: CacheGeometry,
}

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "models",
            help: "modelled, not measured: misses of branch predictors and of an instruction cache, and the cost of code",
            views: &["function", "block", "branch"],
            takes: Takes { icache: true, ..Takes::THREADS },
            ..Description::EMPTY
        },
        make: |parameters| Made::of_flow(Models { icache: parameters.icache.unwrap_or_default() }),
    }
}

impl Analysis for Models {
    type Partial = ModelState;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> ModelState {
        ModelState::unknown(self.icache)
    }

    #[inline]
    fn fold(&self, partial: &mut ModelState, item: Item<'_>) {
        if let Item::Flow(event) = item {
            partial.fold(event);
        }
    }

    fn merge(&self, earlier: ModelState, later: ModelState, _: &Threads) -> ModelState {
        earlier.merge(later)
    }

    fn is_sound(&self, partial: &ModelState) -> bool {
        partial.is_sound(self.icache)
    }

    fn finish(&self, threads: Vec<ModelState>, context: &FinishContext<'_>) -> Table {
        let count = threads.len() as u64;
        let finished: Vec<ModelState> =
            threads.into_iter().map(|thread| thread.begun_empty(self.icache)).collect();
        table::table(&finished, count, self.icache, context)
    }
}

impl FastFlow for Models {
    type Memory = ();
}
