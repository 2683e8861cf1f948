//! Compiled plans for reading the events of a stream class.

use std::{
    collections::{BTreeMap, HashMap},
    sync::OnceLock,
};

use super::{
    event::Parts,
    header::Header,
    offsets::{FieldOffset, Offsets},
    schema::{EventClass, FieldClass, Scope, StreamClass, Structure, TraceClass},
    steps::{Known, Steps},
};

/// Ids below this are looked up in a list, the others in a map.
const LISTED: u64 = 1 << 16;

/// The plans of a trace's stream classes, by id.
#[derive(Clone, Debug)]
pub struct Plans(BTreeMap<u64, StreamPlan>);

impl Plans {
    /// Compiles the plans of a trace.
    pub fn new(class: &TraceClass) -> Plans {
        Plans(class.streams.iter().map(|(&id, class)| (id, StreamPlan::new(class))).collect())
    }

    /// The plan of a stream class.
    pub(super) fn get(&self, class: u64) -> &StreamPlan {
        self.0.get(&class).expect("each class of streams has a plan")
    }
}

/// The plan of a stream class.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    pub(super) header: Header,
    pub(super) common: Steps,
    /// Plans of the event classes, by id.
    pub(super) events: Vec<EventPlan>,
    /// Positions of the fields in the common context. Stored separately, so that skipping events needs less memory.
    pub(super) common_offsets: Offsets,
    /// Field positions of each event class, computed on first use.
    offsets: Vec<OnceLock<EventOffsets>>,
    /// The classes with ids below [`LISTED`], by id.
    listed: Vec<ListedClass>,
    /// The indices of the other classes, by id.
    others: HashMap<u64, u32>,
}

/// The plan of an event class.
#[derive(Clone, Debug)]
pub(super) struct EventPlan {
    pub(super) id: u64,
    pub(super) specific: Steps,
    pub(super) payload: Steps,
    /// The known properties of the payload's position.
    known: Known,
}

/// Positions of the fields of an event class.
#[derive(Clone, Debug)]
pub(super) struct EventOffsets {
    pub(super) payload: Offsets,
    /// Few classes have a specific context.
    pub(super) specific: Option<Box<Offsets>>,
}

/// An entry of the list of event classes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedClass {
    /// Index of the class.
    pub(super) class: u32,
    /// Bits after the header, if their number is fixed.
    pub(super) bits: u32,
    /// Bits of its specific context.
    specific: u32,
    /// Bytes from its header to the next one, if the header is a word.
    stride: u32,
}

/// No class, or no fixed number of bits or bytes.
const NONE: u32 = u32::MAX;

impl StreamPlan {
    /// Compiles the plan of a stream class.
    pub(super) fn new(class: &StreamClass) -> StreamPlan {
        let header = Header::new(class.event_header.as_ref());
        let (common, known) = Steps::of(class.common_context.as_ref(), header.end);
        // Without an id in their headers, all events belong to the only class, regardless of its id.
        let is_only = class.events.len() == 1 && !class.has_event_classes();
        let plan = |event: &EventClass| {
            let (specific, known) = Steps::of(event.specific_context.as_ref(), known);
            let (payload, _) = Steps::of(event.payload.as_ref(), known);
            EventPlan { id: if is_only { 0 } else { event.id }, specific, payload, known }
        };
        let events: Vec<EventPlan> = class.events.iter().map(plan).collect();
        let common_offsets = class.common_context.as_ref().map(Offsets::of).unwrap_or_default();
        let offsets = class.events.iter().map(|_| OnceLock::new()).collect();
        let highest = events.iter().map(|event| event.id).filter(|&id| id < LISTED).max();
        let none = ListedClass { class: NONE, bits: NONE, specific: 0, stride: NONE };
        let mut listed = vec![none; highest.map_or(0, |id| id as usize + 1)];
        let mut others = HashMap::new();
        for (index, event) in (0..).zip(&events) {
            match listed.get_mut(event.id as usize).filter(|_| event.id < LISTED) {
                Some(entry) => {
                    let specific = event.specific.fixed().map_or(0, |bits| bits as u32);
                    let bits = event.bits(&common);
                    let stride = if bits == NONE { None } else { header.stride(event.id, bits.into()) };
                    *entry = ListedClass { class: index, bits, specific, stride: stride.unwrap_or(NONE) };
                }
                None => {
                    others.insert(event.id, index);
                }
            }
        }
        StreamPlan { header, common, events, common_offsets, offsets, listed, others }
    }

    /// Positions of the fields of an event class, by its index.
    #[inline]
    pub(super) fn offsets(&self, index: u32, class: &EventClass) -> &EventOffsets {
        self.offsets[index as usize].get_or_init(|| EventOffsets::of(class))
    }

    /// The index of the class with this id.
    #[inline]
    pub(super) fn index(&self, id: u64) -> Option<u32> {
        match self.listed.get(id as usize) {
            Some(&ListedClass { class, .. }) => (class != NONE).then_some(class),
            None => self.other(id),
        }
    }

