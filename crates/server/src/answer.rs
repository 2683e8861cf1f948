//! Questions of the page and their answers.

use std::{
    collections::BTreeMap,
    fmt, io,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hodo_model::Table;
use hodo_store::{Budget, Error};
use hodo_views::{Options, VIEWS};
use serde::Serialize;

use crate::{Refused, session::Session};

/// The parameters of a question, by name.
pub(crate) type Query = BTreeMap<String, String>;

/// A kind of question.
pub(crate) struct Endpoint {
    /// Its path below `api/`.
    pub(crate) path: &'static str,
    /// How much work it may be.
    pub(crate) work: Work,
    /// Answers a question.
    pub(crate) answer: fn(&Question<'_>) -> Result<Answer, Failure>,
}

/// How much work a question may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It reads no trace.
    Query,
    /// It reads whole traces.
    Pass,
}

/// A question.
pub(crate) struct Question<'q> {
    pub(crate) session: &'q Session,
    pub(crate) query: &'q Query,
    /// Set when the answer is no longer awaited.
    pub(crate) stop: &'q Arc<AtomicBool>,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) content: Content,
    pub(crate) bytes: Vec<u8>,
    /// Rows of the table that the answer does not have.
    pub(crate) left_out: u64,
}

/// The type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    Arrow,
}

impl Content {
    /// The media type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Content::Json => "application/json",
            Content::Arrow => "application/vnd.apache.arrow.file",
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The question is wrong, or the inputs have no answer.
    Refused(String),
    /// It can't be answered yet.
    NotYet(String),
    /// The answer is no longer awaited.
    Stopped,
    /// The system or a file fails.
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(why) | Failure::NotYet(why) | Failure::Failed(why) => f.write_str(why),
            Failure::Stopped => f.write_str("stopped"),
        }
    }
}

impl From<Refused> for Failure {
    fn from(Refused(why): Refused) -> Failure {
        Failure::Refused(why)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Stopped => Failure::Stopped,
            Error::Refused(_) | Error::TooMuch(_) => Failure::Refused(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl Answer {
    pub(crate) fn json(value: &impl Serialize) -> Result<Answer, Failure> {
        let bytes = serde_json::to_vec(value).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Answer { content: Content::Json, bytes, left_out: 0 })
    }

    /// A table as an Arrow IPC file, with at most `most` rows.
    pub(crate) fn table(table: &Table, most: usize) -> Result<Answer, Failure> {
        let arrow = VIEWS.iter().find(|view| view.name == "arrow").expect("Arrow is one of the views");
        let mut bytes = Vec::new();
        let options = Options { limit: Some(most as u64), ..Options::default() };
        arrow
            .draw(table, &options, &mut bytes)
            .map_err(|error: io::Error| Failure::Failed(error.to_string()))?;
        let left_out = table.row_count().saturating_sub(most) as u64;
        Ok(Answer { content: Content::Arrow, bytes, left_out })
    }
}

impl Question<'_> {
    /// A parameter; empty if absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A number among the parameters.
    pub(crate) fn number<N: FromStr>(&self, name: &str) -> Result<N, Failure> {
        let text = self.text(name);
        text.parse().map_err(|_| Failure::Refused(format!("{name}={text}: expected a number")))
    }

    /// Returns the answer that was kept under a key; otherwise makes one and keeps it. `make` returns `None` if it was
    /// stopped.
    pub(crate) fn kept_or(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<Option<Answer>, Failure>,
    ) -> Result<Answer, Failure> {
        if let Some(answer) = self.session.kept(key) {
            return Ok(answer);
        }
        let answer = make()?.filter(|_| !self.is_stopped()).ok_or(Failure::Stopped)?;
        self.session.keep(key.to_owned(), &answer);
        Ok(answer)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns a budget of `rows` rows for a query of the store; it ends early where the answer does.
    pub(crate) fn budget(&self, rows: u64) -> Budget {
        Budget { rows, stop: Some(Arc::clone(self.stop)) }
    }
}
