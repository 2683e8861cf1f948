//! `diff/functions`, `diff/paths`, `diff/divergence`: two recordings, or with `function`, `n` and `m` two executions.

use crate::{
    answer::{Answer, Endpoint, Failure, Question, Work},
    flow::{Compared, Differences},
};

/// Rows of a table, at most.
const MOST: usize = 100_000;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "diff/functions", work: Work::Pass, answer: functions },
    Endpoint { path: "diff/paths", work: Work::Pass, answer: paths },
    Endpoint { path: "diff/divergence", work: Work::Pass, answer: divergence },
];

fn functions(question: &Question<'_>) -> Result<Answer, Failure> {
    let wants_paths = false;
    of_both(question, wants_paths)
}

fn paths(question: &Question<'_>) -> Result<Answer, Failure> {
    let wants_paths = true;
    of_both(question, wants_paths)
}

/// Answers with one of the two tables, which are made at once.
fn of_both(question: &Question<'_>, wants_paths: bool) -> Result<Answer, Failure> {
    let compared = compared(question)?;
    let key = |of_paths: bool| format!("diff {of_paths} {compared:?}");
    question.kept_or(&key(wants_paths), || {
        let found = question.session.inputs.diff(&compared, question.stop)?;
        let Some(Differences { functions, paths }) = found else { return Ok(None) };
        let (asked, other) = if wants_paths { (paths, functions) } else { (functions, paths) };
        if !question.is_stopped() {
            question.session.keep(key(!wants_paths), &Answer::table(&other, MOST)?);
        }
        Answer::table(&asked, MOST).map(Some)
    })
}

fn divergence(question: &Question<'_>) -> Result<Answer, Failure> {
    let compared = compared(question)?;
    question.kept_or(&format!("divergence {compared:?}"), || {
        let table = question.session.inputs.divergence(&compared, question.stop)?;
        table.map(|table| Answer::table(&table, MOST)).transpose()
    })
}

fn compared(question: &Question<'_>) -> Result<Compared, Failure> {
    match question.text("function") {
        "" => Ok(Compared::Recordings),
        function => {
            let (n, m) = (question.number("n")?, question.number("m")?);
            Ok(Compared::Executions { function: function.to_owned(), n, m })
        }
    }
}
