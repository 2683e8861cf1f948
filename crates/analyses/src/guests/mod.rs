//! `guests`: how long did virtual machines run, and why did they exit?
//!
//! ```text
//! VM entry ──► guest runs ──► VM exit, for a reason ──► host handles it ──► VM entry
//! ```
//!
//! Source: Intel SDM vol. 3, "Tracing of VMX": PIP packets say whether a guest runs, VMCS packets which one, and event
//! trace (CFE, EVD) why it exits.

mod reasons;

use std::collections::BTreeMap;

use hodo_model::{
    Analysis, Column, Description, FastFlow, FinishContext, FlowEvent, FlowInterest, FlowLoop, Interest,
    Item, Made, Report, Shape, Start, Summary, Table, Takes, Unit, Virtual, kernel::Threads,
};
use serde::{Deserialize, Serialize};

use crate::{
    columns::{TableRows, duration_cells, duration_columns, interval_columns, most_first, share},
    durations::Durations,
    mark::{Clocks, Mark, ReadingDelta, StampedMarks},
};

pub(crate) const fn report<L: FlowLoop>() -> Report<L> {
    Report {
        description: Description {
            name: "guests",
            help: "exact counts of instructions of each virtual machine, and how long the host handled which VM exits",
            views: &["machine", "reason", "interval"],
            takes: Takes::THREADS,
            ..Description::EMPTY
        },
        make: |_| Made::of_flow(Guests),
    }
}

/// The analysis.
#[derive(Clone, Copy, Debug)]
pub struct Guests;

/// What happens at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum GuestChange {
    Change(Virtual),
    /// Control flow is missing here.
    Gap,
}

/// A change at a position.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct GuestStep {
    mark: Mark,
    change: GuestChange,
}

/// The changes in some chunks of a thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestsPartial {
    clocks: Clocks,
    steps: Vec<GuestStep>,
    /// The last reported machine, guest or host.
    machine: Option<Virtual>,
    /// The last reported VMCS.
    vmcs: Option<Virtual>,
    /// How many steps are stamped.
    #[serde(skip)]
    stamped: StampedMarks,
}

impl GuestsPartial {
    /// Adds a step, unless it repeats what is known: each synchronisation point of the trace repeats the state.
    fn step(&mut self, change: GuestChange, mark: Mark) {
        let known = match change {
            GuestChange::Change(Virtual::Guest | Virtual::Host) => &mut self.machine,
            GuestChange::Change(Virtual::Vmcs(_)) => &mut self.vmcs,
            _ => return self.steps.push(GuestStep { mark, change }),
        };
        let GuestChange::Change(state) = change else { return };
        if known.replace(state) != Some(state) {
            self.steps.push(GuestStep { mark, change });
        }
    }

    fn stamp(&mut self, reading: &ReadingDelta) {
        let stamped = &mut self.stamped[reading.clock() as usize];
        self.steps[*stamped..].iter_mut().for_each(|step| reading.stamp(&mut step.mark));
        *stamped = self.steps.len();
    }

    /// Returns the stays in guests and on the host of a whole thread, in order.
    fn stays(&self) -> Vec<Stay> {
        let mut stays: Vec<Stay> = Vec::new();
        let mut stay = Stay::new(None, Clocks::default().mark());
        // The trace begins inside of it.
        stay.is_complete = false;
        let (mut vmcs, mut reason) = (None, None);
        for &GuestStep { mark, change } in &self.steps {
            // VMCS and reason of a change may follow it.
            let has_just_begun = mark.before == stay.begin.before;
            match change {
                GuestChange::Gap => stay.is_complete = false,
                GuestChange::Change(Virtual::Vmcs(address)) => {
                    vmcs = Some(address);
                    if stay.machine == Some(Virtual::Guest) && has_just_begun {
                        stay.vmcs = vmcs;
                    }
                }
                GuestChange::Change(Virtual::Exit { reason: why }) => match stay.machine {
                    Some(Virtual::Host) if has_just_begun => stay.reason = Some(why),
                    _ => reason = Some(why),
                },
                GuestChange::Change(machine) => {
                    let mut next = Stay::new(Some(machine), mark);
                    match machine {
                        Virtual::Guest => next.vmcs = vmcs,
                        _ => next.reason = reason.take(),
                    }
                    stay.end = mark;
                    stays.push(std::mem::replace(&mut stay, next));
                }
            }
        }
        (stay.end, stay.is_complete) = (self.clocks.mark(), false);
        stays.push(stay);
        stays
    }
}

