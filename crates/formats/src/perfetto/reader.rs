//! Reads the events of a bundle, by time: those with messages, and the rows of its table.

use std::{collections::HashMap, ops::Range};

use super::{
    FilePosition,
    bundle::{Bundle, Compact, Events, Head, Running, Switch, UNKNOWN, Waking},
    schema::{Classes, Field, slot},
};
use crate::events::{EventTrouble, Lost, Parts, StreamPacket, framing::Found, steps::Slots};

/// What reading a bundle depends on besides its bytes.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// The position of its bytes: its key.
    pub(super) position: FilePosition,
    /// The thread that runs before its first event.
    pub(super) running: Running,
    /// Events lost before it: 0 if their number is unknown, `None` if none were lost.
    pub(super) lost: Option<u64>,
    /// Whether packets of its sequence were lost before it.
    pub(super) is_after_gap: bool,
    /// For the last bundle of a CPU: events that were lost at an unknown time.
    pub(super) lost_after: u64,
}

/// The bundles of a trace.
#[derive(Debug)]
pub(crate) struct Bundles {
    /// In order of their positions.
    pub(super) contexts: Vec<Context>,
    pub(super) classes: Classes,
    /// The names in the tables of all bundles.
    pub(super) names: HashMap<Box<[u8]>, i64>,
}

impl Bundles {
    fn context(&self, packet: &StreamPacket<'_>) -> Option<&Context> {
        let position = FilePosition { file: packet.file, offset: packet.packet.bytes.start };
        let index = self.contexts.binary_search_by_key(&position, |context| context.position).ok()?;
        self.contexts.get(index)
    }
}

/// Iterates over the events of a bundle.
#[derive(Debug)]
pub(crate) struct BundleReader<'t, 'a> {
    bundles: &'t Bundles,
    bytes: &'a [u8],
    /// Losses before the events, the last first.
    lost: Vec<Lost>,
    /// Losses after the events.
    lost_after: Option<Lost>,
    events: Events<'a>,
    table: Compact<'a>,
    /// The next event that is not in the table.
    next_event: Option<Head>,
    next_switch: Option<Switch>,
    next_waking: Option<Waking>,
    /// The names of the table, by their indices in it.
    names: Vec<i64>,
    running: Running,
    trouble: Option<EventTrouble>,
}

impl<'t, 'a> BundleReader<'t, 'a> {
    pub(crate) fn new(bundles: &'t Bundles) -> BundleReader<'t, 'a> {
        BundleReader {
            bundles,
            bytes: &[],
            lost: Vec::new(),
            lost_after: None,
            events: Events::default(),
            table: Compact::default(),
            next_event: None,
            next_switch: None,
            next_waking: None,
            names: Vec::new(),
            running: Running::UNKNOWN,
            trouble: None,
        }
    }

    pub(crate) fn open(&mut self, packet: &StreamPacket<'a>) {
        let context = self.bundles.context(packet);
        self.bytes = packet.bytes;
        self.running = context.map_or(Running::UNKNOWN, |context| context.running);
        let lost = |count| Lost { count, packets: false, after: None, before: packet.begin };
        self.lost.clear();
        self.lost.extend(context.and_then(|context| context.lost).map(lost));
        if context.is_some_and(|context| context.is_after_gap) {
            self.lost.push(Lost { packets: true, ..lost(1) });
        }
        let after = context.map(|context| context.lost_after).filter(|&count| count > 0);
        self.lost_after = after.map(|count| Lost { before: None, ..lost(count) });
        self.events = Events::new(packet.bytes);
        // What can't be read was reported when the bundle was found.
        let table = Bundle::read(packet.bytes).ok().and_then(|bundle| bundle.compact);
        self.table = table.and_then(|table| Compact::read(table).ok()).unwrap_or_default();
        let index = |name: &&[u8]| self.bundles.names.get(*name).copied().unwrap_or(UNKNOWN);
        self.names.clear();
        self.names.extend(self.table.names.iter().map(index));
        self.read_event();
        self.read_switch();
        self.read_waking();
    }

    fn read_event(&mut self) {
        self.next_event = loop {
            match self.events.next() {
                Ok(head) => break head,
                Err(offset) => self.trouble(offset, "an event that can't be read"),
            }
        };
    }

    fn read_switch(&mut self) {
        let next = self.table.switch();
        self.next_switch = next.unwrap_or_else(|reason| {
            self.trouble(0, reason);
            None
        });
    }

