//! Clocks of different machines on one timeline, with an interval for each timestamp.
//!
//! ```text
//!  events ──Matcher──► pairs ──ClockGraph──► edges: envelope, wrong pairs, steps
//!                                              │ solve
//!                                              ▼
//!                         Timeline ──convert──► Stamp { estimate, lower, upper }
//! ```
//!
//! If a message is sent at reading `a` of one clock and received at reading `b` of another, the second clock had not
//! reached `b` when the first showed `a`. With bounds of drift (deviation from the nominal frequency) and wander (rate
//! of change of the drift), messages bound each clock's offset at every moment. `docs/clocks.md` explains the method.
//!
//! This crate does arithmetic only and reads no clock or file. Times are integers with 128-bit products. Floating
//! point holds only differences of offsets and drifts, and rounds outwards.

#![deny(missing_docs)]

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
mod widen;

pub use clocks::{Clock, ClockId, DropCause, DroppedPair, Method, Pair};
pub use graph::{ClockGraph, PairError};
pub use matcher::{
    Direction, MatchReport, Matcher, MessageEnd, TcpKey, Unmatched, UnmatchedCause, Unwrapper,
};
pub use report::{ClockReport, ClockStep, EdgeReport, Report};
pub use timeline::{Cursor, HalfWidths, Stamp, Timeline, TimelineNanos};
pub use widen::{SLEW_PPB, WIDEST_DRIFT_PPB};
