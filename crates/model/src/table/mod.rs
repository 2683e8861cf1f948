//! Tables: the only output of an analysis.
//!
//! ```text
//! rows of Values ──TableBuilder──► Arrow record batches under a schema ──► views
//!                                  └─ Cells ──► rows of Cells
//! ```
//!
//! A table stores its columns in the [Arrow](https://arrow.apache.org/docs/format/Columnar.html) layout. Units, the
//! shape, the summary and losses are [`metadata`] of the schema, with typed accessors.

use std::{fmt, sync::Arc};

pub use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::Loss;

mod build;
mod cell;
mod column;
pub mod metadata;

pub use build::{Heading, TableBuilder};
pub use cell::{Cell, Cells, Items, Value};
pub use column::{Column, Type, Unit, interned};

/// The shape of a table. Views depend on the shape, never on the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Independent rows, such as counts by function.
    Counters,
    /// Rows in depth-first order; the column `depth` determines the parent.
    Tree,
    /// Rows with a begin and an end.
    Intervals,
    /// Rows with a time.
    Points,
}

impl Shape {
    const ALL: [Shape; 4] = [Shape::Counters, Shape::Tree, Shape::Intervals, Shape::Points];

    /// The name in schemas, such as `tree`.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Counters => "counters",
            Shape::Tree => "tree",
            Shape::Intervals => "intervals",
            Shape::Points => "points",
        }
    }

    /// The shape with this name, or [`Shape::Counters`].
    pub fn of_name(name: &str) -> Shape {
        Shape::ALL.into_iter().find(|shape| shape.name() == name).unwrap_or(Shape::Counters)
    }
}

/// Figures of the whole table, such as `instructions`, in a defined order.
pub type Summary = Vec<(&'static str, Value)>;

/// Named columns, rows in a defined order, and the losses.
#[derive(Clone)]
pub struct Table {
    name: &'static str,
    shape: Shape,
    columns: Vec<Column>,
    /// The schema of the batches, without the summary.
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Figures of the whole table.
    pub summary: Summary,
    /// Losses: data missing from the rows.
    pub loss: Vec<Loss>,
}

impl Table {
    /// Builds a table from rows: one value per column, of the column's type or null.
    ///
    /// # Panics
    /// If a row does not match the columns in length or type.
    pub fn new(
        name: &'static str,
        shape: Shape,
        summary: Summary,
        columns: Vec<Column>,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Table {
        let mut builder = TableBuilder::new(name, shape, columns);
        rows.into_iter().for_each(|row| builder.row(row.iter().map(Value::cell)));
        builder.finish(summary)
    }

    /// Sets the losses.
    pub fn with_loss(self, loss: Vec<Loss>) -> Table {
        Table { loss, ..self }
    }

    /// The stable name, such as `functions`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The columns as an Arrow schema, with the [`metadata`] of a whole table: summary and loss as they are now.
    pub fn schema(&self) -> SchemaRef {
        let mut schema = Schema::clone(&self.schema);
        schema.metadata.insert(metadata::SUMMARY.to_owned(), metadata::summary_json(&self.summary));
        schema.metadata.insert(metadata::LOSS.to_owned(), metadata::loss_json(&self.loss));
        Arc::new(schema)
    }

    /// The rows, in order.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.row_count() == 0
    }

    /// Copies the rows as values. For small tables only.
    pub fn rows(&self) -> Vec<Vec<Value>> {
        let mut rows = Vec::new();
        for batch in &self.batches {
            let columns = cells(batch);
            rows.extend(
                (0..batch.num_rows()).map(|row| {
                    columns.iter().map(|column| column.cell(row).to_value()).collect::<Vec<Value>>()
                }),
            );
        }
        rows
    }

    /// A figure of the summary.
    pub fn figure(&self, name: &str) -> Option<&Value> {
        self.summary.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// The columns of a batch, for reading cells.
pub fn cells(batch: &RecordBatch) -> Vec<Cells<'_>> {
    batch.columns().iter().map(|column| Cells::of(column.as_ref())).collect()
}

fn schema(name: &str, shape: Shape, columns: &[Column]) -> Schema {
    let metadata = [(metadata::TABLE, name), (metadata::SHAPE, shape.name())];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()).with_metadata(metadata)
}

/// Ignores how the rows are split into batches.
impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        let head = |table: &Table| (table.name, table.shape, table.row_count());
        head(self) == head(other)
            && self.columns == other.columns
            && self.summary == other.summary
            && self.loss == other.loss
            && self.rows() == other.rows()
    }
}

/// Readable lines: the summary, the columns, one line per row, the losses.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.name, self.shape.name())?;
        self.summary.iter().try_for_each(|(name, value)| writeln!(f, "  {name} = {:?}", value.cell()))?;
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        writeln!(f, "{}", names.join(" | "))?;
        for batch in &self.batches {
            let columns = cells(batch);
            for row in 0..batch.num_rows() {
                let mut line = Vec::new();
                for (index, column) in columns.iter().enumerate() {
                    line.extend_from_slice(if index > 0 { b" | " } else { b"" });
                    column.cell(row).write_json(&mut line);
                }
                writeln!(f, "{}", String::from_utf8_lossy(&line))?;
            }
        }
        self.loss.iter().try_for_each(|loss| writeln!(f, "{loss:?}"))
    }
}