    /// The entry of a class of fixed-size events.
    #[inline(always)]
    pub(super) fn sized(&self, id: u64) -> Option<ListedClass> {
        self.listed.get(id as usize).copied().filter(|listed| listed.bits != NONE)
    }

    /// As [`StreamPlan::sized`], if the headers are words, with the bytes from one header to the next.
    #[inline(always)]
    pub(super) fn stride(&self, id: u64) -> Option<(ListedClass, usize)> {
        let listed = *self.listed.get(id as usize)?;
        (listed.stride != NONE).then_some((listed, listed.stride as usize))
    }

    /// The parts of a fixed-size event, given the beginning and end of its header.
    #[inline(always)]
    pub(super) fn sized_parts(
        &self,
        ListedClass { class, bits, specific, .. }: ListedClass,
        cycles: Option<u64>,
        start: u64,
        common: u64,
    ) -> Parts {
        let own = common + self.common.fixed().unwrap_or(0);
        let (payload, end) = (own + u64::from(specific), common + u64::from(bits));
        Parts { class, cycles, start, common, specific: own, payload, end }
    }

    #[cold]
    fn other(&self, id: u64) -> Option<u32> {
        self.others.get(&id).copied()
    }

    /// Describes for people how much of the plan is fixed.
    pub fn describe(&self) -> String {
        let fixed =
            self.events.iter().filter(|event| event.specific.fixed().and(event.payload.fixed()).is_some());
        let header = if self.header.is_compiled() { "compiled" } else { "walked" };
        format!("header {header}, {} of {} event classes of fixed size", fixed.count(), self.events.len())
    }
}

impl EventOffsets {
    #[cold]
    fn of(class: &EventClass) -> EventOffsets {
        EventOffsets {
            payload: class.payload.as_ref().map(Offsets::of).unwrap_or_default(),
            specific: class.specific_context.as_ref().map(|context| Box::new(Offsets::of(context))),
        }
    }
}

impl EventPlan {
    /// Bits after the header, if their number is fixed.
    fn bits(&self, common: &Steps) -> u32 {
        let parts = [common.fixed(), self.specific.fixed(), self.payload.fixed()];
        let bits = parts.into_iter().try_fold(0u64, |sum, bits| sum.checked_add(bits?));
        bits.and_then(|bits| u32::try_from(bits).ok()).unwrap_or(NONE)
    }
}

/// A field found once by name, then read from each event.
#[derive(Clone, Debug)]
pub struct FieldPath {
    pub(super) scope: Scope,
    /// Its position, if it is known and the field is a number or text.
    pub(super) offset: Option<FieldOffset>,
    /// The route to it otherwise. Boxed because most fields need none.
    pub(super) route: Box<FieldRoute>,
}

/// How a field is read whose offset is unknown.
#[derive(Clone, Debug)]
pub(super) struct FieldRoute {
    /// Steps from the scope's beginning to the field, or to the outermost structure that contains it.
    pub(super) steps: Steps,
    /// The class of what begins there.
    pub(super) class: FieldClass,
    /// The names of the nested structures.
    pub(super) inner: Vec<String>,
}

impl FieldPath {
    /// Whether the field belongs to the packet, so that all its events share it.
    pub fn is_of_packet(&self) -> bool {
        matches!(self.scope, Scope::PacketContext | Scope::PacketHeader)
    }
}

/// Finds a field by the names of the structures around it, first in `payload`, if given, then in the contexts. With a
/// `plan`, its position is compiled.
pub(super) fn find(
    trace: &TraceClass,
    stream: &StreamClass,
    plan: Option<&StreamPlan>,
    event: &EventClass,
    payload: &Option<Structure>,
    names: &[&str],
) -> Option<FieldPath> {
    let index = stream.events.iter().position(|known| known.id == event.id);
    let known = plan.and_then(|plan| Some(plan.events.get(index?)?.known));
    let scopes = [
        (Scope::Payload, payload, known),
        (Scope::SpecificContext, &event.specific_context, None),
        (Scope::CommonContext, &stream.common_context, None),
        (Scope::PacketContext, &stream.packet_context, None),
        (Scope::PacketHeader, &trace.packet_header, None),
    ];
    scopes.into_iter().find_map(|(scope, structure, known)| {
        find_within(scope, structure.as_ref()?, known.unwrap_or(Known::NOTHING), names)
    })
}

fn find_within(scope: Scope, structure: &Structure, known: Known, names: &[&str]) -> Option<FieldPath> {
    let (first, inner) = names.split_first()?;
    let index = structure.members.iter().position(|member| member.name == *first)?;
    let steps = Steps::up_to(structure, index, known);
    let class = structure.members.get(index)?.class.clone();
    let offset = Offsets::of(structure).offset(index).filter(|_| inner.is_empty());
    let inner = inner.iter().map(|&name| name.to_owned()).collect();
    Some(FieldPath { scope, offset, route: Box::new(FieldRoute { steps, class, inner }) })
}
