//! `recordings`: the recordings of control flow; `paths?recording=N&t0=…&t1=…&thread=…`: the call paths of one.

use crate::{
    answer::{Answer, Endpoint, Failure, Question, Work},
    flow::FlowSelection,
};

/// Rows of a tree, at most.
const MOST: usize = 200_000;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "recordings", work: Work::Query, answer: recordings },
    Endpoint { path: "paths", work: Work::Pass, answer: paths },
];

fn recordings(question: &Question<'_>) -> Result<Answer, Failure> {
    Answer::json(&question.session.inputs.recordings())
}

fn paths(question: &Question<'_>) -> Result<Answer, Failure> {
    let part = part(question)?;
    question.kept_or(&format!("paths {part:?}"), || {
        let table = question.session.inputs.paths(&part, question.stop)?;
        table.map(|table| Answer::table(&table, MOST)).transpose()
    })
}

/// Reads the part of the inputs that a question is about; without `t0` and `t1` all of the time.
pub(super) fn part(question: &Question<'_>) -> Result<FlowSelection, Failure> {
    let recording = if question.text("recording").is_empty() { 0 } else { question.number("recording")? };
    let span = match (question.text("t0"), question.text("t1")) {
        ("", "") => None,
        _ => Some((question.number("t0")?, question.number("t1")?)),
    };
    let thread = if question.text("thread").is_empty() { None } else { Some(question.number("thread")?) };
    Ok(FlowSelection { recording, span, thread })
}
