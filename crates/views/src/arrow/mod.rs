//! An Arrow IPC file: the columns in their memory layout.
//!
//! This is the file format, not the stream format. pyarrow, polars and (through pyarrow) DuckDB read it by column and
//! memory-mapped, and its footer has space for what is known after the last row.

use std::{io, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch, StringArray, cast::AsArray, types::Int32Type};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use hodo_model::table::metadata::{LOSS, SUMMARY, TableMetadata, loss_json, summary_json};

use crate::{Draw, End, Options, Output, Reader, View};

pub(crate) const VIEW: View = View {
    name: "arrow",
    help: "an Arrow IPC file, for pyarrow, DuckDB and polars",
    reader: Reader::ProgramsOfBytes,
    shows_loss: true,
    several: None,
    begin,
};

struct Arrow<'o> {
    writer: FileWriter<Output<'o>>,
    /// The schema with names as text, if batches do not share dictionaries. A file has one dictionary per column, and
    /// polars does not read dictionaries that grow.
    plain: Option<SchemaRef>,
}

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let plain = schema.summary_json().is_none().then(|| Arc::new(without_names(schema)));
    let writer = FileWriter::try_new(out, plain.as_ref().unwrap_or(schema)).map_err(writer_error)?;
    Ok(Box::new(Arrow { writer, plain }))
}

impl Draw for Arrow<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let Some(plain) = &self.plain else { return self.writer.write(batch).map_err(writer_error) };
        let columns = batch.columns().iter().map(as_text).collect();
        let batch = RecordBatch::try_new(Arc::clone(plain), columns).map_err(writer_error)?;
        self.writer.write(&batch).map_err(writer_error)
    }

    fn end(mut self: Box<Self>, end: &End<'_>) -> io::Result<()> {
        if self.plain.is_some() {
            self.writer.write_metadata(SUMMARY, summary_json(end.summary));
            self.writer.write_metadata(LOSS, loss_json(end.loss));
        }
        self.writer.finish().map_err(writer_error)
    }
}

fn without_names(schema: &Schema) -> Schema {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(..) => Field::clone(field).with_data_type(DataType::Utf8),
        _ => Field::clone(field),
    };
    Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>())
        .with_metadata(schema.metadata().clone())
}

/// Converts names to text.
fn as_text(column: &ArrayRef) -> ArrayRef {
    let Some(names) = column.as_dictionary_opt::<Int32Type>() else { return Arc::clone(column) };
    let values = names.values().as_string::<i32>();
    let text = names.keys().iter().map(|key| key.map(|key| values.value(key as usize)));
    Arc::new(text.collect::<StringArray>())
}

/// Extracts the error of the underlying writer, if there is one.
fn writer_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        error => io::Error::other(error),
    }
}
