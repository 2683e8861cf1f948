//! The rows of a table of coverage.

use hodo_model::table::{Cell, RecordBatch, cells};

/// What was counted of a source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered<'r> {
    /// The line itself.
    Line,
    /// A function that begins in the line.
    Function {
        /// Its name.
        name: &'r str,
    },
    /// A conditional branch of the line's code.
    Branch {
        /// How often it was taken.
        taken: u64,
        /// How often it was not taken.
        not_taken: u64,
    },
}

/// A line, a function or a branch, whether it ran or not.
#[derive(Clone, Copy, Debug)]
pub struct CoverageRow<'r> {
    /// The module that contains its code.
    pub module: &'r str,
    /// The source file's path.
    pub file: &'r str,
    /// The line in `file`, from 1.
    pub line: u64,
    /// How often it was executed.
    pub executions: u64,
    /// What was executed.
    pub covered: Covered<'r>,
}

/// Calls `each` with the rows of a batch. Returns `false` if it lacks the columns of a table of coverage.
///
/// # Errors
/// Those of `each`.
pub fn coverage_rows<E>(
    batch: &RecordBatch,
    mut each: impl FnMut(&CoverageRow<'_>) -> Result<(), E>,
) -> Result<bool, E> {
    let schema = batch.schema();
    let find = |name: &str| schema.index_of(name).ok();
    let names = ["kind", "executions", "taken", "not_taken", "line", "function", "module"].map(find);
    let [
        Some(kind),
        Some(executions),
        Some(taken),
        Some(not_taken),
        Some(line),
        Some(function),
        Some(module),
    ] = names
    else {
        return Ok(false);
    };
    let columns = cells(batch);
    for row in 0..batch.num_rows() {
        let text = |column: usize| match columns[column].cell(row) {
            Cell::Text(text) => text,
            _ => "",
        };
        let integer = |column: usize| match columns[column].cell(row) {
            Cell::Integer(integer) => integer,
            _ => 0,
        };
        let location = text(line).rsplit_once(':');
        let Some((file, Ok(line))) = location.map(|(file, line)| (file, line.parse())) else { continue };
        let covered = match text(kind) {
            "line" => Covered::Line,
            "function" => Covered::Function { name: text(function) },
            "branch" => Covered::Branch { taken: integer(taken), not_taken: integer(not_taken) },
            _ => continue,
        };
        each(&CoverageRow { module: text(module), file, line, executions: integer(executions), covered })?;
    }
    Ok(true)
}
