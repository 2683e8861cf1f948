//! The exact profile of control flow: what each function executed, along which call paths.
//!
//! Frames follow calls and returns. A jump into another function shows as a frame of its own below
//! the one that was called (tail calls, PLT stubs, parts that the compiler moved); `longjmp` and
//! exceptions unwind to the newest frame of the function that they land in; a signal handler stands
//! on the function that it interrupted.

mod cost;
mod functions;
mod table;
mod tree;

pub use functions::Functions;
pub use tree::Profile;

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
