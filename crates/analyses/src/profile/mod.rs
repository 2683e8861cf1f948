//! The exact profile of control flow: what each function executed, along which call paths.
//!
//! Frames follow calls and returns. A jump into another function shows as a frame of its own below
//! the one that was called (tail calls, PLT stubs, parts that the compiler moved); `longjmp` and
//! exceptions unwind to the newest frame of the function that they land in; a signal handler stands
//! on the function that it interrupted.

mod partial;
mod table;
mod tree;

use hodo_trace::{Analysis, Names, Seen, Table};

pub use partial::Partial;

/// How a profile is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// One row a function.
    Functions,
    /// One row a call path.
    Tree,
}

/// The profile as an analysis.
pub struct Profile<'a> {
    /// How it is drawn.
    pub report: Report,
    /// Names of functions.
    pub names: &'a dyn Names,
}

impl Analysis for Profile<'_> {
    type Partial = Partial;

    fn unknown(&self) -> Partial {
        Partial::unknown()
    }

    #[inline]
    fn fold(&self, partial: &mut Partial, seen: Seen) {
        partial.fold(seen);
    }

    fn merge(&self, earlier: Partial, later: Partial) -> Partial {
        earlier.merge(later)
    }

    fn finish(&self, threads: Vec<Partial>) -> Table {
        let whole = table::Whole::new(threads.into_iter().map(Partial::close));
        match self.report {
            Report::Functions => whole.functions(self.names),
            Report::Tree => whole.tree(self.names),
        }
    }
}
