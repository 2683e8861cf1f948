//! `about`: how many tables describe the inputs; `about/table?number=N`: one of them.

use serde_json::json;

use crate::answer::{Answer, Endpoint, Failure, Question, Work};

/// Rows of a table, at most.
const MOST: usize = 10_000;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "about", work: Work::Query, answer: about },
    Endpoint { path: "about/table", work: Work::Query, answer: table },
];

fn about(question: &Question<'_>) -> Result<Answer, Failure> {
    Answer::json(&json!({ "tables": question.session.inputs.about().len() }))
}

fn table(question: &Question<'_>) -> Result<Answer, Failure> {
    let number: usize = question.number("number")?;
    let tables = question.session.inputs.about();
    let table = tables.get(number).ok_or_else(|| Failure::Refused(format!("there is no table {number}")))?;
    Answer::table(table, MOST)
}
