//! The critical path of a thread: the pieces that `hodo path --by piece` prints.

use crate::answer::{Answer, Failure, Question};

/// Pieces of an answer, at most; the page says how many more there are.
const MOST: usize = 200_000;

pub(super) fn path(question: &Question<'_>) -> Result<Answer, Failure> {
    let thread: u32 = question.number("tid")?;
    question.kept_or(&format!("timeline/path {thread}"), || {
        let made = question.session.inputs.critical_path(thread, &mut |_, _| !question.is_stopped())?;
        made.map(|table| Answer::table(&table, MOST)).transpose()
    })
}
