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
//!
//! # Example
//!
//! The events of a file of a CTF trace, by name:
//!
//! ```
//! use std::{collections::BTreeMap, fs};
//!
//! use hodo_formats::{ctf::read_metadata, events::{Cursor, DataFile, Item, Trace}};
//!
//! let folder = "../../fixtures/ctf/lttng2.13-kernel";
//! let class = read_metadata(&fs::read(format!("{folder}/metadata"))?)?;
//! let bytes = fs::read(format!("{folder}/k_0"))?;
//! let file = DataFile { name: "k_0".to_owned(), bytes: &bytes, index: None };
//! let trace = Trace::new(folder.to_owned(), class, vec![file]);
//! let mut events = BTreeMap::new();
//! for stream in &trace.streams {
//!     let mut cursor = Cursor::new(&trace, stream, 0..stream.packets.len());
//!     while let Some((_time, item)) = cursor.next_item() {
//!         if let Item::Event(parts) = item {
//!             *events.entry(cursor.event(parts).class().name.as_str()).or_insert(0) += 1;
//!         }
//!     }
//!     assert!(cursor.loss.is_empty());
//! }
//! assert_eq!(events["sched_switch"], 113);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
mod offsets;
pub(crate) mod packet;
mod plan;
mod read;
pub mod schema;
pub(crate) mod steps;
mod trace;

pub use cursor::{Cursor, Item, Lost};
pub use event::{Event, EventTrouble, Parts, Reader, Stopped};
pub use live_packets::LivePacketReader;
pub use packet::{FilePackets, Packet, SizedValue};
pub use plan::{FieldPath, Plans, StreamPlan};
pub use steps::Trouble;
pub use trace::{DataFile, Stream, StreamPacket, Trace};
