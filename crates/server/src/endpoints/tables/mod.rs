//! `table?report=NAME&by=VIEW&recording=N`: the table of a report.

use crate::answer::{Answer, Endpoint, Failure, Question, Work};

/// Rows of a table, at most: more than a person reads, and few enough for a page to sort.
const MOST: usize = 100_000;

pub(super) const ENDPOINTS: &[Endpoint] = &[Endpoint { path: "table", work: Work::Pass, answer: table }];

fn table(question: &Question<'_>) -> Result<Answer, Failure> {
    let (report, view) = (question.text("report"), question.text("by"));
    let recording = if question.text("recording").is_empty() { 0 } else { question.number("recording")? };
    let key = format!("table {report} {view} {recording}");
    if let Some(answer) = question.session.kept(&key) {
        return Ok(answer);
    }
    let inputs = &question.session.inputs;
    let made = inputs.table(report, view, recording, MOST, &mut |_, _| !question.is_stopped())?;
    let rows = made.filter(|_| !question.is_stopped()).ok_or(Failure::Stopped)?;
    let answer = Answer::table(&rows.table, MOST)?;
    let answer = Answer { left_out: answer.left_out + rows.left_out, ..answer };
    question.session.keep(key, &answer);
    Ok(answer)
}
