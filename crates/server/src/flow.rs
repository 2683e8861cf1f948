//! What the page asks of control flow.

use std::sync::{Arc, atomic::AtomicBool};

use hodo_model::Table;
use serde::Serialize;
use serde_json::Value;

use crate::{Refused, walk::Walk};

/// Set when the answer is no longer awaited.
pub type Stop = Arc<AtomicBool>;

/// A recording of control flow.
#[derive(Clone, Debug, Serialize)]
pub struct Recording {
    /// Its name, as the user wrote it.
    pub name: String,
    /// Its threads: `PID/TID` and the number that selects one.
    pub threads: Vec<(String, u32)>,
}

/// The part of the inputs that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSelection {
    /// The number of the recording, from 0.
    pub recording: usize,
    /// From (inclusive) and to (exclusive), in nanoseconds.
    pub span: Option<(u64, u64)>,
    /// The thread; `None` is all.
    pub thread: Option<u32>,
}

/// The executions to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// Of a function, by name.
    Function(String),
    /// Of a named pair of markers, such as `malloc`.
    Pair(String),
    /// From one marker to another.
    Markers(String, String),
    /// Of a line or an address: from each execution to the next.
    Place(String),
}

/// A named pair of markers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Its name.
    pub name: String,
    /// What it measures, for people.
    pub help: String,
}

/// An execution.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Its number among all executions, from 1.
    pub nth: u64,
    /// `PID/TID`.
    pub thread: Arc<str>,
    /// When it began, in nanoseconds.
    pub begin: Option<u64>,
    /// How long it took, in nanoseconds.
    pub time: Option<u64>,
    /// Its instructions.
    pub instructions: Option<u64>,
    /// Its core cycles.
    pub cycles: Option<u64>,
    /// The caller.
    pub caller: Arc<str>,
    /// Whether it has an end.
    pub is_complete: bool,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Latency {
    /// A row for each measure.
    pub percentiles: Table,
    /// The bins of each measure on both scales.
    pub histogram: Table,
    /// All executions, in the order of their threads.
    pub executions: Vec<Execution>,
}

/// The sides of a comparison: two recordings, or two executions of a function in the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The first two recordings.
    Recordings,
    /// Two executions of a function.
    Executions {
        /// The function's name.
        function: String,
        /// The number of the first one among all executions, from 1.
        n: u64,
        /// The number of the second one.
        m: u64,
    },
}

/// The differences of two sides.
#[derive(Clone, Debug)]
pub struct Differences {
    /// Function by function, as `hodo diff` prints it.
    pub functions: Table,
    /// Both trees of call paths as one.
    pub paths: Table,
}

/// What the server shows of control flow. Methods that return `None` were stopped.
///
/// # Errors
/// All return [`Refused`] for what the inputs don't have.
pub trait FlowInputs {
    /// The recordings of control flow among the inputs.
    fn recordings(&self) -> Vec<Recording>;

    /// The functions of all recordings, each with the name of its module. A name may be in several modules.
    fn functions(&self) -> Vec<(String, String)>;

    /// Call paths, as `hodo report paths` makes them.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn paths(&self, selection: &FlowSelection, stop: &Stop) -> Result<Option<Table>, Refused>;

    /// The named pairs of markers that [`Measured::Pair`] may name.
    fn pairs(&self) -> Vec<Pair>;

    /// Executions, as `hodo latency` measures them.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn latency(
        &self,
        selection: &FlowSelection,
        measured: &Measured,
        stop: &Stop,
    ) -> Result<Option<Latency>, Refused>;

    /// The call tree of an execution beside that of a typical one.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn trees(
        &self,
        selection: &FlowSelection,
        measured: &Measured,
        nth: u64,
        stop: &Stop,
    ) -> Result<Option<Table>, Refused>;

    /// The differences that `hodo diff` finds.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn diff(&self, compared: &Compared, stop: &Stop) -> Result<Option<Differences>, Refused>;

    /// The branch at which two executions diverge.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn divergence(&self, compared: &Compared, stop: &Stop) -> Result<Option<Table>, Refused>;

    /// A function's code with its counts and sources, as `hodo annotate --format json` writes it.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn annotate(
        &self,
        selection: &FlowSelection,
        function: &str,
        stop: &Stop,
    ) -> Result<Option<Value>, Refused>;

    /// What is seen of an execution at a position, after a step or a search.
    #[allow(clippy::missing_errors_doc, reason = "the trait's documentation says it")]
    fn execution(&self, walk: &Walk, stop: &Stop) -> Result<Option<Value>, Refused>;
}
