//! Intel Processor Trace: decodes packets to the exact flow of instructions, and encodes them.
//!
//! ```text
//! bytes ──packet──► Packet… ──flow──► blocks, calls, returns, gaps ──► what an analysis folds
//!                      ▲                      ▲
//!                  encoder (recorder)     code (what is mapped where and when)
//! ```
//!
//! Names are those of the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, chapter "Intel
//! Processor Trace" (SDM below).
//!
//! # Example
//!
//! The packets of a trace, with the positions at which they end:
//!
//! ```
//! use hodo_intel_pt::packet::{Decoder, Error, Packet};
//!
//! let psb = [0x02, 0x82].repeat(8);
//! let trace = [&psb[..], &[0x02, 0x23], &[0x06]].concat();
//! let mut decoder = Decoder::new(&trace, 0);
//! let mut packets = Vec::new();
//! while let Some(packet) = decoder.next_packet()? {
//!     packets.push((decoder.position(), packet));
//! }
//! assert_eq!(packets[..2], [(16, Packet::Psb), (18, Packet::PsbEnd)]);
//! assert!(matches!(packets[2], (19, Packet::Tnt8(tnt)) if tnt.count == 1));
//! # Ok::<(), Error>(())
//! ```

#![deny(missing_docs)]

pub mod encoder;
pub mod flow;
pub mod packet;

mod config;
mod edges;
mod errata;
mod filter;
mod last_ip;
mod timing;

pub use config::{Config, Cpu};
pub use edges::EdgeMap;
pub use errata::{Errata, Erratum};
pub use filter::{Filter, FilterError};
pub use last_ip::LastIp;

/// The examples of the page that package registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
