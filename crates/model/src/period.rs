//! Periods that somebody makes up: from one event to another.

use serde::{Deserialize, Serialize};

/// What a period is: from an event to the next of another kind with the same values in some fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Where it begins.
    pub begin: Edge,
    /// Where it ends.
    pub end: Edge,
    /// Fields of the first and of the last event that have the same values.
    pub matched: Vec<(String, String)>,
    /// Fields of the first event by whose values periods are summed up.
    pub group: Vec<String>,
}

/// Events at which periods begin or end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// A pattern of their names.
    pub pattern: String,
    /// What their fields must meet; everything where it is empty.
    pub condition: String,
}

impl Edge {
    /// Reads `PATTERN` or `PATTERN where CONDITION`.
    pub fn parse(text: &str) -> Edge {
        let (pattern, condition) = text.split_once(" where ").unwrap_or((text, ""));
        Edge { pattern: pattern.trim().to_owned(), condition: condition.trim().to_owned() }
    }
}
