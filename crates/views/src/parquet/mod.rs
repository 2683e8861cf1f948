//! A Parquet file: compressed columns, in row groups of bounded size.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::table::metadata::{LOSS, SUMMARY, loss_json, summary_json};
use parquet::{
    arrow::ArrowWriter,
    basic::Compression,
    errors::ParquetError,
    file::{metadata::KeyValue, properties::WriterProperties},
};

use crate::{Draw, End, Options, Output, Reader, View};

pub(crate) const VIEW: View = View {
    name: "parquet",
    help: "a Parquet file, for pyarrow, DuckDB, polars and most others",
    reader: Reader::ProgramsOfBytes,
    shows_loss: true,
    several: None,
    begin,
};

/// Rows per group: DuckDB's unit of reading.
const GROUP_ROWS: usize = 122_880;
/// Bytes per group, which stays in memory until it is written.
const GROUP_BYTES: usize = 64 << 20;
/// Rows encoded at once: the writer checks its limits between them.
const PART_ROWS: usize = 4_096;

struct Parquet<'o>(ArrowWriter<Output<'o>>);

fn begin<'o>(schema: &SchemaRef, _: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("hodo ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .build();
    let writer =
        ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties)).map_err(writer_error)?;
    Ok(Box::new(Parquet(writer)))
}

impl Draw for Parquet<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let parts = (0..batch.num_rows()).step_by(PART_ROWS);
        let part = |begin: usize| batch.slice(begin, PART_ROWS.min(batch.num_rows() - begin));
        parts.map(part).try_for_each(|part| self.0.write(&part).map_err(writer_error))
    }

    fn end(mut self: Box<Self>, end: &End<'_>) -> io::Result<()> {
        // For readers that ignore Arrow's schema.
        for (key, value) in [(SUMMARY, summary_json(end.summary)), (LOSS, loss_json(end.loss))] {
            self.0.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        self.0.close().map_err(writer_error).map(drop)
    }
}

/// Extracts the error of the underlying writer, if there is one.
fn writer_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