/// A stay in a guest or on the host.
#[derive(Clone, Copy, Debug)]
struct Stay {
    /// The guest or the host, if known.
    machine: Option<Virtual>,
    /// Of a guest, if known.
    vmcs: Option<u64>,
    /// Of the VM exit with which a stay on the host begins, if known.
    reason: Option<u64>,
    begin: Mark,
    end: Mark,
    /// Whether both ends are known and nothing is missing between them.
    is_complete: bool,
}

impl Stay {
    fn new(machine: Option<Virtual>, begin: Mark) -> Stay {
        Stay { machine, vmcs: None, reason: None, begin, end: begin, is_complete: true }
    }

    fn instructions(&self) -> u64 {
        self.end.before.saturating_sub(self.begin.before)
    }

    /// Returns its length in nanoseconds, if it is complete and its times are known.
    fn time(&self) -> Option<u64> {
        let (begin, end) = self.begin.time().zip(self.end.time()).filter(|_| self.is_complete)?;
        Some(end.saturating_sub(begin))
    }
}

impl Analysis for Guests {
    type Partial = GuestsPartial;

    fn interest(&self) -> Interest<'_> {
        Interest::flow(FlowInterest::Runs)
    }

    fn begin(&self, _: &Start<'_>) -> GuestsPartial {
        GuestsPartial::default()
    }

    fn fold(&self, partial: &mut GuestsPartial, item: Item<'_>) {
        let Item::Flow(event) = item else { return };
        let mark = partial.clocks.mark();
        match event {
            FlowEvent::Run { instructions, .. } => partial.clocks.instructions += instructions,
            FlowEvent::Skip { instructions } => {
                partial.step(GuestChange::Gap, mark);
                partial.clocks.instructions += instructions;
            }
            FlowEvent::Gap => partial.step(GuestChange::Gap, mark),
            FlowEvent::Virtual(change) => partial.step(GuestChange::Change(change), mark),
            event => {
                let mut clocks = std::mem::take(&mut partial.clocks);
                clocks.fold(&event, |reading| partial.stamp(reading));
                partial.clocks = clocks;
            }
        }
    }

    fn merge(&self, mut earlier: GuestsPartial, later: GuestsPartial, _: &Threads) -> GuestsPartial {
        let Clocks { instructions, segments, .. } = earlier.clocks;
        for GuestStep { mark, change } in later.steps {
            earlier.step(change, mark.after(instructions, segments));
        }
        earlier.clocks.add(&later.clocks);
        earlier.stamped = [earlier.steps.len(); 2];
        earlier
    }

    fn is_sound(&self, partial: &GuestsPartial) -> bool {
        partial.steps.is_sorted_by_key(|step| step.mark.before)
    }

    fn finish(&self, threads: Vec<GuestsPartial>, context: &FinishContext<'_>) -> Table {
        let threads: Vec<Vec<Stay>> = threads.iter().map(GuestsPartial::stays).collect();
        let summary = summary(&threads);
        let (shape, (columns, rows)) = match context.selection.view.as_str() {
            "reason" => (Shape::Counters, by_reason(&threads)),
            "interval" => (Shape::Intervals, intervals(&threads, context)),
            _ => (Shape::Counters, by_machine(&threads)),
        };
        Table::new("guests", shape, summary, columns, rows)
    }
}

impl FastFlow for Guests {
    type Memory = ();
}

/// Returns the VM entries or exits of a thread: the stays that begin with one. A host that is first reported by a change
/// of its page tables may have been there before.
fn changes(stays: &[Stay], to: Virtual) -> impl Iterator<Item = &Stay> {
    let pairs = stays.iter().zip(stays.iter().skip(1));
    let changed = pairs.filter(move |(before, stay)| {
        let is_change = to == Virtual::Guest || before.machine.is_some() || stay.reason.is_some();
        stay.machine == Some(to) && is_change
    });
    changed.map(|(_, stay)| stay)
}

fn summary(threads: &[Vec<Stay>]) -> Summary {
    let instructions = |machine: Option<Virtual>| -> u64 {
        let stays = threads.iter().flatten().filter(|stay| stay.machine == machine);
        stays.fold(0, |sum, stay| sum.saturating_add(stay.instructions()))
    };
    let count = |to| threads.iter().map(|stays| changes(stays, to).count() as u64).sum::<u64>();
    let guest = threads.iter().flatten().filter(|stay| stay.machine == Some(Virtual::Guest));
    vec![
        ("entries", count(Virtual::Guest).into()),
        ("exits", count(Virtual::Host).into()),
        ("incomplete", (guest.clone().filter(|stay| !stay.is_complete).count() as u64).into()),
        ("guest_instructions", instructions(Some(Virtual::Guest)).into()),
        ("host_instructions", instructions(Some(Virtual::Host)).into()),
        ("unknown_instructions", instructions(None).into()),
        ("guest_time_ns", guest.filter_map(Stay::time).fold(0, u64::saturating_add).into()),
        ("threads", (threads.len() as u64).into()),
    ]
}

