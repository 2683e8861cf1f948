//! The exact profile of control flow: the instructions of each function and call path.
//!
//! Frames follow calls and returns. A jump into another function shows as a separate frame below the called function
//! (tail calls, PLT stubs, parts that the compiler moved); `longjmp` and exceptions unwind to the newest frame of the
//! function in which they land; a signal handler is a frame above the interrupted function.

mod cost;
mod functions;
mod table;
mod tree;

use hodo_model::{Description, Every, Maker, Parameters, Takes};

pub use functions::Functions;
pub use tree::Profile;

pub(crate) use table::share;

/// The kind of the table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// One row per function.
    Functions,
    /// One row per call path.
    Tree,
    /// Call paths of the whole recording, or of the executions of one function.
    Paths,
}

/// The report of profile tables with one [kind](Report) of rows.
#[derive(Clone, Copy, Debug)]
pub struct ProfileReport {
    description: Description,
    report: Report,
}

const TAKES: Takes = Takes { threads: true, every: true, ..Takes::NOTHING };

/// The report of functions.
pub const FUNCTIONS: ProfileReport = ProfileReport {
    description: Description {
        name: "functions",
        help: "exact profile: instructions, calls and time of each function",
        takes: TAKES,
        in_all: true,
        ..Description::EMPTY
    },
    report: Report::Functions,
};

/// The report of call paths.
pub const TREE: ProfileReport = ProfileReport {
    description: Description {
        name: "tree",
        help: "exact calling-context tree: instructions, calls and time of each call path",
        takes: TAKES,
        ..Description::EMPTY
    },
    report: Report::Tree,
};

/// The report of call paths; they may begin at a function.
pub const PATHS: ProfileReport = ProfileReport {
    description: Description {
        name: "paths",
        help: "exact call paths, optionally from a function or system call; --format folded for flame graphs",
        views: &["instructions", "time"],
        takes: Takes { threads: true, root: true, ..Takes::NOTHING },
        ..Description::EMPTY
    },
    report: Report::Paths,
};

impl hodo_model::Report for ProfileReport {
    fn description(&self) -> &Description {
        &self.description
    }

    fn make<M: Maker>(&self, parameters: &Parameters, maker: M) -> M::Made {
        match (self.report, parameters.every) {
            // Samples belong to call paths.
            (Report::Functions, None) => maker.fast(Functions),
            (report, every) => maker.fast(Profile { every, report }),
        }
    }
}
