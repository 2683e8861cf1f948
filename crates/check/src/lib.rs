//! The gate: what a program's executions cost, compared with a baseline that lies beside its source.
//!
//! ```text
//! hodo.toml ──► Configuration: cases, limits
//! tables of call paths, one for each execution ──► Measured ──┐
//! baseline file ──► Baseline ─────────────────────────────────┴─► Verdict: what grew, and why ──► report
//! ```
//!
//! Counts are exact, so a difference between two executions is a fact. Whether it is a change of the program or the program's own
//! variance is decided by repetition: only growth beyond all that equal executions showed counts.
//!
//! This crate runs no program and opens no file.

pub mod baseline;
pub mod causes;
pub mod configuration;
pub mod measured;
pub mod quantity;
pub mod report;
mod spread;
pub mod verdict;

pub use baseline::{Baseline, CaseCounts};
pub use configuration::{Case, Configuration, Limit};
pub use measured::{FunctionName, Measured};
pub use quantity::Quantity;
pub use spread::Spread;
pub use verdict::{Change, Verdict, judge};
