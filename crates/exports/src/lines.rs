//! The rows of a table of source lines.

use hodo_model::table::{Cell, RecordBatch, cells};

/// A source line that ran.
#[derive(Clone, Copy, Debug)]
pub struct LineRow<'r> {
    /// The module that contains its code.
    pub module: &'r str,
    /// The source file's path.
    pub file: &'r str,
    /// The line in `file`, from 1.
    pub line: u64,
    /// How often it was executed.
    pub executions: u64,
}

/// Calls `each` with the known lines of a batch. Returns `false` if it lacks the columns of a table of lines.
///
/// # Errors
/// Those of `each`.
pub fn line_rows<E>(
    batch: &RecordBatch,
    mut each: impl FnMut(&LineRow<'_>) -> Result<(), E>,
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
            each(&LineRow { module, file, line, executions })?;
        }
    }
    Ok(true)
}
