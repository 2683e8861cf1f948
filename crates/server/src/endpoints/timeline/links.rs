//! Links between lanes, such as wake-ups, which the page draws as arrows.

use hodo_model::{Column, Shape, Table, Unit, Value};
use hodo_store::{Record, Wanted};

use crate::{
    answer::{Answer, Failure, Question},
    index::Snapshot,
};

/// Links of an answer, at most. More arrows than this can't be told apart on a screen.
const MOST: usize = 2000;
/// Rows that a question may decode.
const BUDGET: u64 = 1 << 23;

/// Returns the links of a span if they are few, and their number in any case: of those that begin in the span.
pub(super) fn links(question: &Question<'_>) -> Result<Answer, Failure> {
    let snapshot = super::snapshot(question)?;
    let table = super::table(question, &snapshot)?;
    if table.schema().shape != hodo_store::Shape::Links {
        return Err(Failure::Refused(format!("table={}: expected a table of links", table.schema().name)));
    }
    let time = |name| Ok::<u64, Failure>(snapshot.origin.saturating_add(question.number(name)?));
    let (begin, behind) = (time("begin")?, time("end")?);
    let budget = question.budget(BUDGET);
    let count = table.count_before(behind, &budget)?.saturating_sub(table.count_before(begin, &budget)?);
    let mut found = Vec::new();
    if count <= MOST as u64 {
        found = table.records(&Wanted { span: (begin, behind), ..Wanted::ALL }, None, MOST, &budget)?;
    }
    let columns = vec![
        Column::integer("from", Unit::None),
        Column::integer("to", Unit::None),
        Column::real("begin", Unit::Nanoseconds),
        Column::real("end", Unit::Nanoseconds),
    ];
    let rows = found.iter().filter_map(|link| row(link, &snapshot)).collect::<Vec<_>>();
    let table = Table::new("links", Shape::Intervals, vec![("count", count.into())], columns, rows);
    Answer::table(&table, usize::MAX)
}

fn row(link: &Record, snapshot: &Snapshot) -> Option<Vec<Value>> {
    let to = link.value?;
    Some(vec![
        u64::from(link.lane).into(),
        to.into(),
        snapshot.since(link.begin).into(),
        snapshot.since(link.end).into(),
    ])
}
