//! `source?function=…`: the code of a function with its counts and sources, of a part of the inputs.

use super::paths::part;
use crate::answer::{Answer, Endpoint, Failure, Question, Work};

pub(super) const ENDPOINTS: &[Endpoint] = &[Endpoint { path: "source", work: Work::Pass, answer: source }];

fn source(question: &Question<'_>) -> Result<Answer, Failure> {
    let (part, function) = (part(question)?, question.text("function"));
    question.kept_or(&format!("source {part:?} {function}"), || {
        let code = question.session.inputs.annotate(&part, function, question.stop)?;
        code.map(|code| Answer::json(&code)).transpose()
    })
}
