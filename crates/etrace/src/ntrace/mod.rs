//! RISC-V N-Trace: messages of the Nexus standard about the flow of instructions.
//!
//! ```text
//! bytes ──message──► Message… ──Decoder──► blocks, traps, gaps
//!                       ▲
//!                    Encoder ◄── retired instructions, traps
//! ```
//!
//! Every message says how many halfwords of instructions ran, so neither traps nor returns are ambiguous as in E-Trace.
//!
//! Source: RISC-V N-Trace (Nexus-based Trace) Specification, version 1.0.

mod decoder;
mod encoder;
mod limits;
mod message;
mod points;

pub use decoder::Decoder;
pub use encoder::{Encoder, Mode};
pub use message::{Branch, Error, Form, Message, Messages, Resource, Synchronization, Unit};
pub use points::synchronization_points;

use serde::Deserialize;

use crate::Xlen;
use hodo_isa::riscv::{Set, Shared, Width};

/// What a decoder must know of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// Width of the source in messages; at most 12 bits.
    pub source_width: u8,
    /// The encoder whose messages are decoded, if a stream contains those of several.
    pub source: Option<u16>,
    /// Whether jumps whose target the instruction before loads are not reported.
    pub sijump: bool,
    /// Whether returns to the address on a stack are not reported, and the number of entries of that stack.
    pub return_stack: Option<u16>,
    /// Width of the hart's registers: 32 or 64.
    pub xlen: Xlen,
    /// Whether the hart has Zcmp or Zcmt.
    pub zcmp: bool,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            source_width: 0,
            source: None,
            sijump: false,
            return_stack: None,
            xlen: Xlen(Width::Bits64),
            zcmp: false,
        }
    }
}

impl Configuration {
    /// Returns the hart's instruction set.
    pub fn set(&self) -> Set {
        let shared = if self.zcmp { Shared::PushesAndTables } else { Shared::Doubles };
        Set { width: self.xlen.0, shared }
    }
}
