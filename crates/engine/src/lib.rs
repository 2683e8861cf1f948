//! Computes results from files: opens inputs, plans chunks, folds them on all cores, merges in order.
//!
//! ```text
//! inputs ──Traces::open──► flows: recordings of control flow ──flow──► chunks of streams ─┐
//!                          events: traces of software events ─events─► slices of time ────┤ fold, on all cores
//!                                                                                         ▼
//!                                      Table ◄──finish── state ◄──merge, in order── states of chunks
//! ```
//!
//! An [`Experiment`] owns the traces and answers a [`Request`] with tables. `crates/script` writes the traces themselves.
//!
//! Only this crate opens files and starts threads; the crates below it do neither.
//!
//! # Example
//!
//! A table of a kernel trace:
//!
//! ```
//! use hodo_engine::{Experiment, Input, Needs, Options, Request, report};
//! use hodo_model::Parameters;
//!
//! let inputs = vec![Input::File("../../fixtures/ctf/lttng2.13-kernel".into())];
//! let experiment = Experiment::open(inputs, &Options::default(), Needs::ALL, 1, |_, _| ())?;
//! let syscalls = report("syscalls").expect("there is such a report");
//! let outcome = experiment.run(&Request::of(vec![syscalls], Parameters::default()), &mut |_| true)?;
//! assert_eq!(outcome.tables[0].figure("calls"), Some(&95u64.into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod events;
pub mod latency;

mod experiment;
mod files;
mod flow;
mod history;
mod input;
mod losses;
mod parallel;
mod programs;
mod reading;
mod refusal;
mod registry;
mod traces;

pub use experiment::{
    Bound, Experiment, MatchRule, Matched, Outcome, Part, PartError, Portion, Relation, Request, SyncOutcome,
    SyncRequest, SyncStep, Synchronised, SynchronisedError, SynchronisedKnot, SynchronisedTrace, TimeSpan,
    TimelineRequest, Times, TraceClock, TraceOffset, micros, nanos,
};
pub use files::Files;
pub use flow::annotate::{Annotation, Instruction, Line, annotate};
pub use flow::calls::{
    CHUNKS_IN_ORDER, CallSink, NthCalls, SliceId, ThreadCalls, calls, calls_by_chunk, find_calls,
};
pub use flow::convert::{ConvertedChunk, convert_logs};
pub use flow::divergence::{CodeLocation, Divergence, Execution, divergence};
pub use flow::fold::profile;
pub use flow::info::{Info, ModuleInfo, Source, info};
pub use flow::one_chunk::{FlowReceiver, decode_chunk};
pub use flow::passes::{Executions, Progress};
pub use flow::path;
pub use flow::segments::{StreamSink, decode_all, decode_chunks};
pub use flow::selection_filter::{Numbers, SelectionFilter, Spans, numbers};
pub use flow::stream::{Chunk, Extent, ExtentKind, RiscVExtent, TraceStream};
pub use flow::trace::Trace;
pub use history::{Identity, IndexError};
pub use hodo_bytes::{Unreadable, unreadable as unreadable_files};
pub use hodo_formats::Contents;
pub use input::{Input, OpenError, OpenErrorReason, Options, RawInput, RawUnit};
pub use losses::Losses;
pub use parallel::{in_order, parts_in_order};
pub use programs::find::FileSearchPaths;
pub use programs::guests::GuestFiles;
pub use programs::kernel::KernelFiles;
pub use programs::modules::{Module, Modules};
pub use reading::{Chunks, EventReading, Reading, Window};
pub use refusal::Refusal;
pub use registry::{
    AnyFlow, AnyReport, EngineLoop, FlowPartial, PackedFlow, RunnableAnalysis, empty_table, report,
    report_for, reports, reports_for,
};
pub use traces::{Needs, Traces};
