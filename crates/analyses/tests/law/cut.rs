//! Tables of an event trace as one chunk, and cut and merged.

use hodo_clock::Nanos;
use hodo_model::{
    AnyAnalysis, FinishContext, Heading, NoSources, Selection, Start, Table, Value,
    kernel::Records,
    pass::{Pass, States},
};

use crate::{
    parts::{merge_neighbours, parts_of},
    tables::{fold, fold_part, span, table, time, travelled},
};

/// The tables of a trace as one chunk, and of the same trace cut after the events that `cuts` marks, with the parts
/// merged in the order that `choices` picks.
pub(crate) fn both(
    (analysis, views): (&dyn AnyAnalysis, &[&str]),
    events: &mut [Records],
    names: &[String],
    cuts: impl Fn(usize) -> bool,
    choices: &[usize],
) -> (Vec<Table>, Vec<Table>) {
    let pass = Pass::new(&[analysis]);
    let (mut parts, mut ends) = (Vec::new(), Vec::new());
    for range in parts_of(events.len(), cuts) {
        ends.push(time(&events[range.end - 1]));
        let is_first = range.start == 0;
        parts.push(fold_part(&pass, &mut events[range], names, is_first));
    }
    let whole = fold(&pass, events, names);
    let copies: Vec<_> = parts.iter().map(|part| travelled(&pass, part)).zip(ends).collect();
    let merged = merge_neighbours(parts, choices, |earlier, later| pass.merge(earlier, later))
        .unwrap_or_else(|| fold(&pass, &mut [], names));
    let tables = |states| {
        let selection = |view: &&str| Selection { view: (*view).to_owned(), ..Selection::default() };
        let table = |view| table(&pass, states, events, names, &selection(view));
        views.iter().flat_map(table).collect()
    };
    let (mut whole_tables, mut merged_tables): (Vec<Table>, Vec<Table>) = (tables(&whole), tables(&merged));
    if let Some(heading) = analysis.heading() {
        whole_tables.extend(tables(&whole));
        merged_tables.push(streamed(&pass, heading, copies, &whole, events, names));
    }
    (whole_tables, merged_tables)
}

/// The table whose rows are emitted as soon as they are settled, from parts merged in order.
fn streamed(
    pass: &Pass<'_>,
    heading: Heading,
    parts: Vec<(States, Nanos)>,
    whole: &States,
    events: &[Records],
    names: &[String],
) -> Table {
    let selection = Selection::default();
    let (begin, _) = span(events);
    let context = FinishContext::without_events(&selection, whole.threads(), &NoSources);
    let mut rows = heading.builder();
    let mut states: Option<States> = None;
    for (later, until) in parts {
        let merged = match states.take() {
            Some(earlier) => pass.merge(earlier, later),
            None => later,
        };
        let context = FinishContext { names, span: (begin, until), ..context.clone() };
        pass.settle(states.insert(merged), &context, [&mut rows]);
    }
    let last = states.unwrap_or_else(|| pass.begin(&Start { names, is_first: true, ..Start::default() }));
    let last = table(pass, &last, events, names, &selection).remove(0);
    last.rows().iter().for_each(|row| rows.row(row.iter().map(Value::cell)));
    rows.finish(last.summary)
}
