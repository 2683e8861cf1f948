//! The exact profile of control flow: what each function executed, along which call paths.
//!
//! Frames follow calls and returns. A jump into another function shows as a frame of its own below
//! the one that was called (tail calls, PLT stubs, parts that the compiler moved); `longjmp` and
//! exceptions unwind to the newest frame of the function that they land in; a signal handler stands
//! on the function that it interrupted.

mod functions;
mod partial;
mod paths;
mod table;
mod tree;
mod whole;

use hodo_trace::{Analysis, Names, Run, Seen, Table};
use serde::{Deserialize, Serialize};

pub use functions::Functions;
pub use partial::Partial;
pub use paths::Paths;
pub(crate) use table::share;

/// How a profile is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// One row a function.
    Functions,
    /// One row a call path.
    Tree,
}

/// How far samples lie apart.
///
/// Both count from a fixed origin, not from where a chunk begins, so that any cutting gives the same
/// samples: the clock's zero, and the thread's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// A sample at each multiple of so many nanoseconds of the clock; not 0.
    Nanoseconds(u64),
    /// A sample at each multiple of so many instructions of a thread; not 0.
    Instructions(u64),
}

/// What is told of a thread as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sums {
    /// Nanoseconds in gaps.
    lost_time: u64,
    /// Number of gaps.
    gaps: u64,
    /// Near calls, those of functions that are not traced included.
    calls: u64,
}

impl Sums {
    fn lose(&mut self, nanoseconds: u64) {
        self.lost_time = self.lost_time.saturating_add(nanoseconds);
    }

    fn add(&mut self, other: &Sums) {
        self.lose(other.lost_time);
        self.gaps += other.gaps;
        self.calls += other.calls;
    }
}

/// The profile as an analysis.
pub struct Profile<'a> {
    /// How far the samples lie apart that are counted too, if any are.
    pub every: Option<Every>,
    /// How it is drawn.
    pub report: Report,
    /// Names of functions.
    pub names: &'a dyn Names,
}

impl Analysis for Profile<'_> {
    type Partial = Partial;
    type Memory = Paths;

    fn needs_numbers(&self) -> bool {
        matches!(self.every, Some(Every::Instructions(_)))
    }

    fn unknown(&self) -> Partial {
        Partial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, seen: Seen<'_>) {
        partial.fold(self.every, seen);
    }

    const TAKES_RUNS: bool = true;

    #[inline]
    fn fold_run(&self, partial: &mut Partial, run: &Run) {
        partial.fold_run(self.every, run);
    }

    fn exchange(&self, partial: &mut Partial, memory: &mut Paths) {
        partial.exchange(memory);
    }

    fn state(&self, partial: &mut Partial) -> Option<u32> {
        // Samples depend on the order of what ran.
        if self.every.is_some() { None } else { partial.state() }
    }

    fn learn(
        &self,
        partial: &mut Partial,
        state: u32,
        runs: impl Iterator<Item = Run>,
    ) -> Option<(u32, u32)> {
        partial.learn(state, runs)
    }

    #[inline]
    fn fold_path(&self, partial: &mut Partial, path: u32) {
        partial.fold_path(path);
    }

    fn resume(&self, partial: &mut Partial, state: u32) {
        partial.resume(state);
    }

    fn merge(&self, earlier: Partial, later: Partial) -> Partial {
        earlier.merge(later)
    }

    fn finish(&self, threads: Vec<Partial>) -> Table {
        let whole = whole::Whole::new(threads.into_iter().map(Partial::close));
        match self.report {
            Report::Functions => whole.functions(self.names, self.every),
            Report::Tree => whole.tree(self.names, self.every),
        }
    }
}
