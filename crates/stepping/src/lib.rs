//! Steps through a recorded execution, forwards and backwards.
//!
//! ```text
//! trace ──one pass──► Index: each thread where each chunk begins: instructions, time, call stack
//!                       │
//! Position ─────────────┴──► its chunk, decoded: runs of instructions, each with its frame ──► Scene: stack, line, code
//!     ▲                                    │
//!     └── Step, search, instant ◄──────────┘ skips chunks in which the stack is never low enough, or a function never runs
//! ```
//!
//! A [`Position`] is a thread and the number of its next instruction, so a move backwards undoes the one forwards. Places
//! where flow is missing are positions of their own. A trace holds the flow only: no memory and no registers.

pub mod check;

mod execution;
mod index;
mod instant;
mod piece;
mod scene;
mod search;
mod steps;

pub use execution::{Direction, Execution, Interrupted, Position, Stepper, Stop};
pub use instant::Instant;
pub use scene::{ListedInstruction, MOST_FRAMES, Scene, SceneFrame};
pub use search::Place;
pub use steps::{Granularity, Motion, Moved, Step};
