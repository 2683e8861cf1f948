//! CTF, the Common Trace Format, versions 1.8 and 2, as written by LTTng, barectf and many others.
//!
//! ```text
//! metadata ──tsdl or json──► TraceClass ──plan──► StreamPlan: steps over events, compiled once
//!                               │                     │
//! files ────────Packets─────────┴──► streams of packets ──Cursor──► events, and losses between them
//!                                                                      │
//!                                      FieldSink ◄──Walk, on demand────┘
//! ```
//!
//! Specifications: CTF 1.8.3 and CTF2-SPEC-2.0, both by the DiaMon workgroup.

pub(crate) mod index;
mod json;
pub mod lttng_live;
mod metadata;
mod resolve;
mod tsdl;
pub mod uuid;
pub mod write;

pub use metadata::{read as read_metadata, read_head, recognise};

use crate::{Contents, Format};

/// The CTF format: it recognises the metadata, which has no events. It describes the other files of its folder.
pub const FORMAT: Format = Format {
    name: "CTF",
    recognise,
    contents: |_| Contents { events: false, flow: false },
    flow: None,
    events: None,
};
