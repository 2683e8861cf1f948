//! The model that formats, analyses and views share.
//!
//! ```text
//! task ──► Item… ──fold──► partial ──merge──► partial ──finish──► Table ──► view
//! ```
//!
//! A trace is cut into tasks. An [`Analysis`] folds the items of a task into a partial that starts from "unknown",
//! merges partials in order, and makes a [`Table`] of the whole. A [`Report`] is an analysis as users ask for it.
//! [`Loss`] travels the whole way: nothing is skipped in silence.

mod analysis;
mod counts;
mod erased;
mod flow;
mod function_run;
mod intervals;
mod loss;
mod period;
mod report;

pub mod event;
pub mod kernel;
pub mod pass;
pub mod table;
pub mod vocabulary;

pub use analysis::{
    Analysis, FastFlow, FinishContext, FlowInterest, Interest, Item, Plain, Selection, Start, only,
};
pub use counts::{Bin, CountInterest, Counts};
pub use erased::{AnyAnalysis, AnyPartial};
pub use flow::{
    Arrival, Code, End, FlowEvent, FunctionId, Names, NoSources, Place, Run, SourceLine, Sources,
};
pub use function_run::{FunctionRun, Numbering, Transfer};
pub use intervals::{Intervals, Marker, Nesting, Pattern, Prefix};
pub use loss::{Cause, Loss};
pub use period::{Edge, Period};
pub use report::{Description, Every, Maker, Parameters, Report, Simple, Takes, Visitor};
pub use table::{Column, Shape, Summary, Table, Type, Unit, Value};