/// The instructions and complete stays of a machine.
#[derive(Default)]
struct GuestSums {
    instructions: u64,
    time: Durations,
}

fn by_machine(threads: &[Vec<Stay>]) -> TableRows {
    let mut machines: BTreeMap<(&str, Option<u64>), GuestSums> = BTreeMap::new();
    let mut all = 0u64;
    for stay in threads.iter().flatten() {
        let name = match stay.machine {
            Some(Virtual::Guest) => "guest",
            Some(_) => "host",
            None if stay.instructions() == 0 => continue,
            None => "unknown",
        };
        let sums = machines.entry((name, stay.vmcs)).or_default();
        sums.instructions = sums.instructions.saturating_add(stay.instructions());
        stay.time().into_iter().for_each(|time| sums.time.see(time));
        all = all.saturating_add(stay.instructions());
    }
    let mut columns = vec![
        Column::real("share", Unit::Share),
        Column::integer("instructions", Unit::Count),
        Column::name("machine"),
        Column::integer("vmcs", Unit::Address),
        Column::integer("stays", Unit::Count),
    ];
    columns.extend(duration_columns());
    let rows = machines.into_iter().map(|(key, GuestSums { instructions, time })| {
        let (name, vmcs) = key;
        let mut row = vec![share(instructions, all), instructions.into(), name.into(), vmcs.into()];
        row.push(time.count.into());
        row.extend(duration_cells(&time));
        ((instructions, key), row)
    });
    (columns, most_first(rows))
}

/// Returns the name of a reason; unknown without event trace.
fn name(reason: Option<u64>) -> String {
    reason.map_or_else(|| "unknown".to_owned(), reasons::name)
}

/// By the reason of VM exits: how long the host ran until the next VM entry.
fn by_reason(threads: &[Vec<Stay>]) -> TableRows {
    let mut reasons: BTreeMap<String, (u64, GuestSums)> = BTreeMap::new();
    for stay in threads.iter().flat_map(|stays| changes(stays, Virtual::Host)) {
        let (exits, sums) = reasons.entry(name(stay.reason)).or_default();
        *exits += 1;
        sums.instructions = sums.instructions.saturating_add(stay.instructions());
        stay.time().into_iter().for_each(|time| sums.time.see(time));
    }
    let mut columns = vec![
        Column::name("reason"),
        Column::integer("exits", Unit::Count),
        Column::integer("instructions", Unit::Count),
        Column::integer("count", Unit::Count),
    ];
    columns.extend(duration_columns());
    let rows = reasons.into_iter().map(|(name, (exits, GuestSums { instructions, time }))| {
        let mut row = vec![name.as_str().into(), exits.into(), instructions.into(), time.count.into()];
        row.extend(duration_cells(&time));
        ((exits, name), row)
    });
    (columns, most_first(rows))
}

/// The stays in guests, in order of begin, each with the reason of its end.
fn intervals(threads: &[Vec<Stay>], context: &FinishContext<'_>) -> TableRows {
    let mut columns = interval_columns().to_vec();
    columns.extend(["pid", "tid"].map(|name| Column::integer(name, Unit::None)));
    columns.extend([
        Column::integer("vmcs", Unit::Address),
        Column::integer("instructions", Unit::Count),
        Column::name("reason"),
    ]);
    let mut rows = Vec::new();
    for (number, stays) in threads.iter().enumerate() {
        let thread = context.flow_threads.get(number);
        // A stay whose begin has no time comes after the stays before it.
        let mut last_begin = None;
        for (index, stay) in stays.iter().enumerate() {
            if stay.machine != Some(Virtual::Guest) {
                continue;
            }
            let reason = match stays.get(index + 1) {
                Some(next) => name(next.reason),
                None => "end of the trace".to_owned(),
            };
            let begin = stay.begin.time();
            last_begin = begin.or(last_begin);
            let mut row = vec![begin.into(), stay.time().into()];
            row.extend(
                [thread.map(|thread| thread.pid), thread.map(|thread| thread.tid)]
                    .map(|id| id.map(u64::from).into()),
            );
            row.extend([stay.vmcs.into(), stay.instructions().into(), reason.as_str().into()]);
            rows.push(((last_begin, number, index), row));
        }
    }
    rows.sort_by_key(|(key, _)| *key);
    (columns, rows.into_iter().map(|(_, row)| row).collect())
}
