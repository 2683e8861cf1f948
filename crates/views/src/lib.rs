//! Draws tables.
//!
//! ```text
//! Table ──► one of VIEWS (text, markdown, json, jsonl, csv, arrow, parquet, folded) ──► bytes
//!   └─────► write_loss ──► bytes, beside a view that has no place for what is missing
//!
//! schema ──View::begin──► Drawing ◄──batch── record batches, as they come
//!                            └──end──  summary and loss
//! ```
//!
//! A view knows shapes, columns and units; it knows no analysis. What it writes depends on nothing but the table and
//! the [`Options`]. Views for programs write batches as they come and keep none; views for people keep all rows, as
//! the width of a column depends on each.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::{Loss, Summary, Table};

mod arrow;
mod cell;
mod csv;
mod folded;
mod json;
mod jsonl;
mod loss;
mod markdown;
mod parquet;
mod rows;
mod text;
mod tree;

pub use loss::write_loss;

/// Every view, in the order of help texts; the first is for people at a terminal.
pub const VIEWS: &[View] = &[
    text::VIEW,
    markdown::VIEW,
    json::VIEW,
    jsonl::VIEW,
    csv::VIEW,
    arrow::VIEW,
    parquet::VIEW,
    folded::VIEW,
];

/// A way to draw tables.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// What users call it, as in `--format json`.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// Who reads what it draws.
    pub reader: Reader,
    /// Whether it shows [`Table::loss`]. Where it does not, [`write_loss`] has to, elsewhere.
    pub shows_loss: bool,
    /// How several tables stand in one output; `None` where each needs its own.
    pub several: Option<Several>,
    /// Begins a table.
    begin: Begin,
}

/// Who reads what a view draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// People.
    People,
    /// Programs, as text.
    Programs,
    /// Programs, as one JSON document: other things than tables are written as JSON too.
    ProgramsOfJson,
    /// Programs, as bytes that are no text and mean nothing on a terminal.
    ProgramsOfBytes,
}

/// How several tables stand in one output.
#[derive(Clone, Copy, Debug)]
pub struct Several {
    /// What stands before the first, between two, and after the last.
    pub around: [&'static str; 3],
    /// The most rows of each, where no limit is asked for.
    pub rows: Option<u64>,
    /// Whether the loss that all of them share stands behind the last one only.
    pub loss_once: bool,
}

/// Several tables for people: below each other, the first rows of each.
const BELOW_EACH_OTHER: Option<Several> =
    Some(Several { around: ["", "\n", ""], rows: Some(10), loss_once: true });

/// How to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal, where lines have to fit; text is cut short for it. `None` shows
    /// everything in full.
    pub width: Option<usize>,
    /// Whether to use colours and bold type (ANSI escape sequences).
    pub colour: bool,
    /// The most rows to draw; all where it is `None`.
    pub limit: Option<u64>,
}

/// Where a view writes. Many small writes: it should have a buffer.
pub(crate) type Output<'o> = &'o mut (dyn Write + Send + 'o);

pub(crate) type Begin = for<'o> fn(&SchemaRef, &Options, Output<'o>) -> io::Result<Box<dyn Draw + 'o>>;

/// A table that is being drawn by a view.
pub(crate) trait Draw {
    /// Draws rows, or keeps them until the end.
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()>;

    /// Draws what is known behind the last row.
    fn end(self: Box<Self>, end: &End<'_>) -> io::Result<()>;
}

/// What is known behind the last row.
pub(crate) struct End<'a> {
    pub(crate) summary: &'a Summary,
    pub(crate) loss: &'a [Loss],
    pub(crate) rows_left_out: u64,
}

impl View {
    /// Draws a table.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn draw(&self, table: &Table, options: &Options, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let mut drawing = self.begin(&table.schema(), options, out)?;
        table.batches().iter().try_for_each(|batch| drawing.batch(batch))?;
        drawing.end(&table.summary, &table.loss)
    }

    /// Begins a table of which batches come one by one, under a schema of [`hodo_model::table`].
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin<'o>(
        &self,
        schema: &SchemaRef,
        options: &Options,
        out: &'o mut (dyn Write + Send),
    ) -> io::Result<Drawing<'o>> {
        let draw = (self.begin)(schema, options, out)?;
        Ok(Drawing { draw, left: options.limit, left_out: 0 })
    }
}

/// A table that is being drawn.
pub struct Drawing<'o> {
    draw: Box<dyn Draw + 'o>,
    /// How many more rows may be drawn.
    left: Option<u64>,
    left_out: u64,
}

impl Drawing<'_> {
    /// Adds the next rows.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let rows = batch.num_rows() as u64;
        let shown = self.left.map_or(rows, |left| left.min(rows));
        self.left = self.left.map(|left| left - shown);
        self.left_out += rows - shown;
        match shown {
            0 => Ok(()),
            shown if shown == rows => self.draw.batch(batch),
            shown => self.draw.batch(&batch.slice(0, shown as usize)),
        }
    }

    /// Ends the table.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn end(self, summary: &Summary, loss: &[Loss]) -> io::Result<()> {
        self.draw.end(&End { summary, loss, rows_left_out: self.left_out })
    }
}
