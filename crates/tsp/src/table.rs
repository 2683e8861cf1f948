//! Tables: the records in order of their begin.

use hodo_store::{Budget, Field, Kind, Record, Table};

use crate::{
    Service,
    model::{Line, LineCell, Lines, LinesParameters, TableHeader},
    output::Outcome,
};

/// The most lines of an answer.
const MOST_LINES: u64 = 10_000;

/// A column: its name, its unit and the protocol's type.
pub(crate) type Heading = (String, String, &'static str);

/// Returns the protocol's type of a column.
fn data_type(field: &Field) -> &'static str {
    match field.kind {
        Kind::Integer | Kind::Signed | Kind::Real => "NUMBER",
        Kind::Name | Kind::Lane | Kind::Boolean => "STRING",
    }
}

impl Service {
    /// Returns the columns of a table: times, the key of the lane, the value and the others.
    pub(crate) fn columns(&self, table: Table<'_>) -> Vec<Heading> {
        let schema = table.schema();
        let mut columns = vec![("begin_ns".to_owned(), "ns".to_owned(), "TIMESTAMP")];
        if schema.shape.has_duration() {
            columns.push(("duration_ns".to_owned(), "ns".to_owned(), "DURATION"));
        }
        let fields = schema.key.iter().chain([&schema.value]).chain(&schema.columns);
        columns.extend(fields.map(|field| (field.name.clone(), field.unit.clone(), data_type(field))));
        columns
    }

    /// Returns the cells of a record in words, in the order of the columns; null cells are empty.
    pub(crate) fn cells(&self, table: Table<'_>, record: &Record) -> Vec<String> {
        let schema = table.schema();
        let words = |field: &Field, cell: Option<u64>| match (field.kind, cell) {
            (_, None) => String::new(),
            (Kind::Lane, Some(lane)) => {
                let path = u32::try_from(lane).map(|lane| self.store.path(table, lane));
                path.ok().and_then(|mut path| path.pop()).unwrap_or_default()
            }
            (kind, cell) => self.store.words(kind, cell),
        };
        let mut cells = vec![record.begin.to_string()];
        if schema.shape.has_duration() {
            cells.push((record.end - record.begin).to_string());
        }
        let key = table.key(record.lane).unwrap_or_default();
        cells.extend(schema.key.iter().zip(key).map(|(field, cell)| words(field, *cell)));
        cells.push(words(&schema.value, record.value));
        cells.extend(schema.columns.iter().zip(&record.cells).map(|(field, cell)| words(field, *cell)));
        cells
    }

    /// Returns the headers of a table's columns, which are numbered from 0.
    pub(crate) fn headers(&self, number: usize) -> Vec<TableHeader> {
        let columns = (0..).zip(self.columns(self.table(number)));
        let header = |(id, (name, unit, kind)): (u64, Heading)| {
            let description = if unit.is_empty() { name.clone() } else { format!("{name}, in {unit}") };
            TableHeader { id, name, description, kind }
        };
        columns.map(header).collect()
    }

    /// Returns lines of a table: from an index on, or from the first that begins at a time or after it.
    pub(crate) fn lines(&self, number: usize, asked: &LinesParameters, budget: &Budget) -> Outcome<Lines> {
        let table = self.table(number);
        let time = asked.requested_times.as_ref().and_then(|times| times.first());
        let low_index = match (asked.requested_table_index, time) {
            (Some(index), _) => index,
            (None, Some(&time)) => table.count_before(u64::try_from(time).unwrap_or(0), budget)?,
            (None, None) => 0,
        };
        let all = 0..self.columns(table).len() as u64;
        let column_ids: Vec<u64> = match &asked.requested_table_column_ids {
            Some(ids) if !ids.is_empty() => ids.iter().copied().filter(|id| all.contains(id)).collect(),
            _ => all.collect(),
        };
        let limit = asked.requested_table_count.min(MOST_LINES) as usize;
        let records = table.page(low_index, limit, budget)?;
        let line = |(index, record): (u64, &Record)| {
            let cells = self.cells(table, record);
            let cell = |id: &u64| LineCell { content: cells[*id as usize].clone() };
            Line { index, cells: column_ids.iter().map(cell).collect() }
        };
        let lines = (low_index..).zip(&records).map(line).collect();
        Ok((Lines { column_ids, low_index, size: table.rows(), lines }, String::new()))
    }
}
