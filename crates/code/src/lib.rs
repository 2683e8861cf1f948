//! Which code was mapped where and when, and the basic blocks of it.
//!
//! ```text
//! mappings and kept code, in order of time ──AddressSpace──► bytes at (address, tick)
//!                                                                  │
//!                                             Graph: basic blocks with integer ids, built when first met
//! ```
//!
//! Bytes come from the caller: this crate opens no file.

mod block;
mod graph;
mod legs;
mod native;
mod program;
mod returns;
mod snapshot;
mod space;
mod stretch;

pub use block::{Block, BlockId, Hop, Pass, Provenance, Terminator};
pub use graph::{Graph, Label, Labels, NO_OUTCOMES, Unreadable, writes_cr3};
pub use legs::{Leg, Legs};
pub use native::{Led, Rules};
pub use program::Program;
pub use returns::{Back, DEPTH, Landing, ReturnStack};
pub use snapshot::Snapshot;
pub use space::{AddressSpace, Bits, Content, Origin};
pub use stretch::Stretches;

pub use hodo_trace::{Place, Stretch, Transfer};
