//! An experiment: any number of traces, opened together. Commands request tables from it.
//!
//! ```text
//! inputs ──open──► Experiment: traces of control flow, traces of events
//!                      │
//! Request ──────────► run ──────────────────────────────► Outcome: tables
//!                      ├─ stream ───────────────────────────► batches of rows as they settle, Outcome: the rest
//!                      ├─ plan ──► Task… ──fold──► Part… ──merge──► Part ──finish──► Outcome
//! ```

mod clocks;
mod identity;
mod open;
mod part;
mod portion;
mod request;
mod run;
mod stream;
mod time;
mod wall;

pub use clocks::micros;
pub use clocks::{
    MatchRule, Matched, Relation, SyncOutcome, SyncRequest, SyncStep, Synchronised, SynchronisedError,
    SynchronisedKnot, SynchronisedTrace, TimelineRequest, TraceClock, TraceOffset,
};
pub use open::Experiment;
pub use part::{Part, PartError};
pub use portion::Portion;
pub use request::{Outcome, Request, Times};
pub use time::{Bound, TimeSpan, nanos};