    fn read_waking(&mut self) {
        let next = self.table.waking();
        self.next_waking = next.unwrap_or_else(|reason| {
            self.trouble(0, reason);
            None
        });
    }

    #[cold]
    fn trouble(&mut self, offset: usize, reason: &str) {
        // One is enough to say that the bundle is damaged.
        self.trouble.get_or_insert_with(|| EventTrouble { position: bit(offset), reason: reason.to_owned() });
    }

    /// The next event, or a loss before the events; `None` after the last. Sets the slots that its fields are read from.
    pub(crate) fn find(&mut self, slots: &Slots) -> Result<Option<Found>, EventTrouble> {
        if let Some(lost) = self.lost.pop() {
            return Ok(Some(Found::Lost(lost)));
        }
        let event_time = self.next_event.as_ref().map_or(u64::MAX, |head| head.time);
        let switch_time = self.next_switch.map_or(u64::MAX, |switch| switch.time);
        // Of one instant: a thread is woken, the CPU switches to it, and then it acts.
        if let Some(waking) = self.next_waking.filter(|waking| waking.time <= switch_time.min(event_time)) {
            self.read_waking();
            return Ok(Some(self.waking(waking, slots)));
        }
        if let Some(switch) = self.next_switch.filter(|_| switch_time <= event_time) {
            self.read_switch();
            return Ok(Some(self.switch(switch, slots)));
        }
        if let Some(head) = self.next_event.take() {
            self.read_event();
            return match self.event(&head, slots) {
                Some(event) => Ok(Some(event)),
                None => {
                    let reason = format!("an event of type {} without a class", head.kind);
                    Err(EventTrouble { position: bit(head.whole.start), reason })
                }
            };
        }
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        Ok(self.lost_after.take().map(Found::Lost))
    }

    fn event(&self, head: &Head, slots: &Slots) -> Option<Found> {
        let own = self.bytes.get(head.own.clone())?;
        let class = self.bundles.classes.index(head.kind, own)?;
        slots.set(slot::PID, head.pid as u64);
        slots.set(slot::FLAGS, head.flags as u64);
        Some(event(class, head.time, &head.whole, &head.own))
    }

    /// The index in the trace of a name of the table.
    fn name(&self, index: i64) -> i64 {
        usize::try_from(index).ok().and_then(|index| self.names.get(index)).copied().unwrap_or(UNKNOWN)
    }

    fn switch(&mut self, switch: Switch, slots: &Slots) -> Found {
        let before = self.running;
        self.running = Running { name: self.name(switch.next.name), ..switch.next };
        let next = self.running;
        let values = [
            (slot::PID, before.pid),
            (slot::FLAGS, UNKNOWN),
            (Field::PreviousName.slot(), before.name),
            (Field::PreviousPid.slot(), before.pid),
            (Field::PreviousPriority.slot(), before.priority),
            (Field::PreviousState.slot(), switch.previous_state),
            (Field::Name.slot(), next.name),
            (Field::Pid.slot(), next.pid),
            (Field::Priority.slot(), next.priority),
        ];
        values.into_iter().for_each(|(slot, value)| slots.set(slot, value as u64));
        row(self.bundles.classes.switch, switch.time)
    }

    fn waking(&mut self, waking: Waking, slots: &Slots) -> Found {
        let values = [
            // The thread that runs is the one that wakes the other.
            (slot::PID, self.running.pid),
            (slot::FLAGS, waking.flags),
            (Field::Name.slot(), self.name(waking.name)),
            (Field::Pid.slot(), waking.pid),
            (Field::Priority.slot(), waking.priority),
            (Field::TargetCpu.slot(), waking.target_cpu),
        ];
        values.into_iter().for_each(|(slot, value)| slots.set(slot, value as u64));
        row(self.bundles.classes.waking, waking.time)
    }
}

/// A row of the table, which has no bytes of its own; its fields are in slots.
fn row(class: u32, time: u64) -> Found {
    event(class, time, &(0..0), &(0..0))
}

fn bit(offset: usize) -> u64 {
    8 * offset as u64
}

fn event(class: u32, time: u64, whole: &Range<usize>, own: &Range<usize>) -> Found {
    Found::Event(Parts {
        class,
        cycles: Some(time),
        start: bit(whole.start),
        common: bit(whole.start),
        specific: bit(own.start),
        payload: bit(own.start),
        end: bit(own.end),
    })
}
