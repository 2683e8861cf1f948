//! Clocks of different machines on one timeline, with an interval for each timestamp.
//!
//! ```text
//!  events ──Matcher──► pairs ──ClockGraph──► edges: envelope, wrong pairs, steps
//!                                              │ solve
//!                                              ▼
//!                         Timeline ──convert──► Stamp { estimate, lower, upper }
//! ```
//!
//! A message sent at `a` by one clock and received at `b` by another says that the second clock had not reached `b`
//! when the first showed `a`. Together with bounds of how far clocks drift from their nominal frequency, and how fast that
//! changes, such messages bound each clock's offset at every moment: `docs/clocks.md` explains how.
//!
//! Arithmetic only: nothing here reads a clock or a file. Times are integers, products have 128 bits; floating point
//! holds only differences of offsets and drifts, and rounds outwards.

mod bounds;
mod clocks;
mod convex;
mod cover;
mod curve;
mod edge;
mod graph;
mod lines;
mod matcher;
mod node;
mod reach;
mod report;
mod segments;
mod solve;
mod steps;
mod summary;
mod timeline;
mod units;

pub use clocks::{Clock, ClockId, DropCause, DroppedPair, Method, Pair};
pub use graph::{ClockGraph, PairError};
pub use matcher::{
    Direction, MatchReport, Matcher, MessageEnd, TcpKey, Unmatched, UnmatchedCause, Unwrapper,
};
pub use report::{ClockReport, EdgeReport, Report, Step};
pub use timeline::{Cursor, Stamp, Timeline, TimelineNanos};
