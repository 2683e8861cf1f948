//! Software events of any format: classes, streams of packets, and their reader.
//!
//! ```text
//! a format ──► TraceClass: classes of streams and events ──plan──► StreamPlan: steps over events, compiled once
//!        └──► Trace: streams of packets ──────────────────────────────┐ │
//!                                                                  Cursor ──► events, and losses between them
//!                                                                               │
//!                                           FieldSink ◄──Walk, on demand────────┘
//! ```
//!
//! CTF, ftrace and perf are peers: each describes its events with the same classes, and its packets with a framing.

pub(crate) mod bits;
mod column_type;
mod cursor;
pub(crate) mod event;
mod fixups;
pub(crate) mod foreign;
pub(crate) mod framing;
mod header;
#[cfg(test)]
mod laws;
mod live_packets;
pub mod message;
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
