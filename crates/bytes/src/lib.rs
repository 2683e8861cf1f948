//! Checked reading of untrusted bytes.
//!
//! ```text
//! file, pipe ──Map──► &[u8] ──Cursor──► integers, strings, sub-slices, or an Eof that says where
//! ```
//!
//! Only this crate reads with `unsafe`: it maps files and prefetches memory.

mod cursor;
mod map;

pub use cursor::{Cursor, Eof};
pub use map::{Map, prefetch};
