//! The fast path: the same flow in less time.
//!
//! ```text
//! plain packets ──memo──► paths known from before        ─┐
//!               └─plain_packets──► walk ──► function runs ─┴► Sink
//! anything else ──► the reference decoder, [`decoder`](super::decoder)
//! ```
//!
//! The reference decoder is complete without this folder. It enters the fast path where the next packets are *plain*
//! (TNT, TIP, MTC, CYC) and the flow is certain, and takes over again, in the same state, where one is not. The law that
//! nothing else changes is a property over random code, traces and damage (`tests/flow/memo.rs`).

mod memo;
mod plain_packets;

pub use memo::{Memos, Step};
pub(super) use plain_packets::Starts;
