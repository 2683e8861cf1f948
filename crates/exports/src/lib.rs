//! Writes profiles and timelines for the tools that users have.
//!
//! ```text
//! begins and ends of calls ──► Calls (shortest slice, gaps) ──┐
//! rows of tables of intervals ────────────────────────────────┼──► a Timeline ──► file of Perfetto, Chrome, speedscope, Firefox
//! rows of a table of call paths ──────────────────────────────┼──► Paths ───────► file of folded, pprof
//! rows of tables of call paths, lines and branches ───────────┼──► SourceProfile ► file of callgrind, Go's compiler
//! rows of a table of coverage ────────────────────────────────┼──► Coverage ────► file of lcov
//! rows of a table of branches ────────────────────────────────┴──► BranchProfile ► file of llvm, autofdo, bolt
//! ```
//!
//! Each format is a folder and a line in [`EXPORTS`]. A format knows threads, slices and call paths; it knows no
//! analysis. Timelines are written as they arrive.

use std::io::{self, Write};

use hodo_model::Loss;

mod autofdo;
mod bolt;
mod branches;
mod callgrind;
mod calls;
mod chrome;
mod coverage;
mod firefox;
mod folded;
mod go;
mod lcov;
mod llvm;
mod paths;
mod perfetto;
mod pprof;
mod sources;
mod speedscope;

pub use branches::{BranchProfile, BranchProfiles};
pub use calls::{Calls, Instructions};
pub use coverage::{CoverageRow, Covered, coverage_rows};
pub use folded::differential;
pub use paths::{PathRow, path_rows};
pub use sources::SourceProfile;

/// Every export, in the order of the help text.
pub const EXPORTS: &[Export] = &[
    perfetto::EXPORT,
    chrome::EXPORT,
    speedscope::EXPORT,
    firefox::EXPORT,
    folded::EXPORT,
    callgrind::EXPORT,
    pprof::EXPORT,
    go::EXPORT,
    lcov::EXPORT,
    llvm::EXPORT,
    autofdo::EXPORT,
    bolt::EXPORT,
];

/// A file format of another tool.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// The name for users, as in `--to perfetto`.
    pub name: &'static str,
    /// A one-line description with the tools that read it.
    pub help: &'static str,
    /// What it is made of.
    pub content: Content,
}

/// What an export is made of.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Slices over time: calls of threads, and intervals of events.
    Timeline(BeginTimeline),
    /// Calls of threads.
    Calls(BeginTimeline),
    /// Call paths with their costs.
    Paths(BeginPaths),
    /// Costs of source lines, and of calls between functions.
    Sources(WriteSources),
    /// Source lines, functions and branches, executed or not.
    Coverage(BeginCoverage),
    /// Branches of one module.
    Branches(WriteBranches),
}

/// Begins a timeline in an output.
pub type BeginTimeline = for<'o> fn(Output<'o>) -> io::Result<Box<dyn Timeline + 'o>>;

/// Begins a file of call paths in an output.
pub type BeginPaths = for<'o> fn(Output<'o>) -> io::Result<Box<dyn Paths + 'o>>;

/// Writes a file of source lines and calls, with what is missing from it.
pub type WriteSources = fn(&SourceProfile, &[Loss], Output<'_>) -> io::Result<()>;

/// Begins a file of coverage in an output.
pub type BeginCoverage = for<'o> fn(Output<'o>) -> io::Result<Box<dyn Coverage + 'o>>;

