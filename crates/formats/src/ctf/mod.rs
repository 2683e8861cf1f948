//! CTF, the Common Trace Format, versions 1.8 and 2: what LTTng, barectf and many others write.
//!
//! ```text
//! metadata ──tsdl or json──► TraceClass ──plan──► StreamPlan: steps over events, compiled once
//!                               │                     │
//! files ────────Packets─────────┴──► streams of packets ──Cursor──► events, and what was lost between them
//!                                                                      │
//!                                    a FieldSink ◄──Walk, when asked───┘
//! ```
//!
//! Specifications: CTF 1.8.3 and CTF2-SPEC-2.0, both of the DiaMon workgroup.

mod bits;
mod cursor;
mod event;
mod fixups;
pub(crate) mod foreign;
pub(crate) mod framing;
mod header;
mod index;
mod json;
#[cfg(test)]
mod laws;
mod live_packets;
pub mod lttng_live;
mod metadata;
mod packet;
mod places;
mod plan;
mod read;
mod resolve;
pub mod schema;
mod steps;
mod trace;
mod tsdl;
pub mod uuid;
pub mod write;

pub use cursor::{Cursor, Item, Lost};
pub use event::{Event, EventTrouble, Parts, Reader};
pub use live_packets::LivePacketReader;
pub use metadata::{read as read_metadata, read_head, recognise};
pub use packet::{FilePackets, Packet};
pub use plan::{FieldPath, Plans, StreamPlan};
pub use steps::Trouble;
pub use trace::{DataFile, Stream, StreamPacket, Trace};

use crate::{Format, Holds};

/// CTF.
pub const FORMAT: Format = Format { name: "CTF", recognise, holds: Holds::Events(read_metadata) };
