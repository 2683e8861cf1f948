//! What the law says of an analysis and the events of a trace.

use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, Start, Table,
    kernel::Records,
    pass::{Pass, Room, States},
};

/// The state of a chunk.
pub(crate) fn fold(pass: &Pass<'_>, events: &mut [Records], names: &[String], is_first: bool) -> States {
    let mut states = pass.begin(&Start { names, is_first });
    let runs: Vec<_> = (0..).zip(&*events).map(|(stream, records)| (stream, 0..records.len())).collect();
    pass.fold(&mut states, events, &runs, &mut Room::default());
    travelled(pass, &states)
}

/// What travels to another process must be all that there is.
fn travelled(pass: &Pass<'_>, states: &States) -> States {
    pass.unpack(pass.pack(states)).ok().unwrap()
}

/// Merges neighbours in an order that `choices` picks.
fn merge_all(pass: &Pass<'_>, mut parts: Vec<States>, choices: &[usize]) -> Option<States> {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = choices.next().unwrap() % (parts.len() - 1);
        let later = parts.remove(at + 1);
        let earlier = parts.remove(at);
        parts.insert(at, pass.merge(earlier, later));
    }
    parts.pop()
}

/// The table of a state.
pub(crate) fn table(
    pass: &Pass<'_>,
    states: &States,
    events: &[Records],
    names: &[String],
    choice: &Choice,
) -> Vec<Table> {
    let time = |records: &Records| records.times(0).next().unwrap_or(Nanos(0));
    let span = (events.first().map_or(Nanos(0), time), events.last().map_or(Nanos(0), time));
    pass.finish(travelled(pass, states), names, span, choice, 2)
}

/// The tables of a trace as one chunk, and of the same cut behind the events where `cuts` says so, with the parts
/// merged in the order that `choices` picks.
pub(crate) fn both(
    analysis: &dyn AnyEventAnalysis,
    events: &mut [Records],
    names: &[String],
    cuts: impl Fn(usize) -> bool,
    choices: &[usize],
) -> (Vec<Table>, Vec<Table>) {
    let pass = Pass::new(&[analysis]);
    let mut parts = Vec::new();
    let mut begin = 0;
    for end in 1..=events.len() {
        if end == events.len() || cuts(end) {
            parts.push(fold(&pass, &mut events[begin..end], names, begin == 0));
            begin = end;
        }
    }
    let whole = fold(&pass, events, names, true);
    let merged = merge_all(&pass, parts, choices).unwrap_or_else(|| fold(&pass, &mut [], names, true));
    let tables = |states| {
        let choice = |view: &&str| Choice { view: (*view).to_owned(), ..Choice::default() };
        let table = |view| table(&pass, states, events, names, &choice(view));
        analysis.views().iter().flat_map(table).collect()
    };
    (tables(&whole), tables(&merged))
}
