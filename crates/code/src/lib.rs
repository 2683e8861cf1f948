//! The code that a process maps at each time, and its basic blocks.
//!
//! ```text
//! mappings and recorded code, in time order ──AddressSpace──► bytes at (address, tick)
//!                                                                 │
//!                                             Graph: basic blocks with integer ids, built on first use
//! ```
//!
//! The caller provides the bytes: this crate opens no file.

mod block;
mod branch_batches;
mod function_run;
mod function_runs;
mod graph;
mod label;
mod native;
mod padding;
mod place;
mod program;
mod returns;
mod snapshot;
mod space;

pub use block::{Block, BlockBytes, BlockId, CompactBlock, EdgeKind, NOT_TAKEN, Provenance, TAKEN};
pub use branch_batches::{BranchBatch, BranchBatches};
pub use function_run::{FunctionRun, Numbering, Run, Transfer};
pub use function_runs::FunctionRuns;
pub use graph::{Graph, NO_OUTCOMES, Unreadable};
pub use hodo_isa::{Bits, FarTransfer, Instruction, Isa, Printer, Role, Step, Terminator};
pub use label::{Label, Labels, NoLabels};
pub use native::{NativeExit, Rules};
pub use place::{Arrival, FunctionId, Place};
pub use program::Program;
pub use returns::{Back, DEPTH, ReturnStack, ReturnTarget};
pub use snapshot::{ReadInstruction, Snapshot};
pub use space::{AddressSpace, Content, Origin};
