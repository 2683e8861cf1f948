//! The model that formats, analyses and views share.
//!
//! ```text
//! task ──► Item… ──fold──► partial ──merge──► partial ──finish──► Table ──► view
//! ```
//!
//! A trace is split into tasks. An [`Analysis`] folds the items of a task into a partial that assumes nothing about
//! what came before, merges partials in order, and finishes the last one into a [`Table`]. A [`Report`] is an
//! analysis as users request it. [`Loss`] is carried through every step, so that nothing is skipped silently.

#![deny(missing_docs)]

mod analysis;
mod cache;
mod counts;
mod erased;
mod expression;
mod flow;
mod intervals;
mod loss;
mod period;
mod recorder;
mod report;
mod root;

pub mod digits;
pub mod event;
pub mod function_name;
pub mod kernel;
pub mod pass;
pub mod table;
pub mod vocabulary;

pub use hodo_code::{Arrival, FunctionId, FunctionRun, Isa, Numbering, Place, Run, Transfer};

pub use analysis::{
    Analysis, EventAnalysis, EventPartial, FastFlow, FinishContext, FlowInterest, FlowThread, Interest, Item,
    Selection, Start, only,
};
pub use cache::CacheGeometry;
pub use counts::{Bin, CountInterest, Counts};
pub use erased::{AnyAnalysis, AnyPartial};
pub use expression::ExpressionError;
pub use flow::{
    Code, End, FlowEvent, FunctionRange, Names, NoSources, SourceLine, Sources, Statement, Virtual,
};
pub use intervals::{Intervals, Marker, Nesting, Pattern, Prefix, ThreadState};
pub use loss::{Cause, Loss};
pub use period::{Edge, Period};
pub use recorder::RECORDERS_FUNCTIONS;
pub use report::{Description, Every, FlowLoop, LaneValue, Lanes, Made, Parameters, Report, Role, Takes};
pub use root::Root;
pub use table::{
    Cell, Cells, Column, Heading, RecordBatch, Shape, Summary, Table, TableBuilder, Type, Unit, Value, cells,
};
