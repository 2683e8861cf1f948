//! `session`: the inputs, what can be asked of them, how far the store is, whether an input was changed.

use serde_json::json;

use crate::answer::{Answer, Endpoint, Failure, Question, Work};

pub(super) const ENDPOINTS: &[Endpoint] = &[Endpoint { path: "session", work: Work::Query, answer: session }];

fn session(question: &Question<'_>) -> Result<Answer, Failure> {
    let inputs = &question.session.inputs;
    Answer::json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "inputs": inputs.names(),
        "reports": inputs.reports(),
        "index": question.session.index.stage(),
        "changed": inputs.change(),
    }))
}
