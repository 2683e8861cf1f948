//! Draws tables.
//!
//! ```text
//! Table ──► one of VIEWS (text, json, jsonl, csv) ──► bytes
//!   └─────► write_loss ──► bytes, beside a view that has no place for what is missing
//! ```
//!
//! A view knows shapes, columns and units; it knows no analysis. All write as they go, row by row,
//! and what they write depends on nothing but the table and the [`Options`].

use std::io::{self, Write};

use hodo_trace::Table;

mod csv;
mod json;
mod jsonl;
mod text;

pub use text::write_loss;

/// A way to draw tables.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// What users call it, as in `--format json`.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// Whether it shows [`Table::loss`]. Where it does not, [`write_loss`] has to, elsewhere.
    pub shows_loss: bool,
    /// Draws a table. Many small writes: the writer should have a buffer. Errors are those of the writer.
    pub write: fn(&Table, &Options, &mut dyn Write) -> io::Result<()>,
}

/// Every view, in the order of help texts; the first is for people at a terminal.
pub const VIEWS: &[View] = &[text::VIEW, json::VIEW, jsonl::VIEW, csv::VIEW];

/// How to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal, where lines have to fit; text is cut short for it. `None` shows
    /// everything in full.
    pub width: Option<usize>,
    /// Whether to use colours and bold type (ANSI escape sequences).
    pub colour: bool,
    /// How many rows were left out of the table on request, after its last row.
    pub rows_left_out: u64,
}
