//! RISC-V's instruction trace: Efficient Trace (E-Trace), version 2.0.
//!
//! ```text
//! bytes ──transport──► payloads ──packet──► Packet… ◄──encoder── retired instructions, traps
//!                                   ▲
//!                     Parameters: what the stream does not contain
//! ```
//!
//! Names are those of the specification "Efficient Trace for RISC-V".

mod bits;
pub mod encoder;
mod modes;
pub mod packet;
mod parameters;
pub mod transport;

pub use parameters::{Layout, ParameterError, Parameters, Xlen};
