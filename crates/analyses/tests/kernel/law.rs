//! What the law says of an analysis and the events of a trace.

use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, EventAnalysis, Start, Table, Whole,
    kernel::{KernelEvent, Records},
};

fn fold<A: EventAnalysis>(analysis: &A, events: &[Records], names: &[String], is_first: bool) -> A::Partial {
    let mut partial = analysis.begin(&Start { names, is_first });
    events.iter().flat_map(Records::iter).for_each(|event| analysis.fold(&mut partial, event));
    travelled(analysis, partial)
}

/// What travels to another process must be all that there is.
fn travelled<A: EventAnalysis>(analysis: &A, partial: A::Partial) -> A::Partial {
    let bytes = AnyEventAnalysis::pack(analysis, &(Box::new(partial) as _));
    *AnyEventAnalysis::unpack(analysis, &bytes).unwrap().downcast().unwrap()
}

/// Merges neighbours in an order that `choices` picks.
fn merge_all<A: EventAnalysis>(analysis: &A, mut parts: Vec<A::Partial>, choices: &[usize]) -> A::Partial {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(at + 1);
        let earlier = std::mem::replace(&mut parts[at], analysis.unknown());
        parts[at] = analysis.merge(earlier, later);
    }
    parts.pop().unwrap_or_else(|| analysis.unknown())
}

/// Every table of a state.
fn tables<A: EventAnalysis>(
    analysis: &A,
    partial: A::Partial,
    events: &[Records],
    names: &[String],
) -> Vec<Table> {
    let time =
        |records: &Records| records.iter().next().map_or(Nanos(0), |event: KernelEvent<'_>| event.time);
    let span = (events.first().map_or(Nanos(0), time), events.last().map_or(Nanos(0), time));
    let bytes = AnyEventAnalysis::pack(analysis, &(Box::new(partial) as _));
    let table = |view: &&str| {
        let choice = Choice { view: (*view).to_owned(), ..Choice::default() };
        let partial = AnyEventAnalysis::unpack(analysis, &bytes).unwrap();
        AnyEventAnalysis::finish(analysis, partial, &Whole { names, span, choice: &choice })
    };
    EventAnalysis::views(analysis).iter().map(table).collect()
}

/// The tables of a trace as one chunk, and of the same cut behind the events where `cuts` says so, with the parts
/// merged in the order that `choices` picks.
pub(crate) fn both<A: EventAnalysis>(
    analysis: &A,
    events: &[Records],
    names: &[String],
    cuts: impl Fn(usize) -> bool,
    choices: &[usize],
) -> (Vec<Table>, Vec<Table>) {
    let mut parts = Vec::new();
    let mut begin = 0;
    for end in 1..=events.len() {
        if end == events.len() || cuts(end) {
            parts.push(fold(analysis, &events[begin..end], names, begin == 0));
            begin = end;
        }
    }
    let whole = tables(analysis, fold(analysis, events, names, true), events, names);
    (whole, tables(analysis, merge_all(analysis, parts, choices), events, names))
}
