//! Analyses: from what was seen in a stream to tables.
//!
//! ```text
//! Seen… ──fold──► partial state ──merge──► partial state of a whole thread ──finish──► Table
//! ```
//!
//! Each analysis is a folder; [`ANALYSES`] lists them. Analyses name no format and no view.

pub mod blocks;
pub mod calls;
pub mod profile;

mod clock;
mod stack;

pub use stack::Entry as FrameEntry;

/// An analysis as `hodo report` offers it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// What makes its table.
    pub kind: Kind,
}

/// The computation behind an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A profile of control flow, drawn in this way.
    Profile(profile::Report),
    /// Counts of blocks, drawn in this way.
    Blocks(blocks::Report),
    /// A count of software events by name.
    EventCount,
}

/// All analyses.
pub const ANALYSES: &[Entry] = &[
    Entry {
        name: "functions",
        help: "exact profile: instructions, calls and time of each function",
        kind: Kind::Profile(profile::Report::Functions),
    },
    Entry {
        name: "tree",
        help: "exact calling-context tree: who called whom, how often, at what cost",
        kind: Kind::Profile(profile::Report::Tree),
    },
    Entry {
        name: "lines",
        help: "exact counts of each line of source: executions, instructions, time",
        kind: Kind::Blocks(blocks::Report::Lines),
    },
    Entry {
        name: "blocks",
        help: "exact counts of each basic block: executions, branches taken and not taken",
        kind: Kind::Blocks(blocks::Report::Blocks),
    },
    Entry {
        name: "count",
        help: "software events: how many of each name, and how many were lost",
        kind: Kind::EventCount,
    },
];
