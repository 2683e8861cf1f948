//! Cells of the store as text.

use hodo_store::{Kind, Store, Table};

use crate::{answer::Question, index::Snapshot};

/// Characters of a text in a picture, at most; names may have megabytes.
const MOST: usize = 256;

/// Returns a cell as text, which is [`cut`]; `None` if it is null.
pub(super) fn value(store: &Store, cell: Option<u64>, kind: Kind) -> Option<String> {
    let bits = cell?;
    Some(match kind {
        Kind::Name => cut(store.name(bits).unwrap_or_default()),
        Kind::Lane | Kind::Integer => bits.to_string(),
        Kind::Signed => (bits as i64).to_string(),
        Kind::Real => f64::from_bits(bits).to_string(),
        Kind::Boolean => (bits != 0).to_string(),
    })
}

/// Returns the module of a value, if it is a function of control flow.
pub(super) fn module(
    question: &Question<'_>,
    snapshot: &Snapshot,
    table: &Table<'_>,
    value: Option<u64>,
) -> Option<String> {
    let schema = table.schema();
    let has_modules =
        schema.value.name == "function" && schema.columns.iter().any(|column| column.name == "module");
    let function = snapshot.store.name(value.filter(|_| has_modules)?)?;
    question.session.module(function).map(cut)
}

/// Returns a cell as a number; `None` if it is null or not a number.
pub(super) fn number(cell: Option<u64>, kind: Kind) -> Option<f64> {
    let bits = cell?;
    match kind {
        Kind::Name | Kind::Lane => None,
        Kind::Integer | Kind::Boolean => Some(bits as f64),
        Kind::Signed => Some(bits as i64 as f64),
        Kind::Real => Some(f64::from_bits(bits)),
    }
}

/// Cuts a text to the length that a picture may need; the cut is marked.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
