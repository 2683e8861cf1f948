//! The server behind `hodo view`: tables, findings and pictures of a store for one page, on the loopback interface.
//!
//! ```text
//! page (embedded) ──GET /TOKEN/api/PATH?…──► guard: Host, token ──► job: bounded, cancelled with the connection
//!                                                                     │
//!          Arrow IPC, or JSON for small values ◄── Answer ◄── one of GROUPS ──► Inputs (what hodo opened), Store
//!
//! Inputs ──write_file──► one file: the page, with answers inside
//! ```
//!
//! The server knows no report and opens no trace: [`Inputs`] provides what it shows. Nothing but the page and these
//! answers is served.

mod answer;
mod endpoints;
mod file;
mod flow;
mod guard;
mod index;
mod job;
mod page;
mod serve;
mod session;
mod walk;

use std::sync::{Arc, atomic::AtomicBool};

use hodo_model::Table;
use hodo_store::Store;
use serde::Serialize;

pub use file::{Extent, Written, write_file};
pub use flow::{
    Compared, Differences, Execution, FlowInputs, FlowSelection, Latency, Measured, Pair, Recording, Stop,
};
pub use serve::serve;
pub use walk::{CodePlace, From, To, Walk};

/// Receives the bytes done and in total; returns whether to continue.
pub type Progress<'p> = &'p mut (dyn FnMut(u64, u64) -> bool + Send);

/// A report of the inputs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name, as in `hodo report NAME`.
    pub name: &'static str,
    /// Its description, in one line.
    pub help: &'static str,
    /// The values of `--by`, the default first; empty if there is one kind of rows.
    pub views: &'static [&'static str],
}

/// A table of SQL.
#[derive(Clone, Debug, Serialize)]
pub struct SqlTable {
    /// Its name, as statements write it.
    pub name: String,
    /// Whether its rows are the events of a name.
    pub is_event: bool,
}

/// A table for the page.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The table with its first rows.
    pub table: Table,
    /// The number of further rows, which are left out.
    pub left_out: u64,
}

/// Why a question has no answer, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Why there is no store, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStore {
    /// The inputs have nothing for a store.
    Nothing(String),
    /// It can't be built or read.
    Failed(String),
}

/// What the server shows. Methods that return `None` were stopped by their progress.
pub trait Inputs: FlowInputs + Send + Sync + 'static {
    /// The names of the inputs, as the user wrote them.
    fn names(&self) -> Vec<String>;

    /// What is in the inputs, and what was lost: tables with their losses.
    fn about(&self) -> Vec<Table>;

    /// The greatest half width of the interval that a time of a trace lies in, in nanoseconds; 0 if all clocks are one.
    fn half_width(&self) -> u64;

    /// The reports that the inputs provide.
    fn reports(&self) -> Vec<Report>;

    /// Says for each input whose clock is related to no other what is missing.
    fn unrelated(&self) -> Vec<String>;

    /// The table of a report, with at most `most` rows. `view` is empty for the default. `recording` is the number of the
    /// recording of control flow, whose tables are separate.
    ///
    /// # Errors
    /// The report can't be made of these inputs.
    fn table(
        &self,
        report: &str,
        view: &str,
        recording: usize,
        most: usize,
        progress: Progress<'_>,
    ) -> Result<Option<Rows>, Refused>;

    /// The pieces of a thread's critical path, as `hodo path --by piece` prints them.
    ///
    /// # Errors
    /// The inputs have no events of a scheduler.
    fn critical_path(&self, thread: u32, progress: Progress<'_>) -> Result<Option<Table>, Refused>;

    /// The tables that [`sql`](Inputs::sql) can read.
    ///
    /// # Errors
    /// The inputs can't be read by SQL.
    fn sql_tables(&self) -> Result<Vec<SqlTable>, Refused>;

    /// The result of the last of some statements, with at most `most` rows; `None` if `stop` was set.
    ///
    /// # Errors
    /// A statement is wrong, and at which place.
    fn sql(&self, query: &str, most: u64, stop: &Arc<AtomicBool>) -> Result<Option<Table>, Refused>;

    /// The findings of `hodo explain`.
    ///
    /// # Errors
    /// They can't be made of these inputs.
    fn findings(&self, progress: Progress<'_>) -> Result<Option<Table>, Refused>;

    /// Opens the store of the inputs; builds it first if it is absent or old.
    ///
    /// # Errors
    /// The inputs have nothing for a store, or it can't be written.
    fn store(&self, progress: Progress<'_>) -> Result<Option<Store>, NoStore>;

    /// A snapshot of the store while [`store`](Inputs::store) builds it; `None` if nothing was flushed yet.
    fn growing(&self) -> Option<Store>;

    /// Says which input is no longer the one that was opened, and what it means.
    fn change(&self) -> Option<String>;
}

/// The inputs as the server's threads share them.
pub(crate) type SharedInputs = Arc<dyn Inputs>;