/// Writes a file of the branches of one module, with what is missing from it.
pub type WriteBranches = fn(&BranchProfile, &[Loss], Output<'_>) -> io::Result<()>;

/// The output of an export; it should be buffered.
pub type Output<'o> = &'o mut (dyn Write + Send + 'o);

/// A row of slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// A thread.
    Thread {
        /// Its process.
        pid: u32,
        /// Its number.
        tid: u32,
        /// Its name; empty if unknown.
        name: String,
        /// What its slices are, such as `states`; calls if empty.
        what: String,
    },
    /// A row that belongs to no thread, such as `CPU 0 soft interrupts`.
    Named(String),
}

impl Track {
    /// The name for people.
    pub(crate) fn title(&self) -> String {
        match self {
            Track::Thread { tid, name, what, .. } if what.is_empty() => format!("{name} ({tid})"),
            Track::Thread { tid, name, what, .. } => format!("{name} ({tid}) {what}"),
            Track::Named(name) => name.clone(),
        }
    }
}

/// Receives slices over time. Tracks and names are added before they are used, and are numbered in that order, from 0.
///
/// On each track, each end closes the newest open slice. Calls come in order of time. Intervals come in order of their
/// ends, an inner one before the outer one, and each begin is followed by its end. Times are in nanoseconds. Every method
/// returns the errors of the writer.
pub trait Timeline: Send {
    /// Adds the next track.
    fn begin_track(&mut self, track: &Track) -> io::Result<()>;

    /// Adds the next name.
    fn name(&mut self, name: &str) -> io::Result<()>;

    /// Begins a slice with a name.
    fn begin(&mut self, track: u32, time: u64, name: u32) -> io::Result<()>;

    /// Ends the newest open slice.
    fn end(&mut self, track: u32, time: u64) -> io::Result<()>;

    /// Ends the newest open slice, in which so many instructions ran.
    fn end_counted(&mut self, track: u32, time: u64, _instructions: u64) -> io::Result<()> {
        self.end(track, time)
    }

    /// The thread of a track has executed so many instructions until a time. Formats without counters leave it out.
    fn executed(&mut self, _track: u32, _time: u64, _instructions: u64) -> io::Result<()> {
        Ok(())
    }

    /// A CPU switches to another thread. Switches come in order of time. Formats without scheduling leave it out.
    fn switch(&mut self, _switch: &Switch<'_>) -> io::Result<()> {
        Ok(())
    }

    /// A thread wakes another one. Formats without arrows leave it out.
    fn wakeup(&mut self, _wakeup: &Wakeup<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Ends the file, with what is missing from it.
    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()>;
}

/// A thread of a kernel's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventThread<'e> {
    /// Its name; empty if unknown.
    pub name: &'e str,
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
}

/// A switch of a CPU from one thread to another.
#[derive(Clone, Copy, Debug)]
pub struct Switch<'e> {
    /// In nanoseconds.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The thread that leaves.
    pub previous: EventThread<'e>,
    /// Why it leaves: `runnable`, `interruptible`, `uninterruptible`, `stopped`, `idle`, `ended` or `unknown`.
    pub state: &'e str,
    /// The thread that runs from here on.
    pub next: EventThread<'e>,
    /// Its priority, as the kernel counts.
    pub priority: i64,
}

/// A thread that wakes another one.
#[derive(Clone, Copy, Debug)]
pub struct Wakeup<'e> {
    /// In nanoseconds.
    pub time: u64,
    /// The CPU of the waker.
    pub cpu: u32,
    /// The thread that wakes.
    pub waker: EventThread<'e>,
    /// The thread that is woken.
    pub woken: EventThread<'e>,
}

/// Receives call paths, depth first. Every method returns the errors of the writer.
pub trait Paths: Send {
    /// Adds the next path. Its callers are the last rows of all smaller depths.
    fn row(&mut self, row: &PathRow<'_>) -> io::Result<()>;

    /// Ends the file, with what is missing from it.
    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()>;
}

/// Receives the rows of a table of coverage. Every method returns the errors of the writer.
pub trait Coverage: Send {
    /// Adds a line, a function or a branch.
    fn row(&mut self, row: &CoverageRow<'_>) -> io::Result<()>;

    /// Ends the file, with what is missing from it.
    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()>;
}

/// Describes a loss for people.
pub(crate) fn loss_line(loss: &Loss) -> String {
    let stream = if loss.stream.is_empty() { String::new() } else { format!(", {}", loss.stream) };
    format!("lost: {} × {}{stream}: {}", loss.count, loss.cause.name(), loss.detail)
}
