//! The Model Context Protocol on standard input and output: a program that plans calls tools, and reads their answers.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-06-18>. Of it: tools, cancellation and ping.
//!
//! ```text
//! input ──lines──► Session ──arguments──► Tools ──text──► Pages ──first part──► output
//!         cancelled ──► stop                                └── further parts, on demand
//! ```

mod message;
mod pages;
mod session;

pub use session::{Limits, serve};

use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};

/// A tool, as the client is told of it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name, which calls it.
    pub name: &'static str,
    /// What it answers, in a sentence or two.
    pub description: String,
    /// The JSON schema of its arguments, an object.
    pub schema: Value,
    /// Whether it changes nothing.
    pub only_reads: bool,
}

/// What a tool says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Text for the client, of any length.
    pub text: String,
    /// Calls that probably follow, each a line; they are in every part of the answer.
    pub next: Vec<String>,
    /// Whether the call failed, and `text` says why.
    pub failed: bool,
}

/// The tools of a server.
pub trait Tools: Sync {
    /// All of them.
    fn list(&self) -> Vec<Tool>;

    /// Calls one. `stop` is set once the client wants no answer any more. `None` if no tool has this name.
    fn call(&self, name: &str, arguments: &Map<String, Value>, stop: &AtomicBool) -> Option<Answer>;
}
