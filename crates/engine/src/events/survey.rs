//! What a trace records of the scheduler: the events that are its wake-ups, and the codes of its switches.
//!
//! ```text
//! classes ──► is there a class sched_wakeup? ──packets, until the first such event──► Wakeups
//! print format, else names, else the kernel's release ──► StateCodes ──an idle CPU's switch──► codes as described, or shifted
//! ```
//!
//! Both are read before the first event is folded, as every chunk needs them. The search ends at the first event that
//! decides; it reads a whole trace only if that has a class `sched_wakeup` without events.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use hodo_formats::events::{
    Cursor, Item, Parts, Stream, Trace,
    schema::{EventClass, FieldClass},
};
use hodo_model::{
    kernel::{Kind, StateCodes, Wakeups, field},
    vocabulary,
};

use super::{
    Traces,
    fold::{integer, path},
};

/// Environment entries with the kernel's release: of LTTng, of `perf data convert --to-ctf`, of perf.data.
const RELEASES: [&str; 3] = ["kernel_release", "release", "kernel"];
/// The environment entry with the kernel's `uname`: system, host, release.
const UNAME: &str = "system";

/// What a trace records of the scheduler, as far as the analyses need it.
pub(super) struct Scheduling {
    /// The events from which wake-ups are known.
    pub(super) wakeups: Option<Wakeups>,
    /// The codes of `prev_state`.
    pub(super) codes: Arc<StateCodes>,
}

impl Scheduling {
    /// Surveys each trace, for the kinds of events and fields that are requested.
    pub(super) fn of_all(traces: &Traces<'_>, requested: &HashMap<Kind, Vec<usize>>) -> Vec<Scheduling> {
        let wants_states = requested
            .get(&Kind::SchedSwitch)
            .is_some_and(|fields| fields.contains(&field::switch::PREV_STATE));
        let wakeups = match requested.contains_key(&Kind::SchedWakeup) {
            true => wakeups(traces),
            false => vec![None; traces.events.len()],
        };
        let codes = |trace| if wants_states { state_codes(traces, trace) } else { StateCodes::default() };
        wakeups
            .into_iter()
            .enumerate()
            .map(|(trace, wakeups)| Scheduling { wakeups, codes: Arc::new(codes(trace)) })
            .collect()
    }

    /// The names that select an event, where `sched_waking` counts as `sched_wakeup` if that is not recorded.
    pub(super) fn names<'e>(&self, class: &'e EventClass) -> [Cow<'e, str>; 3] {
        let names = vocabulary::names(&class.name);
        match self.wakeups {
            Some(Wakeups::Waking) if names[2] == "sched_waking" => vocabulary::names("sched_wakeup"),
            _ => names,
        }
    }
}

/// Returns the events from which the wake-ups of each trace are known; `None` for traces without a scheduler.
fn wakeups(traces: &Traces<'_>) -> Vec<Option<Wakeups>> {
    (0..traces.events.len()).map(|trace| trace_wakeups(traces, trace)).collect()
}

fn is_called(class: &EventClass, word: &str) -> bool {
    vocabulary::word(&class.name) == word
}

/// As [`wakeups`], for one trace.
fn trace_wakeups(traces: &Traces<'_>, index: usize) -> Option<Wakeups> {
    const WORDS: [&str; 4] = ["sched_wakeup", "sched_waking", "sched_switch", "sched_wakeup_new"];
    let trace = &traces.events[index];
    let classes = || trace.streams.iter().flat_map(|stream| &trace.stream_class(stream).events);
    let [wakeup, waking, switch, new] = WORDS.map(|word| classes().any(|class| is_called(class, word)));
    match (wakeup, waking) {
        (false, false) => return (switch || new).then_some(Wakeups::Missing),
        (false, true) => return Some(Wakeups::Waking),
        (true, _) => {}
    }
    let mut best = Wakeups::Missing;
    let has = |class: &EventClass| is_called(class, WORDS[0]) || is_called(class, WORDS[1]);
    search(traces, index, &has, &mut |_, cursor, parts| {
        let is_wakeup = is_called(cursor.event(parts).class(), WORDS[0]);
        best = best.min(if is_wakeup { Wakeups::Wakeup } else { Wakeups::Waking });
        is_wakeup
    });
    Some(best)
}

