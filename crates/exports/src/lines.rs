//! The rows of a table of source lines.

use hodo_model::table::{Cell, RecordBatch, cells};

/// Calls `each` with module, file, line and executions of the known lines of a batch. Returns whether it is one of lines:
/// it has the columns.
///
/// # Errors
/// Those of `each`.
pub fn line_rows<E>(
    batch: &RecordBatch,
    mut each: impl FnMut(&str, &str, u64, u64) -> Result<(), E>,
) -> Result<bool, E> {
    let schema = batch.schema();
    let find = |name: &str| schema.index_of(name);
    let (Ok(line), Ok(executions), Ok(module)) = (find("line"), find("executions"), find("module")) else {
        return Ok(false);
    };
    let columns = cells(batch);
    for row in 0..batch.num_rows() {
        let (Cell::Text(location), Cell::Integer(executions)) =
            (columns[line].cell(row), columns[executions].cell(row))
        else {
            continue;
        };
        let location = location.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        if let Some((file, line)) = location {
            let module = match columns[module].cell(row) {
                Cell::Text(module) => module,
                _ => "",
            };
            each(module, file, line, executions)?;
        }
    }
    Ok(true)
}
