//! Checked reading of untrusted bytes.
//!
//! ```text
//! file, pipe ──Map──► &[u8] ──Cursor──► integers, strings, sub-slices, or an Eof that says where
//!               └─ a file that shrinks while it is read: zeros, and the offset (guard)
//! ```
//!
//! Only this crate reads with `unsafe`: it maps files and prefetches memory.

#![deny(missing_docs)]

mod cursor;
mod guard;
mod map;

pub use cursor::{Cursor, Eof};
pub use guard::{Unreadable, unreadable};
pub use map::{Map, prefetch};

/// The examples of the page that package registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
