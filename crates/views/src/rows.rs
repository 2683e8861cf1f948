//! Keeps the rows of a table, for views that need all rows before drawing the first.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::{
    Table,
    table::{Cell, Cells, cells},
};

use crate::{Draw, End, Options, Output};

/// The rows of a table.
pub(crate) struct Rows {
    pub(crate) schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Rows {
    pub(crate) fn of(table: &Table) -> Rows {
        Rows { schema: table.schema(), batches: table.batches().to_vec() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Calls `each` with each row, in order.
    pub(crate) fn each(&self, mut each: impl FnMut(BatchRow<'_>)) {
        for batch in &self.batches {
            let columns = cells(batch);
            (0..batch.num_rows()).for_each(|row| each(BatchRow { columns: &columns, row }));
        }
    }
}

/// A row of a batch.
#[derive(Clone, Copy)]
pub(crate) struct BatchRow<'t> {
    columns: &'t [Cells<'t>],
    row: usize,
}

impl<'t> BatchRow<'t> {
    pub(crate) fn cell(self, column: usize) -> Cell<'t> {
        self.columns[column].cell(self.row)
    }
}

/// A function that draws a table with all its rows.
pub(crate) type DrawRows = fn(&Rows, &End<'_>, &Options, Output<'_>) -> io::Result<()>;

struct BufferedRows<'o> {
    rows: Rows,
    options: Options,
    draw: DrawRows,
    out: Output<'o>,
}

/// Creates a drawing that keeps the rows and calls `draw` at the end.
pub(crate) fn keep<'o>(
    schema: &SchemaRef,
    options: &Options,
    out: Output<'o>,
    draw: DrawRows,
) -> Box<dyn Draw + 'o> {
    let rows = Rows { schema: SchemaRef::clone(schema), batches: Vec::new() };
    Box::new(BufferedRows { rows, options: *options, draw, out })
}

impl Draw for BufferedRows<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.rows.batches.push(batch.clone());
        Ok(())
    }

    fn end(self: Box<Self>, end: &End<'_>) -> io::Result<()> {
        (self.draw)(&self.rows, end, &self.options, self.out)
    }
}
