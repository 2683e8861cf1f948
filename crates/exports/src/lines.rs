//! The rows of a table of source lines.

use hodo_model::table::{Cell, RecordBatch, cells};

/// Calls `each` with file, line and executions of the known lines of a batch. Returns whether it is one of lines: it has
/// the columns.
///
/// # Errors
/// Those of `each`.
pub fn line_rows<E>(
    batch: &RecordBatch,
    mut each: impl FnMut(&str, u64, u64) -> Result<(), E>,
) -> Result<bool, E> {
    let schema = batch.schema();
    let (Ok(line), Ok(executions)) = (schema.index_of("line"), schema.index_of("executions")) else {
        return Ok(false);
    };
    let columns = cells(batch);
    for row in 0..batch.num_rows() {
        let (Cell::Text(place), Cell::Integer(executions)) =
            (columns[line].cell(row), columns[executions].cell(row))
        else {
            continue;
        };
        let place = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        if let Some((file, line)) = place {
            each(file, line, executions)?;
        }
    }
    Ok(true)
}
