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
mod branch_batches;
mod function_run;
mod graph;
mod native;
mod program;
mod returns;
mod snapshot;
mod space;

pub use block::{Block, BlockId, CompactBlock, EdgeKind, Provenance, Terminator};
pub use branch_batches::{BranchBatch, BranchBatches};
pub use function_run::FunctionRuns;
pub use graph::{Graph, Label, Labels, NO_OUTCOMES, Unreadable, writes_cr3};
pub use native::{NativeExit, Rules};
pub use program::Program;
pub use returns::{Back, DEPTH, ReturnStack, ReturnTarget};
pub use snapshot::Snapshot;
pub use space::{AddressSpace, Bits, Content, Origin};

pub use hodo_model::{FunctionRun, Place, Transfer};
