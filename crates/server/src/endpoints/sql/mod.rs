//! `sql/tables`: the names of the tables that statements can read. `sql?query=…`: the result of the last statement.

use crate::answer::{Answer, Endpoint, Failure, Question, Work};

/// Rows of a result, at most: more than a person reads, and few enough for a page to sort and to draw.
const MOST: u64 = 100_000;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "sql/tables", work: Work::Query, answer: tables },
    Endpoint { path: "sql", work: Work::Pass, answer: run },
];

fn tables(question: &Question<'_>) -> Result<Answer, Failure> {
    Answer::json(&question.session.inputs.sql_tables()?)
}

fn run(question: &Question<'_>) -> Result<Answer, Failure> {
    let query = question.text("query");
    question.kept_or(&format!("sql {query}"), || {
        let made = question.session.inputs.sql(query, MOST, question.stop)?;
        made.map(|table| Answer::table(&table, MOST as usize)).transpose()
    })
}
