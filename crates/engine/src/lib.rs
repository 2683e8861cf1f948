//! Computes results from files: opens inputs, plans chunks, folds them on all cores, merges in order.
//!
//! ```text
//! paths ──Files──► bytes ──format──► Recording ──FlowTrace──► streams, programs, modules
//!                                                                  │
//!            Table ◄──finish── merged in order ◄──fold, on all cores── chunks of streams
//!
//! folders ──Files──► metadata, streams ──ctf──► EventTraces ──slices of time──► text, JSON; counts
//! ```
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
pub mod path;

mod annotate;
mod border;
mod divergence;
mod early;
mod experiment;
mod fast_format;
mod files;
mod find;
mod flow_event;
mod flow_event_sink;
mod flow_trace;
mod fold;
mod generated;
mod guests;
mod history;
mod info;
mod kernel;
mod losses;
mod modules;
mod names;
mod own_share;
mod parallel;
mod process_history;
mod registry;
mod segments;
mod selection_filter;
mod self_check;
mod system_calls;
mod threads;
mod trace_stream;

pub mod script;

pub use annotate::{Annotation, Instruction, Line, annotate};
pub use divergence::{Divergence, Execution, Place, divergence};
pub use experiment::{
    Bound, Chunking, EventWindow, Experiment, MatchRule, Matched, Needs, Outcome, Part, PartError, Portion,
    Refusal, Relation, Request, SyncOutcome, SyncRequest, SyncStep, Synchronised, SynchronisedError,
    SynchronisedTrace, TimeSpan, TimelineRequest, Times, TraceClock, TraceOffset, Traces, nanos,
};
pub use files::Files;
pub use find::FileSearchPaths;
pub use flow_trace::{FlowTrace, Input, OpenError, OpenErrorReason, Options, RawInput, Window};
pub use fold::{Reading, profile};
pub use guests::GuestFiles;
pub use history::{Identity, IndexError};
pub use hodo_bytes::{Unreadable, unreadable as unreadable_files};
pub use info::{Info, ModuleInfo, Source, info};
pub use kernel::KernelFiles;
pub use losses::Losses;
pub use modules::{Module, Modules};
pub use registry::{
    AnyFlow, AnyReport, EngineLoop, FlowPartial, PackedFlow, RunnableAnalysis, empty_table, report, reports,
};
pub use segments::{TrackSink, decode_all};
pub use selection_filter::{Numbers, Spans, numbers};
pub use threads::{CHUNKS_IN_ORDER, CallSink, NthCalls, calls, find_calls};
pub use trace_stream::{Chunk, ChunkSize, TraceStream};
