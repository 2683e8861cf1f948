//! Decodes packets and code to the exact flow of execution.
//!
//! ```text
//! packets ──elements (what is committed?)──► decoder (what happened?) ──walk (which blocks is that?)──► Sink
//! ```

mod decoder;
mod elements;
mod exception;
mod walk;

pub use decoder::{Decoder, Memos, ThreadContext};
