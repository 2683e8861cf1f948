//! The fast path: decodes the same flow in less time.
//!
//! ```text
//! plain packets ──memo──► known paths                     ─┐
//!               └─plain_packets──► walk ──► function runs ─┴► Sink
//! anything else ──► the reference decoder, [`decoder`](super::decoder)
//! ```
//!
//! The reference decoder is complete without this folder. It enters the fast path if the next packets are *plain*
//! (TNT, TIP, MTC, CYC) and the flow is certain, and takes over in the same state at any other packet. A property
//! test over random code, traces and damage checks that the reports are the same (`tests/flow/memo.rs`).

mod memo;
mod plain_packets;

pub use memo::Memos;
pub(super) use plain_packets::Starts;
