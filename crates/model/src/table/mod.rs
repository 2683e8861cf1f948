//! Tables: the only thing that leaves an analysis.
//!
//! ```text
//! rows of Values ──TableBuilder──► Arrow record batches under a schema ──► views
//!                                  └─ Cells ──► rows of Cells
//! ```
//!
//! A table's data are columns in [Arrow](https://arrow.apache.org/docs/format/Columnar.html)'s layout. Units, the
//! shape, the summary and what is missing are [`metadata`] of the schema, with typed accessors.

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
pub use column::{Column, Type, Unit};

/// What kind of picture a table can become; views accept shapes, never analyses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Rows that stand by themselves, such as counts by function.
    Counters,
    /// Rows in depth-first order; the column `depth` tells the parent.
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

    /// The shape with a name; counters where there is no such shape.
    pub fn of_name(name: &str) -> Shape {
        Shape::ALL.into_iter().find(|shape| shape.name() == name).unwrap_or(Shape::Counters)
    }
}

/// Figures of the whole, such as `instructions`, in a defined order.
pub type Summary = Vec<(&'static str, Value)>;

/// Columns under names, in a defined order of rows, with what was lost on the way.
#[derive(Clone)]
pub struct Table {
    name: &'static str,
    shape: Shape,
    columns: Vec<Column>,
    /// That of the batches, which have no summary.
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Figures of the whole.
    pub summary: Summary,
    /// What is missing from the rows.
    pub loss: Vec<Loss>,
}

impl Table {
    /// A table of rows: a value a column, of the column's type or null.
    ///
    /// # Panics
    /// Where a row and the columns differ in length or type.
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

    /// The same table, from which this is missing.
    pub fn with_loss(self, loss: Vec<Loss>) -> Table {
        Table { loss, ..self }
    }

    /// The stable name, such as `functions`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What kind of picture it can become.
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

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.row_count() == 0
    }

    /// A copy of the rows as values: for tables that are known to be small.
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

    /// A figure of the whole.
    pub fn figure(&self, name: &str) -> Option<&Value> {
        self.summary.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// The columns of a batch, of which cells are read.
pub fn cells(batch: &RecordBatch) -> Vec<Cells<'_>> {
    batch.columns().iter().map(|column| Cells::of(column.as_ref())).collect()
}

fn schema(name: &str, shape: Shape, columns: &[Column]) -> Schema {
    let metadata = [(metadata::TABLE, name), (metadata::SHAPE, shape.name())];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()).with_metadata(metadata)
}

/// However rows are cut into batches.
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

/// Lines that a person can compare: the summary, the columns, a line for each row, what is missing.
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
