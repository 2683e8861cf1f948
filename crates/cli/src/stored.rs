//! The records of a store as tables.

use hodo_model::{
    Column, Shape, Table, Unit,
    table::{Cell, Heading, interned},
};
use hodo_store::{Budget, Error, Field, Kind, Record, Store, Wanted};

/// Returns the first records of a table that have an instant in a span of nanoseconds, in order of their begin. The columns
/// are the key of the lane, the times, the value, and further ones. A link's other lane is in columns that begin with `to_`.
///
/// # Errors
/// The span is empty, or the store is damaged or replaced.
pub(crate) fn records(
    store: &Store,
    table: hodo_store::Table<'_>,
    span: (u64, u64),
    limit: usize,
    budget: &Budget,
) -> Result<Table, Error> {
    let schema = table.schema();
    let found = table.records(&Wanted { span, ..Wanted::ALL }, None, limit, budget)?;
    let is_link = schema.value.kind == Kind::Lane;
    let mut columns: Vec<Column> = schema.key.iter().map(|field| column(field, NO_PREFIX)).collect();
    let times: &[&'static str] =
        if schema.shape.has_duration() { &["begin_ns", "end_ns"] } else { &["at_ns"] };
    columns.extend(times.iter().map(|name| Column::integer(name, Unit::Nanoseconds)));
    if is_link {
        columns.extend(schema.key.iter().map(|field| column(field, "to_")));
    } else {
        columns.push(column(&schema.value, NO_PREFIX));
    }
    columns.extend(schema.columns.iter().map(|field| column(field, NO_PREFIX)));
    let shape = if schema.shape.has_duration() { Shape::Intervals } else { Shape::Points };
    let mut rows = Heading { name: interned(&schema.name), shape, columns }.builder();
    let key = |lane: u32| -> Vec<Cell<'_>> {
        let cells = table.key(lane).unwrap_or_default();
        let bits = |index: usize| cells.get(index).copied().flatten();
        schema.key.iter().enumerate().map(|(index, field)| cell(store, field, bits(index))).collect()
    };
    for Record { lane, begin, end, value, cells } in &found {
        let mut row = key(*lane);
        row.push(Cell::Integer(*begin));
        row.extend(schema.shape.has_duration().then_some(Cell::Integer(*end)));
        if !is_link {
            row.push(cell(store, &schema.value, *value));
        } else if let Some(Ok(other)) = value.map(u32::try_from) {
            row.extend(key(other));
        } else {
            row.extend(schema.key.iter().map(|_| Cell::Null));
        }
        row.extend(schema.columns.iter().zip(cells).map(|(field, bits)| cell(store, field, *bits)));
        rows.row(row);
    }
    let whole = found.len() < limit;
    Ok(rows.finish(vec![("records", (found.len() as u64).into()), ("whole", whole.into())]))
}

const NO_PREFIX: &str = "";

fn column(field: &Field, prefix: &str) -> Column {
    let (name, unit) = (interned(&format!("{prefix}{}", field.name)), Unit::of_name(&field.unit));
    match field.kind {
        Kind::Name => Column::name(name),
        Kind::Lane | Kind::Integer => Column::integer(name, unit),
        Kind::Signed => Column::signed(name, unit),
        Kind::Real => Column::real(name, unit),
        Kind::Boolean => Column::boolean(name),
    }
}

fn cell<'s>(store: &'s Store, field: &Field, bits: Option<u64>) -> Cell<'s> {
    let Some(bits) = bits else { return Cell::Null };
    match field.kind {
        Kind::Name => store.name(bits).map_or(Cell::Null, Cell::Text),
        Kind::Lane | Kind::Integer => Cell::Integer(bits),
        Kind::Signed => Cell::Signed(bits as i64),
        Kind::Real => Cell::Real(f64::from_bits(bits)),
        Kind::Boolean => Cell::Boolean(bits != 0),
    }
}
