//! The store on disk: the records of lanes over time, such as the states of threads, for any number of records.
//!
//! ```text
//! records, from all threads, in any order
//!    │ Feed: half a million at a time, in order of their begin
//!    ▼
//! growing: a log of runs, names and lanes ── flushed rows survive ──► Store (growing, or cut short)
//!    │ Writer::finish: runs are merged by time, by several threads
//!    ▼
//! history: bins of time ── blocks of columns, with zones │ summaries by bin and lane ──► Store (complete)
//!                                                                                           │
//!                     at, slices, records, longest, next_change, previous_change ◄──────────┘
//! ```
//!
//! A record lies in the smallest bin of a hierarchy that contains it, as in genome browsers (W. J. Kent et al., *The
//! human genome browser at UCSC*, Genome Research 12, 2002): writing requires no order and no balancing, and an
//! instant lies in one bin of each level. A bin's summary holds the weight of each value, by lane.
//!
//! Query results depend only on the records, not on their order of arrival or on the threads. `docs/store.md`
//! describes the format.

#![deny(missing_docs)]

mod bins;
mod block;
mod build;
mod columns;
mod dictionary;
mod error;
mod finish;
mod fold;
mod history;
mod log;
mod naming;
mod query;
mod reader;
mod rows;
mod schema;
mod writer;

pub use error::{Error, Refused};
pub use naming::{Naming, filled};
pub use query::{Budget, LaneSlices, Lanes, Slices, TimeCell, Wanted, widened};
pub use reader::{State, Store, Table};
pub use schema::{Field, Kind, Record, Schema, Shape};
pub use writer::{Feed, TableId, Writer};
