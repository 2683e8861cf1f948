//! Tables of an event trace.

use hodo_clock::Nanos;
use hodo_model::{
    NoSources, Selection, Start, Table,
    kernel::Records,
    pass::{Pass, Scratch, States},
};

/// The state of all events.
pub(crate) fn fold(pass: &Pass<'_>, events: &mut [Records], names: &[String]) -> States {
    let is_first = true;
    fold_part(pass, events, names, is_first)
}

/// The state of a part of the events.
pub(crate) fn fold_part(pass: &Pass<'_>, events: &mut [Records], names: &[String], is_first: bool) -> States {
    let mut states = pass.begin(&Start { names, is_first, ..Start::default() });
    let runs: Vec<_> = (0..).zip(&*events).map(|(stream, records)| (stream, 0..records.len())).collect();
    pass.fold(&mut states, events, &runs, &mut Scratch::default());
    travelled(pass, &states)
}

/// The serialized form must contain the whole state.
pub(crate) fn travelled(pass: &Pass<'_>, states: &States) -> States {
    pass.unpack(pass.pack(states)).ok().unwrap()
}

/// The table of a state.
pub(crate) fn table(
    pass: &Pass<'_>,
    states: &States,
    events: &[Records],
    names: &[String],
    selection: &Selection,
) -> Vec<Table> {
    const WORKERS: usize = 2;
    pass.finish(travelled(pass, states), names, span(events), &[selection], &NoSources, WORKERS)
}

pub(crate) fn time(records: &Records) -> Nanos {
    records.times(0).next().unwrap_or(Nanos(0))
}

pub(crate) fn span(events: &[Records]) -> (Nanos, Nanos) {
    (events.first().map_or(Nanos(0), time), events.last().map_or(Nanos(0), time))
}
