//! The parts of `hodo path` that need control flow: what ran in the stretches of a path.
//!
//! ```text
//! Experiment::run ──► table of the view `stretch` ──running──► stretches ──executed──► tables ──with_functions──► table
//! ```

use hodo_analyses::critical_path::FunctionsOfStretches;
pub use hodo_analyses::critical_path::{ThreadStretch, running, with_functions};
use hodo_model::{Selection, Table};

use crate::{
    flow::trace::Trace,
    reading::Reading,
    registry::{AnyFlow, FlowPartial},
};

/// Returns the functions that threads ran in stretches, which are in order and do not overlap: a row for each stretch, by
/// its number, and function. `progress` gets the number of decoded bytes and returns whether to continue.
pub fn executed(
    flow: &Trace<'_>,
    stretches: Vec<ThreadStretch>,
    reading: Reading<'_>,
    progress: &mut (dyn FnMut(u64) -> bool + Send),
) -> Table {
    let analysis = FunctionsOfStretches::new(stretches);
    let (partial, losses) = analysis.fold_flow(flow, &flow.chunks(reading), reading, progress);
    let mut tables = FlowPartial::finish(vec![(partial, flow)], &analysis, &Selection::default());
    tables.pop().expect("a trace has a table").with_loss(losses.into_list())
}
