//! The rows of a table of call paths.

use std::collections::HashMap;

use hodo_model::table::{Cell, RecordBatch, cells};

/// A call path: the last frame and its costs.
#[derive(Clone, Copy, Debug)]
pub struct PathRow<'r> {
    /// Number of frames that lead to the last one.
    pub depth: usize,
    /// The function of the last frame.
    pub function: &'r str,
    /// Its module.
    pub module: &'r str,
    /// How often it was entered.
    pub entries: u64,
    /// Instructions, and nanoseconds, of the last frame alone.
    pub own: [u64; 2],
    /// Instructions, and nanoseconds, callees included.
    pub total: [u64; 2],
}

/// Calls `each` with the paths of a batch. Returns `false` if it lacks the columns of a table of call paths.
///
/// # Errors
/// Those of `each`.
pub fn path_rows<E>(
    batch: &RecordBatch,
    mut each: impl FnMut(&PathRow<'_>) -> Result<(), E>,
) -> Result<bool, E> {
    let schema = batch.schema();
    let find = |name: &str| schema.index_of(name).ok();
    let names =
        ["depth", "entries", "self_instructions", "self_time_ns", "total_instructions", "total_time_ns"];
    let numbers: Vec<usize> = names.iter().filter_map(|name| find(name)).collect();
    let (Some(function), Some(module), &[depth, entries, own, own_time, total, total_time]) =
        (find("function"), find("module"), &numbers[..])
    else {
        return Ok(false);
    };
    let columns = cells(batch);
    for row in 0..batch.num_rows() {
        let number = |column: usize| match columns[column].cell(row) {
            Cell::Integer(number) => number,
            _ => 0,
        };
        let text = |column: usize| match columns[column].cell(row) {
            Cell::Text(text) if !text.is_empty() => text,
            _ => "-",
        };
        each(&PathRow {
            depth: number(depth) as usize,
            function: text(function),
            module: text(module),
            entries: number(entries),
            own: [number(own), number(own_time)],
            total: [number(total), number(total_time)],
        })?;
    }
    Ok(true)
}

/// A function of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathFunction {
    pub(crate) module: String,
    pub(crate) name: String,
}

/// Numbers the functions of paths, in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// By number.
    pub(crate) list: Vec<PathFunction>,
    numbers: HashMap<PathFunction, usize>,
    /// The functions of the path so far.
    pub(crate) path: Vec<usize>,
}

impl Functions {
    /// Returns the number of the row's function, which becomes the last of `path`.
    pub(crate) fn add(&mut self, row: &PathRow<'_>) -> usize {
        let number = self.number(row.module, row.function);
        self.path.truncate(row.depth);
        self.path.push(number);
        number
    }

    /// Returns the number of a function.
    pub(crate) fn number(&mut self, module: &str, name: &str) -> usize {
        let function = PathFunction { module: module.to_owned(), name: name.to_owned() };
        *self.numbers.entry(function).or_insert_with_key(|function| {
            self.list.push(function.clone());
            self.list.len() - 1
        })
    }
}

/// Returns a name for a line of text: control characters and separators of lines are escaped, as `\n` or `\u{1b}`.
pub(crate) fn printable(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_control() || "\u{2028}\u{2029}".contains(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}
