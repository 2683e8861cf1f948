//! Arm's trace units ETMv4 and ETE: decodes packets to the exact flow of instructions, and encodes them.
//!
//! ```text
//! frames ──frames──► bytes of a source ──packet──► Packet… ──elements──► flow ──► Sink
//!                                          ▲       (commit, cancel)        ▲
//!                                       encoder                  code (what is mapped where and when)
//! ```
//!
//! Names are those of the Arm Embedded Trace Macrocell Architecture Specification ETMv4 (IHI 0064) and of the Arm
//! Architecture Reference Manual (DDI 0487), part D, for ETE.

pub mod encoder;
pub mod flow;
pub mod frames;
pub mod packet;

mod config;

pub use config::{Config, Registers, ThreadIds};
