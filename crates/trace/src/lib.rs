//! The model that everything between a format and a view speaks.
//!
//! ```text
//! chunk ──► Seen… ──fold──► partial state ──merge──► partial state ──finish──► Table ──► view
//! ```
//!
//! A format lists streams and cuts them into chunks; an [`Analysis`] folds what was seen in one chunk
//! into a partial state that starts from "unknown", merges partial states in order, and ends in a
//! [`Table`]. [`Loss`] travels the whole way: nothing is skipped in silence.

mod analysis;
mod event_analysis;
mod loss;
mod period;
mod stretch;
mod table;

pub mod event;
pub mod kernel;
pub mod pass;
pub mod vocabulary;

pub use analysis::{Analysis, Arrival, Code, End, FunctionId, Names, Place, Run, Seen, SourceLine, Sources};
pub use event_analysis::{AnyEventAnalysis, AnyPartial, Choice, EventAnalysis, Start, Whole};
pub use loss::{Cause, Loss};
pub use period::{Edge, Period};
pub use stretch::{Numbering, Stretch, Transfer};
pub use table::{Column, Shape, Table, Unit, Value};
