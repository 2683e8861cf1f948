//! What the law says of an analysis and the events of a trace.

use hodo_analyses::{ANALYSES, Kind, periods::Periods};
use hodo_clock::Nanos;
use hodo_trace::{
    AnyEventAnalysis, Choice, Start, Table,
    kernel::Records,
    pass::{Pass, Room, States},
};

/// Every analysis of kernel events in the list, and those that stand in for one for a view or alone, with their names.
/// A new entry comes under the law by being in the list.
pub(crate) fn all() -> Vec<(String, &'static dyn AnyEventAnalysis)> {
    let mut all = Vec::new();
    for entry in ANALYSES {
        let usual: &'static dyn AnyEventAnalysis = match entry.kind {
            Kind::Kernel { analysis, .. } => analysis,
            Kind::Periods { .. } => Box::leak(Box::new(Periods::default())),
            // Those of control flow have their own test of the law; the engine counts events and runs all in one.
            Kind::Profile(_) | Kind::Blocks(_) | Kind::EventCount | Kind::All => continue,
        };
        all.push((entry.name.to_owned(), usual));
        let mut states = Vec::new();
        for view in usual.views() {
            let choice = Choice { view: (*view).to_owned(), ..Choice::default() };
            for other in [usual.of_choice(&choice), usual.alone(&choice)].into_iter().flatten() {
                if !states.contains(&other.state()) {
                    states.push(other.state());
                    all.push((format!("{} --by {view}", entry.name), &*Box::leak(other)));
                }
            }
        }
    }
    all
}

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
