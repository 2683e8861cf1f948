//! Formats tables.
//!
//! ```text
//! Table ──► one of VIEWS (text, markdown, html, json, jsonl, csv, arrow, parquet, folded, sunburst, svg) ──► bytes
//!   └─────► write_loss ──► bytes, beside a view that does not show losses
//!
//! schema ──View::begin──► Drawing ◄──batch── record batches, as they arrive
//!                            └──end──  summary and loss
//! ```
//!
//! A view depends on shapes, columns and units, and on no analysis. Its output is a function of the table and the
//! [`Options`]. Views for programs write each batch on arrival; views for people keep all rows, because the width of a
//! column depends on all of them.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::{Loss, Summary, Table};

mod arrow;
mod cell;
mod csv;
mod folded;
mod html;
mod json;
mod jsonl;
mod loss;
mod markdown;
mod parquet;
mod rows;
mod sunburst;
mod svg;
mod text;
mod tree;
mod xml;

pub use loss::write_loss;
pub use svg::plot;

/// Every view, in help text order; the first is for people at a terminal.
pub const VIEWS: &[View] = &[
    text::VIEW,
    markdown::VIEW,
    html::VIEW,
    json::VIEW,
    jsonl::VIEW,
    csv::VIEW,
    arrow::VIEW,
    parquet::VIEW,
    folded::VIEW,
    sunburst::VIEW,
    svg::VIEW,
];

/// An output format for tables.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The name for users, as in `--format json`.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The intended reader.
    pub reader: Reader,
    /// Whether it shows [`Table::loss`]. If not, the caller must use [`write_loss`] for another output.
    pub shows_loss: bool,
    /// How to write several tables to one output; `None` if each needs its own.
    pub several: Option<Several>,
    /// Starts a table.
    begin: Begin,
}

/// The intended reader of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// People.
    People,
    /// Programs that read text.
    Programs,
    /// Programs that read one JSON document. Output other than tables is JSON too.
    ProgramsOfJson,
    /// Programs that read binary data, which is useless on a terminal.
    ProgramsOfBytes,
}

/// How to write several tables to one output.
#[derive(Clone, Copy, Debug)]
pub struct Several {
    /// The text before the first table, between two tables, and after the last.
    pub around: [&'static str; 3],
    /// The maximum number of rows per table if the user sets no limit.
    pub rows: Option<u64>,
    /// Whether to show the losses that all tables share only after the last one.
    pub loss_once: bool,
}

/// For people: one below the other, the first rows of each.
const BELOW_EACH_OTHER: Option<Several> =
    Some(Several { around: ["", "\n", ""], rows: Some(10), loss_once: true });

/// Output options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Width of the terminal in characters, to which lines are cut; `None` shows everything in full.
    pub width: Option<usize>,
    /// Whether to use colours and bold type (ANSI escape sequences).
    pub colour: bool,
    /// The maximum number of rows; `None` for all.
    pub limit: Option<u64>,
}

/// The output of a view. Views make many small writes, so it should be buffered.
pub(crate) type Output<'o> = &'o mut (dyn Write + Send + 'o);

pub(crate) type Begin = for<'o> fn(&SchemaRef, &Options, Output<'o>) -> io::Result<Box<dyn Draw + 'o>>;

/// A table being drawn by a view.
pub(crate) trait Draw: Send {
    /// Whether it receives all rows, and applies [`Options::limit`] itself.
    fn limits_itself(&self) -> bool {
        false
    }

    /// Draws rows, or keeps them until the end.
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()>;

    /// Draws the parts after the last row: summary and losses.
    fn end(self: Box<Self>, end: &End<'_>) -> io::Result<()>;
}

/// The parts of a table that are known after the last row.
pub(crate) struct End<'a> {
    pub(crate) summary: &'a Summary,
    pub(crate) loss: &'a [Loss],
    pub(crate) rows_left_out: u64,
}

impl View {
    /// Whether rows are written on arrival, so that a table may exceed memory.
    pub fn keeps_no_rows(&self) -> bool {
        self.reader != Reader::People
    }

    /// Draws a table.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn draw(&self, table: &Table, options: &Options, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let mut drawing = self.begin(&table.schema(), options, out)?;
        table.batches().iter().try_for_each(|batch| drawing.batch(batch))?;
        drawing.end(&table.summary, &table.loss)
    }

    /// Starts a table whose batches arrive one by one, under a schema of [`hodo_model::table`].
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn begin<'o>(
        &self,
        schema: &SchemaRef,
        options: &Options,
        out: &'o mut (dyn Write + Send),
    ) -> io::Result<Drawing<'o>> {
        let draw = (self.begin)(schema, options, out)?;
        let left = options.limit.filter(|_| !draw.limits_itself());
        Ok(Drawing { draw, left, left_out: 0 })
    }
}

/// A table being drawn.
pub struct Drawing<'o> {
    draw: Box<dyn Draw + 'o>,
    /// The number of rows left to draw, if limited.
    left: Option<u64>,
    left_out: u64,
}

impl Drawing<'_> {
    /// Adds the next rows.
    ///
    /// # Errors
    /// Returns the errors of the writer.
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
    /// Returns the errors of the writer.
    pub fn end(self, summary: &Summary, loss: &[Loss]) -> io::Result<()> {
        self.draw.end(&End { summary, loss, rows_left_out: self.left_out })
    }
}
