//! Names of tables and lanes for people, so that a view of a store needs no knowledge of its tables.

use serde::{Deserialize, Serialize};

use crate::{
    reader::{Store, Table},
    schema::Kind,
};

/// How a table and its lanes are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Naming {
    /// What the table's records are, such as `system calls`; empty: the table's name says it.
    pub title: String,
    /// The place of a lane in the tree of all lanes, from the root; `{column}` stands for the cell of that column of
    /// the key. Lanes with the same path, such as a thread's states and its wake-ups, are one row of a timeline. Empty:
    /// the table's name, then the key's cells.
    pub path: Vec<String>,
}

/// The text of a null cell.
const UNKNOWN: &str = "?";

impl Store {
    /// Returns the text of a cell: the name, the number, or `?` for null.
    pub fn words(&self, kind: Kind, cell: Option<u64>) -> String {
        let Some(bits) = cell else { return UNKNOWN.to_owned() };
        match kind {
            Kind::Name => self.name(bits).unwrap_or(UNKNOWN).to_owned(),
            Kind::Lane | Kind::Integer => bits.to_string(),
            Kind::Signed => (bits as i64).to_string(),
            Kind::Real => f64::from_bits(bits).to_string(),
            Kind::Boolean => (bits != 0).to_string(),
        }
    }

    /// Returns the path of a lane of a table in the tree of all lanes; see [`Naming::path`].
    pub fn path(&self, table: Table<'_>, lane: u32) -> Vec<String> {
        let (schema, key) = (table.schema(), table.key(lane).unwrap_or_default());
        let cells = schema.key.iter().zip(key);
        let texts: Vec<(&str, String)> =
            cells.map(|(field, cell)| (field.name.as_str(), self.words(field.kind, *cell))).collect();
        if schema.naming.path.is_empty() {
            return [schema.name.clone()]
                .into_iter()
                .chain(texts.into_iter().map(|(_, text)| text))
                .collect();
        }
        schema.naming.path.iter().map(|template| filled(template, &texts)).collect()
    }
}

/// Replaces the columns of a part of a [path](Naming::path) by the texts of their cells: `cells` has pairs of a column and
/// its text. Braces in these texts are kept.
pub fn filled(template: &str, cells: &[(&str, String)]) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, from)) = rest.split_once('{') {
        text.push_str(before);
        let filled = from.split_once('}').and_then(|(column, behind)| {
            let (_, cell) = cells.iter().find(|(name, _)| *name == column)?;
            Some((cell, behind))
        });
        rest = match filled {
            Some((cell, behind)) => {
                text.push_str(cell);
                behind
            }
            None => {
                text.push('{');
                from
            }
        };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn a_template_takes_the_cells_of_its_columns() {
        let cells = [("comm", "{tid}".to_owned()), ("tid", "42".to_owned())];
        assert_eq!(filled("{comm} ({tid})", &cells), "{tid} (42)");
        assert_eq!(filled("CPU {cpu} {", &cells), "CPU {cpu} {");
        assert_eq!(filled("", &cells), "");
    }
}
