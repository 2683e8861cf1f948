//! Named pairs of markers: those that ship with the program, and those of a user's file.

use std::{collections::BTreeMap, fmt};

use hodo_model::{ExpressionError, Nesting};
use serde::Deserialize;

use super::marker::{Named, parse};

/// The pairs that ship with the program.
const SHIPPED: &str = include_str!("pairs.toml");

/// A named pair of markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPair {
    /// Its name.
    pub name: String,
    /// A description of what it measures.
    pub help: String,
    /// The markers at which intervals begin.
    pub from: Vec<Named>,
    /// The markers at which intervals end.
    pub to: Vec<Named>,
    /// How begins and ends are paired.
    pub nesting: Nesting,
}

/// A [`NamedPair`] as written in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPair {
    #[serde(default)]
    help: String,
    from: String,
    to: String,
    #[serde(default)]
    nesting: WrittenNesting,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenNesting {
    #[default]
    Nested,
    First,
    Last,
}

/// Why a text is rejected.
#[derive(Debug)]
pub enum PairsError {
    /// It is not TOML, or not in the format of pairs.
    Toml(Box<toml::de::Error>),
    /// A marker of this pair can't be parsed.
    Marker(String, ExpressionError),
}

impl fmt::Display for PairsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairsError::Toml(error) => write!(f, "{error}"),
            PairsError::Marker(name, error) => write!(f, "pair `{name}`: {error}"),
        }
    }
}

impl std::error::Error for PairsError {}

/// Returns the pairs that ship with the program, sorted by name.
pub fn shipped() -> Vec<NamedPair> {
    user_pairs(SHIPPED).expect("what ships can be read: a test reads it")
}

/// Parses the pairs of a user's file: a TOML table for each, with `from`, `to`, and optionally `nesting` and `help`.
///
/// # Errors
/// Returns what can't be parsed, and where.
pub fn user_pairs(text: &str) -> Result<Vec<NamedPair>, PairsError> {
    let written: BTreeMap<String, WrittenPair> =
        toml::from_str(text).map_err(|error| PairsError::Toml(Box::new(error)))?;
    let pairs = written.into_iter().map(|(name, WrittenPair { help, from, to, nesting })| {
        let read = |text: &str| parse(text).map_err(|error| PairsError::Marker(name.clone(), error));
        let (from, to) = (read(&from)?, read(&to)?);
        let nesting = match nesting {
            WrittenNesting::Nested => Nesting::Nested,
            WrittenNesting::First => Nesting::First,
            WrittenNesting::Last => Nesting::Last,
        };
        Ok(NamedPair { name, help, from, to, nesting })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_read() {
        let names: Vec<String> = shipped().into_iter().map(|pair| pair.name).collect();
        let expected = [
            "cpu-relax",
            "interrupts-off",
            "kernel-fpu",
            "malloc",
            "mutex",
            "page-fault",
            "preempt-off",
            "spinlock",
            "syscall",
        ];
        assert_eq!(names, expected);
        assert!(shipped().iter().all(|pair| !pair.help.is_empty()));
    }

    #[test]
    fn a_wrong_file_says_where() {
        let error = |text: &str| user_pairs(text).unwrap_err().to_string();
        assert!(
            error("[a]\nfrom = 'clli'\nto = 'sti'").starts_with("pair `a`: there is no instruction `clli`")
        );
        assert!(error("[a]\nfrom = 'cli'").contains("missing field `to`"));
        assert!(error("[a]\nfrom = 'cli'\nto = 'sti'\nnest = 1").contains("nest"));
    }
}
