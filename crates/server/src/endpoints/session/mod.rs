//! `session`: the inputs, what can be asked of them, how far the store is, whether an input was changed. `session/stop` ends
//! the building of the store.

use serde_json::json;

use crate::{
    answer::{Answer, Endpoint, Failure, Question, Work},
    session::Session,
};

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "session", work: Work::Query, answer: session },
    Endpoint { path: "session/stop", work: Work::Query, answer: stop_indexing },
];

fn session(question: &Question<'_>) -> Result<Answer, Failure> {
    describe(question.session, &[])
}

fn stop_indexing(question: &Question<'_>) -> Result<Answer, Failure> {
    question.session.index.give_up();
    session(question)
}

/// Describes a session; `left_out` says what the page as a file does not have.
pub(crate) fn describe(session: &Session, left_out: &[String]) -> Result<Answer, Failure> {
    let inputs = &session.inputs;
    Answer::json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "inputs": inputs.names(),
        "reports": inputs.reports(),
        "index": session.index.stage(),
        "unrelated": inputs.unrelated(),
        "changed": inputs.change(),
        "left_out": left_out,
    }))
}
