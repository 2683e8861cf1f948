//! The parts of `hodo latency` that need the program's code: resolves markers, and builds and compares call trees of
//! single executions.
//!
//! ```text
//! names ──resolve──► Intervals ──Experiment::run──► table of executions ──► percentiles, histogram
//!                                                        │ some of them
//!                                                        └──trees: another pass──► call trees ──compare──► what is extra
//! ```

mod compare;
mod loops;
mod off_cpu;
mod resolve;
mod sample;
mod slowest;
mod trees;

pub use compare::{Calls, Cause, Compared, Difference, ExtraSums, Kind, aligned, causes, compare};
pub use hodo_analyses::latency::{
    Grouping, HistogramBin, Interval, IntervalEnd, Measure, Named, NamedPair, PERCENTILES, PairsError, Scale,
    bins, grouped, histogram, humps, may_be_written, nearest_of, of_table, parse, percentile, shipped,
    summary, user_pairs,
};
pub use loops::{LoopBlock, loops};
pub use resolve::{function, functions, markers};
pub use sample::{ExecutionSample, SampledExecution, Thinned, WantedFunction, sample};
pub use slowest::{ExecutionLocation, Measured, location, slow_from, slowest, typical};
pub use trees::{CallNode, CallTree, trees};
