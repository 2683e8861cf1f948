//! From files to results: opens inputs, plans chunks, folds them on all cores, merges in order.
//!
//! ```text
//! paths ──Files──► bytes ──format──► Recording ──FlowTrace──► tracks, programs, modules
//!                                                                  │
//!            Table ◄──finish── merged in order ◄──fold, on all cores── chunks of tracks
//!
//! folders ──Files──► metadata, streams ──ctf──► EventTraces ──slices of time──► text, JSON; counts
//! ```
//!
//! Files are opened and threads are started here, and nowhere below.

pub mod events;

mod annotate;
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
mod info;
mod kernel;
mod losses;
mod modules;
mod parallel;
mod process_history;
mod registry;
mod segments;
mod selection_filter;
mod threads;
mod trace_stream;

pub mod script;

pub use annotate::{Annotation, Instruction, Line, annotate};
pub use experiment::{
    Chunking, EventWindow, Experiment, MatchRule, Matched, Needs, Outcome, Part, PartError, Portion, Refusal,
    Relation, Request, SyncOutcome, SyncRequest, Synchronised, SynchronisedError, SynchronisedTrace,
    TimeSpan, TimelineRequest, Times, TraceClock, TraceOffset, Traces, nanos,
};
pub use files::Files;
pub use find::FileSearchPaths;
pub use flow_trace::{FlowTrace, Input, OpenError, OpenErrorReason, Options, RawInput, Window};
pub use fold::{Reading, profile};
pub use guests::GuestFiles;
pub use info::{Info, ModuleInfo, Source, info};
pub use kernel::KernelFiles;
pub use losses::Losses;
pub use modules::{Module, Modules};
pub use registry::{AnyReport, AnyRun, FlowPartial, PackedFlow, report, reports};
pub use segments::{TrackSink, decode_all};
pub use selection_filter::{Numbers, Spans, numbers};
pub use threads::{CHUNKS_IN_ORDER, CallSink, NthCalls, calls, find_calls};
pub use trace_stream::{Chunk, ChunkSize, TraceStream};
