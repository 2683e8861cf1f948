//! Records whose value matches a regular expression, or contains its text.

use hodo_model::{Column, Shape, Table, Unit, Value};
use hodo_store::{Kind, Record, Store, Wanted};
use regex::RegexBuilder;

use super::values::cut;
use crate::answer::{Answer, Failure, Question};

/// Records of a search, at most.
const MOST: usize = 20_000;
/// Values that may match, at most.
const MOST_VALUES: usize = 64;
/// Bytes of a compiled regular expression, at most.
const EXPRESSION_BYTES: usize = 1 << 20;
/// Rows that a search may decode.
const BUDGET: u64 = 1 << 26;

/// A record with a wanted value; in the order of the answer.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    begin: u64,
    table: u64,
    lane: u32,
    end: u64,
    name: u64,
}

pub(super) fn search(question: &Question<'_>) -> Result<Answer, Failure> {
    let snapshot = super::snapshot(question)?;
    let text = question.text("text");
    if text.is_empty() {
        return Err(Failure::Refused("text=: expected what to look for".to_owned()));
    }
    let (store, budget) = (&snapshot.store, question.budget(BUDGET));
    let (names, mut is_cut) = matching(store, text);
    let mut found = Vec::new();
    for (number, table) in (0..).zip(store.tables()) {
        if table.schema().value.kind != Kind::Name {
            continue;
        }
        for &name in &names {
            let wanted = Wanted { value: Some(name), ..Wanted::ALL };
            let after = None;
            let records = table.records(&wanted, after, MOST, &budget)?;
            is_cut |= records.len() == MOST;
            let of_name = |Record { begin, end, lane, .. }| Found { begin, table: number, lane, end, name };
            found.extend(records.into_iter().map(of_name));
        }
    }
    found.sort_unstable();
    is_cut |= found.len() > MOST;
    found.truncate(MOST);
    let row = |found: Found| -> Vec<Value> {
        let value = cut(store.name(found.name).unwrap_or_default());
        let (begin, end) = (snapshot.since(found.begin), snapshot.since(found.end));
        vec![found.table.into(), u64::from(found.lane).into(), begin.into(), end.into(), value.into()]
    };
    let columns = vec![
        Column::integer("table", Unit::None),
        Column::integer("lane", Unit::None),
        Column::real("begin", Unit::Nanoseconds),
        Column::real("end", Unit::Nanoseconds),
        Column::name("value"),
    ];
    let summary = vec![("cut", is_cut.into())];
    let table = Table::new("search", Shape::Intervals, summary, columns, found.into_iter().map(row));
    Answer::table(&table, usize::MAX)
}

/// Returns the numbers of names that match a regular expression or contain the text itself, so that a name with brackets can
/// be typed as it is, and whether there are more. Letters match in either case.
fn matching(store: &Store, text: &str) -> (Vec<u64>, bool) {
    let known = (0..).map_while(|number| Some((number, store.name(number)?)));
    let lower = text.to_lowercase();
    // A text that is no expression is looked for as it is; the page says so.
    let expression = RegexBuilder::new(text).case_insensitive(true).size_limit(EXPRESSION_BYTES).build().ok();
    let is_match = |name: &str| {
        expression.as_ref().is_some_and(|expression| expression.is_match(name))
            || name.to_lowercase().contains(&lower)
    };
    let mut names = known.filter(|(_, name)| is_match(name)).map(|(number, _)| number);
    (names.by_ref().take(MOST_VALUES).collect(), names.next().is_some())
}
