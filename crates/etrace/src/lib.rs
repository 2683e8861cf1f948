//! RISC-V's instruction traces: Efficient Trace (E-Trace), version 2.0, and [N-Trace](ntrace).
//!
//! ```text
//! bytes ──transport──► payloads ──packet──► Packet… ──flow──► blocks, traps, gaps ──► what an analysis folds
//!                                   ▲         ▲        ▲
//!                          Configuration   encoder   code (what is mapped where and when)
//! ```
//!
//! Names are those of the specification "Efficient Trace for RISC-V".

mod allowance;
mod bits;
mod configuration;
pub mod encoder;
pub mod flow;
mod modes;
pub mod ntrace;
pub mod packet;
mod parameters;
mod settings;
mod show;
pub mod transport;

pub use configuration::Configuration;
pub use parameters::{Layout, ParameterError, Parameters, Xlen};
pub use settings::{Point, Settings};
