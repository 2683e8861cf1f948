//! Control flow: from the bytes of a recording to the states of analyses.
//!
//! ```text
//! Recording ──trace──► streams ──stream──► Chunk…                                 which code ran where: `programs`
//!                                            │ on all cores
//!                                            ▼
//! segments: a decoder for each segment ──blocks, paths──► a StreamSink ──► result of the chunk ──► in order
//!                                                           │
//!          event_sink: FlowEvents of each thread ◄──────────┤ of analyses, calls, divergence
//!          lines of text, counts, digests        ◄──────────┘ of scripts, `info`, self_check
//!                │
//!                ▼
//! fold: ThreadSlice of each thread on each stream ──merge──► state of each thread
//! ```
//!
//! * A *stream* is the trace of a thread or of a CPU, in *extents*: bytes without a gap. A *chunk* is a part of an extent,
//!   a *segment* lasts from one PSB to the next, and is decoded from "unknown".
//! * `selection_filter` decides by thread, time and number of the instruction what a sink takes. `early` keeps what comes
//!   before the first time of a segment, until that time says whether it is selected.
//! * `passes` are what comes before the pass that folds: finding calls (`calls`) and system calls (`system_calls`), and
//!   numbering the instructions.
//! * `together` folds several analyses in one pass.
//! * `border` and `own_share` change what sinks see: code beyond an address filter's range, and what the recorder of a
//!   machine made the machine do.
//! * `log` decodes the logs of native recordings, of which a block is a segment. `convert` makes packets of them, for
//!   programs that read Intel PT.
//! * `one_chunk` decodes a chunk alone, for those who know the call stack at its begin.
//! * `self_check` compares what was decoded with what the emulated processor says it ran.

pub(crate) mod annotate;
pub(crate) mod border;
pub(crate) mod calls;
pub(crate) mod convert;
pub(crate) mod divergence;
pub(crate) mod early;
pub(crate) mod event;
pub(crate) mod event_sink;
pub(crate) mod fold;
pub(crate) mod info;
pub(crate) mod log;
pub(crate) mod one_chunk;
pub(crate) mod own_share;
pub(crate) mod passes;
pub mod path;
pub(crate) mod segments;
pub(crate) mod selection_filter;
pub(crate) mod self_check;
pub(crate) mod stream;
pub(crate) mod system_calls;
pub(crate) mod together;
pub(crate) mod trace;