/// Passes events of the classes that `wants` selects to `decides` until it returns `true`. Streams take turns, a packet
/// each.
fn search(
    traces: &Traces<'_>,
    index: usize,
    wants: &dyn Fn(&EventClass) -> bool,
    decides: &mut dyn FnMut(&Stream<'_>, &Cursor<'_, '_>, Parts) -> bool,
) {
    let trace = &traces.events[index];
    let wanted: Vec<Vec<bool>> = trace
        .streams
        .iter()
        .map(|stream| trace.stream_class(stream).events.iter().map(wants).collect())
        .collect();
    let most = trace.streams.iter().map(|stream| stream.packets.len()).max().unwrap_or(0);
    for packet in 0..most {
        for (number, stream) in trace.streams.iter().enumerate() {
            let wanted = &wanted[number];
            if packet >= stream.packets.len() || !wanted.contains(&true) {
                continue;
            }
            let mut cursor = Cursor::new(trace, stream, packet..packet + 1);
            while let Some((_, item)) = cursor.next_where(|_, class, _| wanted[class as usize]) {
                if let Item::Event(parts) = item
                    && decides(stream, &cursor, parts)
                {
                    return;
                }
            }
            traces.release(index, number, packet..packet + 1);
        }
    }
}

/// Returns the codes of `prev_state` in a trace.
fn state_codes(traces: &Traces<'_>, index: usize) -> StateCodes {
    let trace = &traces.events[index];
    let codes = trace.class.state_codes.clone().or_else(|| of_names(trace));
    let codes = codes.or_else(|| StateCodes::of_release(release(trace)?));
    let codes = codes.unwrap_or_else(StateCodes::of_any_kernel);
    if codes.may_be_shifted() && may_be_wrong(trace) && is_shifted(traces, index) {
        codes.shifted()
    } else {
        codes
    }
}

/// Returns a sentence if a trace has codes that can't all be understood.
pub(super) fn note(trace: &Trace<'_>) -> Option<String> {
    let classes = trace.class.streams.values().flat_map(|stream| &stream.events);
    let has_states = classes
        .filter(|class| is_called(class, "sched_switch"))
        .flat_map(|class| class.payload.iter().flat_map(|payload| &payload.members))
        .any(|member| member.name == STATE);
    let is_known = trace.class.state_codes.is_some() || of_names(trace).is_some();
    (has_states && !is_known && release(trace).and_then(StateCodes::of_release).is_none()).then(|| {
        "the kernel's release is not recorded: codes of prev_state that differ between kernels are unknown".to_owned()
    })
}

/// The field of a switch with the state, which all tracers name alike.
const STATE: &str = "prev_state";

/// Returns the codes by the names of an enumeration, if the field is one.
fn of_names(trace: &Trace<'_>) -> Option<StateCodes> {
    let classes = trace.class.streams.values().flat_map(|stream| &stream.events);
    let switches = classes.filter(|class| is_called(class, "sched_switch"));
    let members = switches.flat_map(|class| class.payload.iter().flat_map(|payload| &payload.members));
    let labels = members.filter(|member| member.name == STATE).find_map(|member| match &member.class {
        FieldClass::Integer(integer) => Some(&integer.meaning.labels),
        _ => None,
    })?;
    let names = labels.iter().filter_map(|label| Some((label.name.as_str(), *label.ranges.first()?.start())));
    StateCodes::of_names(names)
}

/// The kernel's release.
fn release<'t>(trace: &'t Trace<'_>) -> Option<&'t str> {
    let own = RELEASES.iter().find_map(|name| trace.class.environment_text(name));
    own.or_else(|| trace.class.environment_text(UNAME)?.split_whitespace().nth(2))
}

/// Whether the kernel may be one that recorded the next higher bit: see [`StateCodes::shifted`].
fn may_be_wrong(trace: &Trace<'_>) -> bool {
    release(trace).is_none_or(|release| release.starts_with("4."))
}

/// Whether the first switch away from an idle CPU has a code that only those kernels record.
fn is_shifted(traces: &Traces<'_>, index: usize) -> bool {
    let trace = &traces.events[index];
    let mut found = false;
    let has = |class: &EventClass| is_called(class, "sched_switch");
    search(traces, index, &has, &mut |stream, cursor, parts| {
        let event = cursor.event(parts);
        let value = |word| integer(&path(trace, stream, event.class(), word)?, &event);
        let is_idle = value("prev_tid") == Some(0);
        found = is_idle && value(STATE) == Some(1);
        is_idle
    });
    found
}
