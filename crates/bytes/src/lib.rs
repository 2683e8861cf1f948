//! Checked reading of bytes that nobody vouches for.
//!
//! ```text
//! file, pipe ──Map──► &[u8] ──Cursor──► integers, strings, sub-slices, or an Eof that says where
//! ```
//!
//! This is the one crate with `unsafe` for reading: mapping a file, and fetching what lies ahead.

mod cursor;
mod map;

pub use cursor::{Cursor, Eof};
pub use map::{Map, prefetch};
