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

pub mod encoder;
pub mod flow;
pub mod packet;

mod config;
mod errata;
mod filter;
mod last_ip;
mod timing;

pub use config::{Config, Cpu};
pub use errata::{Errata, Erratum};
pub use filter::{Filter, FilterError};
