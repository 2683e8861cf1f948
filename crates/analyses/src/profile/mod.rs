//! The exact profile of control flow: the instructions of each function and call path.
//!
//! Frames follow calls and returns. A jump into another function shows as a separate frame below the called function
//! (tail calls, PLT stubs, parts that the compiler moved); `longjmp` and exceptions unwind to the newest frame of the
//! function in which they land; a signal handler is a frame above the interrupted function.

mod cost;
mod functions;
mod table;
mod tree;

use hodo_model::{Description, Every, FlowLoop, Made, Role, Takes};

pub use functions::Functions;
pub use tree::Profile;

pub(crate) use table::share;

/// The kind of the table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileReport {
    /// One row per function.
    Functions,
    /// One row per call path.
    Tree,
    /// Call paths of the whole recording, or of the executions of one function.
    Paths,
}

const TAKES: Takes = Takes { threads: true, every: true, ..Takes::NOTHING };

/// The report of functions.
pub(crate) const fn functions<L: FlowLoop>() -> hodo_model::Report<L> {
    hodo_model::Report {
        description: Description {
            name: "functions",
            roles: &[Role::Functions],
            help: "exact profile: instructions, calls and time of each function; by thread, of each in each thread",
            views: &["function", "thread"],
            takes: TAKES,
            in_all: true,
            ..Description::EMPTY
        },
        make: |parameters| match parameters.every {
            None => Made::of_flow(Functions),
            // Samples belong to call paths.
            every => Made::of_flow(Profile { every, report: ProfileReport::Functions }),
        },
    }
}

/// The report of call paths.
pub(crate) const fn tree<L: FlowLoop>() -> hodo_model::Report<L> {
    hodo_model::Report {
        description: Description {
            name: "tree",
            roles: &[Role::CallTree],
            help: "exact calling-context tree: instructions, calls and time of each call path, with recursions folded; by path each call of a recursion; by thread its start function",
            views: &["folded", "path", "thread"],
            takes: TAKES,
            ..Description::EMPTY
        },
        make: |parameters| Made::of_flow(Profile { every: parameters.every, report: ProfileReport::Tree }),
    }
}

/// The report of call paths; they may begin at a function.
pub(crate) const fn paths<L: FlowLoop>() -> hodo_model::Report<L> {
    hodo_model::Report {
        description: Description {
            name: "paths",
            roles: &[Role::CallPaths],
            help: "exact call paths, optionally from a function or system call; --format folded for flame graphs",
            views: &["instructions", "time"],
            takes: Takes { threads: true, root: true, ..Takes::NOTHING },
            ..Description::EMPTY
        },
        make: |parameters| Made::of_flow(Profile { every: parameters.every, report: ProfileReport::Paths }),
    }
}
