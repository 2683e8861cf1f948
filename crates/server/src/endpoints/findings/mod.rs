//! `findings`: what `hodo explain` finds.

use crate::answer::{Answer, Endpoint, Failure, Question, Work};

const KEY: &str = "findings";

pub(super) const ENDPOINTS: &[Endpoint] = &[Endpoint { path: KEY, work: Work::Pass, answer: findings }];

fn findings(question: &Question<'_>) -> Result<Answer, Failure> {
    if let Some(answer) = question.session.kept(KEY) {
        return Ok(answer);
    }
    let made = question.session.inputs.findings(&mut |_, _| !question.is_stopped())?;
    let table = made.filter(|_| !question.is_stopped()).ok_or(Failure::Stopped)?;
    let answer = Answer::table(&table, usize::MAX)?;
    question.session.keep(KEY.to_owned(), &answer);
    Ok(answer)
}
