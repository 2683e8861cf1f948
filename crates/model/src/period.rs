//! User-defined periods: from one event to another.

use serde::{Deserialize, Serialize};

/// A period: from an event to the next one of another kind with equal values in the matched fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// The events that begin the period.
    pub begin: Edge,
    /// The events that end the period.
    pub end: Edge,
    /// Pairs of fields, of the first and the last event, whose values must be equal.
    pub matched: Vec<(String, String)>,
    /// Fields of the first event by which periods are grouped.
    pub group: Vec<String>,
}

/// Events that begin or end periods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// A pattern for event names.
    pub pattern: String,
    /// A condition on the event's fields; empty for no condition.
    pub condition: String,
}

impl Edge {
    /// Parses `PATTERN` or `PATTERN where CONDITION`.
    pub fn parse(text: &str) -> Edge {
        let (pattern, condition) = text.split_once(" where ").unwrap_or((text, ""));
        Edge { pattern: pattern.trim().to_owned(), condition: condition.trim().to_owned() }
    }
}
