//! Software events, whatever format they come in: classes, streams of packets, and reading.
//!
//! ```text
//! a format ──► TraceClass: classes of streams and events ──plan──► StreamPlan: steps over events, compiled once
//!        └──► Trace: streams of packets ──────────────────────────────┐ │
//!                                                                  Cursor ──► events, and what was lost between them
//!                                                                               │
//!                                           a FieldSink ◄──Walk, when asked─────┘
//! ```
//!
//! CTF, ftrace and perf stand beside each other: each describes its events by the same classes, and says by a framing
//! how its packets hold them.

pub(crate) mod bits;
mod cursor;
pub(crate) mod event;
mod fixups;
pub(crate) mod foreign;
pub(crate) mod framing;
mod header;
#[cfg(test)]
mod laws;
mod live_packets;
pub(crate) mod packet;
mod places;
mod plan;
mod read;
pub mod schema;
pub(crate) mod steps;
mod trace;

pub use cursor::{Cursor, Item, Lost};
pub use event::{Event, EventTrouble, Parts, Reader};
pub use live_packets::LivePacketReader;
pub use packet::{FilePackets, Packet};
pub use plan::{FieldPath, Plans, StreamPlan};
pub use steps::Trouble;
pub use trace::{DataFile, Stream, StreamPacket, Trace};
