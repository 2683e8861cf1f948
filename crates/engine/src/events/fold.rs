//! Analyses of kernel events, over slices of time on all cores.
//!
//! ```text
//! slice ──Binding──► Records of each stream, a batch at a time ──Sources──► merged ──fold──► a state of each analysis
//! ```
//!
//! Events that no analysis requests are skipped: they only extend the time span of the trace.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use hodo_clock::Nanos;
use hodo_formats::events::{
    Event, FieldPath, Stream, Trace,
    schema::{EventClass, StreamClass},
};
use hodo_model::{
    AnyAnalysis, Cause, Loss, NoSources, Selection, Start, Table, Value,
    kernel::{ALL, CONTEXT, Kind, LABEL, Records, STATE, StateCodes, VOCABULARY, Wakeups, Words},
    pass::{self, Pass, States},
    vocabulary,
};
use serde::{Deserialize, Serialize};

use super::{
    EventReading, Traces,
    field_sinks::{Filler, Labeller, Number, arguments},
    filter::call_names,
    periods::Edges,
    slices::{Slice, plan},
    sources::Sources,
    survey::Scheduling,
};
use crate::{losses::Losses, parallel::in_order, traces::cover};

/// The folded state of one or more slices.
pub(crate) struct Folded {
    pub(crate) states: States,
    pub(crate) totals: Totals,
    pub(super) losses: Vec<Loss>,
    bytes: u64,
}

/// Totals of some slices beside the states of analyses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// First and last time.
    pub(super) span: Option<(Nanos, Nanos)>,
    events_lost: u64,
    packets_lost: u64,
    /// Events whose time can't be expressed as non-negative nanoseconds since the origin.
    pub(super) untimed: u64,
}

/// Folds several analyses in one pass and makes a table of each. `progress` receives the number of bytes read, and
/// returns whether to continue.
pub fn analyse(
    traces: &Traces<'_>,
    analyses: &[&dyn AnyAnalysis],
    selection: &Selection,
    reading: &EventReading,
    mut progress: impl FnMut(u64) -> bool + Send,
) -> Vec<Table> {
    let mut losses = Losses::default();
    traces.event_losses().into_iter().for_each(|loss| losses.add(loss));
    let pass = Pass::new(analyses);
    let (folded, names) =
        fold_all(traces, &pass, &plan(traces, reading), reading, &mut losses, |_, _, read| progress(read));
    tables(&pass, folded, &names, &vec![selection; analyses.len()], losses, reading.threads)
}

/// Folds consecutive slices. Returns the folded state, and the variable parts of event names, indexed by the events'
/// name index.
///
/// `merged` receives the state of the slices so far, those names, and the number of bytes read; it returns whether to
/// continue.
pub(crate) fn fold_all(
    traces: &Traces<'_>,
    pass: &Pass<'_>,
    slices: &[Slice],
    reading: &EventReading,
    losses: &mut Losses,
    mut merged: impl FnMut(&mut Folded, &[String], u64) -> bool + Send,
) -> (Folded, Vec<String>) {
    let binding = Binding::new(traces, pass);
    let start = |is_first| {
        let start = Start { names: &binding.names, is_first, wakeups: binding.wakeups };
        Folded::new(pass.begin(&start), Totals::default())
    };
    let fold = |room: &mut Scratch, folded: Folded, slice: &Slice| {
        fold(traces, pass, &binding, reading, slice, room, folded)
    };
    let mut whole: Option<Folded> = None;
    let mut done = 0;
    let mut take = |folded: &mut Folded| {
        folded.losses.drain(..).for_each(|loss| losses.add(loss));
        done += std::mem::take(&mut folded.bytes);
        merged(folded, &binding.names, done)
    };
    if reading.threads <= 1 {
        // A single thread folds each slice into the same state: no slice starts with unknown state, and nothing is
        // merged.
        let mut room = Scratch::default();
        for slice in slices {
            let earlier = whole.take().unwrap_or_else(|| start(slice.is_first));
            if !take(whole.insert(fold(&mut room, earlier, slice))) {
                break;
            }
        }
    } else {
        let work = |room: &mut Scratch, slice: &Slice| fold(room, start(slice.is_first), slice);
        in_order(slices, reading.threads, Scratch::default, work, |folded| {
            let next = match whole.take() {
                Some(earlier) => earlier.merge(folded, pass),
                None => folded,
            };
            take(whole.insert(next))
        });
    }
    // Without a slice, nothing is known of the begin of the trace.
    let is_first = false;
    (whole.unwrap_or_else(|| start(is_first)), binding.names)
}

/// Makes the tables of the complete state on `threads` threads; `selections` has one for each analysis.
pub(crate) fn tables(
    pass: &Pass<'_>,
    whole: Folded,
    names: &[String],
    selections: &[&Selection],
    mut losses: Losses,
    threads: usize,
) -> Vec<Table> {
    let Totals { span, events_lost, packets_lost, untimed: count } = whole.totals;
    if count > 0 {
        losses.add(untimed(count));
    }
    let span = span.unwrap_or_default();
    let loss = losses.into_list();
    let remark = whole.states.wakeups().remark();
    let made = pass.finish(whole.states, names, span, selections, &NoSources, threads);
    let tables = made.into_iter().zip(pass.requested()).map(|(mut table, &analysis)| {
        if let Some(remark) = remark.filter(|_| reads_wakeups(analysis)) {
            table.summary.push(("wakeups_from", remark.into()));
        }
        table.summary.extend([
            ("begin_ns", Value::from(span.0.0)),
            ("end_ns", span.1.0.into()),
            ("events_lost", events_lost.into()),
            ("packets_lost", packets_lost.into()),
        ]);
        table.with_loss(loss.clone())
    });
    tables.collect()
}

/// Returns whether an analysis reads wake-ups.
pub(crate) fn reads_wakeups(analysis: &dyn AnyAnalysis) -> bool {
    pass::interest(analysis).iter().any(|(kind, _)| *kind == Kind::SchedWakeup)
}

fn untimed(count: u64) -> Loss {
    let detail = "events whose time can't be expressed in nanoseconds since the clock's origin".to_owned();
    Loss { stream: String::new(), cause: Cause::Corrupt, bytes: 0..0, time: None, count, detail }
}

impl Totals {
    pub(super) fn add(&mut self, later: Totals) {
        self.span = self.span.into_iter().chain(later.span).reduce(cover);
        self.events_lost = self.events_lost.saturating_add(later.events_lost);
        self.packets_lost = self.packets_lost.saturating_add(later.packets_lost);
        self.untimed += later.untimed;
    }

    pub(super) fn add_lost(&mut self, lost: &hodo_formats::events::Lost) {
        let sum = if lost.packets { &mut self.packets_lost } else { &mut self.events_lost };
        *sum = sum.saturating_add(lost.count);
    }
}

impl Folded {
    pub(crate) fn new(states: States, totals: Totals) -> Folded {
        Folded { states, totals, losses: Vec::new(), bytes: 0 }
    }

    pub(crate) fn merge(mut self, later: Folded, pass: &Pass<'_>) -> Folded {
        self.totals.add(later.totals);
        self.losses.extend(later.losses);
        self.bytes += later.bytes;
        Folded { states: pass.merge(self.states, later.states), ..self }
    }

    /// Returns the first and last time so far.
    pub(crate) fn span(&self) -> (Nanos, Nanos) {
        self.totals.span.unwrap_or_default()
    }
}

/// Buffers that are reused from slice to slice.
#[derive(Default)]
struct Scratch {
    records: Vec<Records>,
    events: pass::Scratch,
}

/// Folds a slice into `folded`.
fn fold(
    traces: &Traces<'_>,
    pass: &Pass<'_>,
    binding: &Binding,
    reading: &EventReading,
    slice: &Slice,
    room: &mut Scratch,
    mut folded: Folded,
) -> Folded {
    let mut sources = Sources::new(traces, binding, reading, slice, std::mem::take(&mut room.records));
    while let Some((streams, ranges)) = sources.next_batch() {
        pass.fold(&mut folded.states, streams, ranges, &mut room.events);
    }
    room.records = sources.finish(&mut folded);
    folded.bytes += slice.bytes;
    slice.parts.iter().for_each(|part| traces.release(part.trace, part.stream, part.packets.clone()));
    folded
}

/// The vocabulary, resolved to the event classes of the traces.
pub(super) struct Binding {
    /// The variable parts of event names (after the prefix), sorted.
    names: Vec<String>,
    /// By trace and stream.
    pub(super) streams: Vec<Vec<StreamBinding>>,
    /// The events from which wake-ups are known, of all traces together.
    wakeups: Wakeups,
    /// Whether an analysis requests records of lost events.
    pub(super) wants_lost: bool,
    /// The begin and end events of periods, if an analysis requests them.
    pub(super) edges: Option<Edges>,
}

#[derive(Clone)]
pub(super) struct StreamBinding {
    /// The packet context's field with the CPU.
    cpu: Option<FieldPath>,
    /// The CPU if there is no such field: the stream's number.
    number: u32,
    /// By class index; `None` if no analysis requests the class. Streams of one class share the bindings, so that they
    /// stay in the L1 cache.
    pub(super) classes: Arc<[Option<ClassBinding>]>,
    /// By class index, whether an analysis requests the class.
    pub(super) wanted: Vec<bool>,
}

pub(super) struct ClassBinding {
    kind: Kind,
    name: u32,
    /// Whether it ends system calls that may be joined with their begin into one record.
    joins: bool,
    /// Fields that only some tracers' events have; boxed to keep the others small.
    more: Option<Box<More>>,
    /// By position in records, up to the last one that exists; to the last requested one if it `joins`.
    fields: Vec<FieldSource>,
}

struct More {
    /// The field with the system call's number, if one event stands for all system calls.
    number: Option<FieldPath>,
    /// The names by number; the last is for unknown numbers.
    calls: Vec<u32>,
    /// The event field with the CPU, if events record their own.
    cpu: Option<FieldPath>,
    /// The event field with the thread, if events record their own.
    tid: Option<FieldPath>,
}

/// Events that a pass reads.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    words: &'static Words,
    /// The positions of the fields.
    fields: &'a [usize],
    /// Whether only those that contain their thread.
    reporting: bool,
}

/// The content of a field of records.
enum FieldSource {
    /// Absent: not requested, or the event has no such field.
    Absent,
    Field(FieldPath),
    /// Why a thread left its CPU.
    State(FieldPath, Arc<StateCodes>),
    /// The name of an enumeration's value.
    Label(FieldPath),
    /// All fields, as text.
    All,
}

impl Binding {
    fn new(traces: &Traces<'_>, pass: &Pass<'_>) -> Binding {
        let edges = pass.period().map(|period| Edges::new(traces, period));
        let mut requested: HashMap<Kind, Vec<usize>> = HashMap::new();
        for (kind, fields) in pass.interest() {
            requested.entry(kind).or_default().extend_from_slice(fields);
        }
        let reporting = pass.reporting();
        let wanted = |words: &'static Words| match requested.get(&words.kind) {
            Some(fields) => Some(Wanted { words, fields, reporting: false }),
            None => reporting.contains(&words.kind).then_some(Wanted { words, fields: &[], reporting: true }),
        };
        let words: Vec<Wanted<'_>> = VOCABULARY.iter().filter_map(wanted).collect();
        let scheduling = Scheduling::of_all(traces, &requested);
        let mut names: Vec<String> = Vec::new();
        for (trace, scheduling) in traces.events.iter().zip(&scheduling) {
            let of_streams = trace.streams.iter().map(|stream| (stream.class, trace.stream_class(stream)));
            let of_streams: BTreeMap<u64, &StreamClass> = of_streams.collect();
            let classes = of_streams.into_values().flat_map(|class| &class.events);
            let matched = |class: &EventClass| {
                let called = scheduling.names(class);
                words.iter().find_map(|wanted| wanted.words.matches(&called))
            };
            for (class, name) in classes.filter_map(|class| Some((class, matched(class)?))) {
                match vocabulary::every_call(&class.name) {
                    Some(_) => names.extend(call_names(trace).into_iter().map(str::to_owned)),
                    None => names.push(name),
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        let joins = pass.joins_calls();
        let of_trace = |(trace, scheduling): (&Trace<'_>, &Scheduling)| {
            let mut classes: BTreeMap<u64, StreamBinding> = BTreeMap::new();
            let of_stream = |(number, stream): (u32, &Stream<'_>)| {
                let new = || StreamBinding::new(trace, stream, (&words, joins), &names, scheduling);
                StreamBinding { number, ..classes.entry(stream.class).or_insert_with(new).clone() }
            };
            (0..).zip(&trace.streams).map(of_stream).collect()
        };
        let mut streams: Vec<Vec<StreamBinding>> =
            traces.events.iter().zip(&scheduling).map(of_trace).collect();
        if let Some(edges) = &edges {
            for (trace, streams) in streams.iter_mut().enumerate() {
                for (index, stream) in streams.iter_mut().enumerate() {
                    let classes = stream.wanted.iter_mut().enumerate();
                    classes.for_each(|(class, wanted)| *wanted |= edges.may_be_edge((trace, index), class));
                }
            }
        }
        let wakeups = scheduling.iter().filter_map(|scheduling| scheduling.wakeups).max().unwrap_or_default();
        Binding { names, streams, wakeups, wants_lost: requested.contains_key(&Kind::Lost), edges }
    }
}

/// Resolves a field by its word: see [`Words::fields`].
pub(super) fn path(
    trace: &Trace<'_>,
    stream: &Stream<'_>,
    class: &EventClass,
    word: &str,
) -> Option<FieldPath> {
    word.split('|').find_map(|name| match name.strip_prefix(CONTEXT) {
        Some(name) => trace.find_context(stream, class, &[name]),
        None => {
            let mut names: Vec<&str> = name.split('.').collect();
            names[0] = name_of(class, names[0])?;
            trace.find(stream, class, &names)
        }
    })
}

/// Returns the field with the CPU in the context of an event or of its packet.
pub(super) fn path_of_cpu(trace: &Trace<'_>, stream: &Stream<'_>, event: &EventClass) -> Option<FieldPath> {
    path_of("cpu_id", trace, stream, event)
}

/// Returns the context field of an event or of its packet for a word of the vocabulary.
fn path_of(word: &str, trace: &Trace<'_>, stream: &Stream<'_>, event: &EventClass) -> Option<FieldPath> {
    vocabulary::context(word).iter().find_map(|name| trace.find_context(stream, event, &[name]))
}

/// Returns the CPU that an event records.
pub(super) fn cpu(path: &FieldPath, event: &Event<'_, '_, '_>) -> Option<u32> {
    integer(path, event).and_then(|cpu| u32::try_from(cpu).ok())
}

/// Returns the value of an integer field.
pub(super) fn integer(path: &FieldPath, event: &Event<'_, '_, '_>) -> Option<i64> {
    let mut number = Number(None);
    event.emit_field(path, &mut number).ok()?;
    number.0
}

/// Returns the payload field for a word of the vocabulary. A field whose name means another word in this event, such as
/// ftrace's `child_pid` for a thread, does not match.
fn name_of<'w>(event: &EventClass, word: &'w str) -> Option<&'w str> {
    let has = |name: &str| {
        event.payload.iter().flat_map(|payload| &payload.members).any(|member| member.name == name)
    };
    let own = has(word) && vocabulary::field_word(&event.name, word).is_none_or(has);
    if own { Some(word) } else { vocabulary::field(&event.name, word).filter(|name| has(name)) }
}

impl StreamBinding {
    fn new(
        trace: &Trace<'_>,
        stream: &Stream<'_>,
        (wanted, joins): (&[Wanted<'_>], bool),
        names: &[String],
        scheduling: &Scheduling,
    ) -> StreamBinding {
        let events = &trace.stream_class(stream).events;
        let cpu = |event: &EventClass| path_of_cpu(trace, stream, event);
        let class = |class: &EventClass| {
            let called = scheduling.names(class);
            let (&Wanted { words, fields, reporting }, name) =
                wanted.iter().find_map(|wanted| Some((wanted, wanted.words.matches(&called)?)))?;
            let tid = path_of("tid", trace, stream, class).filter(|path| !path.is_of_packet());
            if reporting && tid.is_none() {
                return None;
            }
            let index = |name: &str| names.binary_search_by(|known| known.as_str().cmp(name)).ok();
            let is_every = vocabulary::every_call(&class.name).is_some();
            let calls = if is_every { call_names(trace) } else { Vec::new() };
            let calls: Vec<u32> = calls.into_iter().filter_map(|call| Some(index(call)? as u32)).collect();
            let name = if is_every { *calls.last()? } else { index(&name)? as u32 };
            let field_source = |index: usize| match words.fields[index] {
                _ if !fields.contains(&index) => FieldSource::Absent,
                ALL => FieldSource::All,
                word if word.starts_with(LABEL) => {
                    let path = path(trace, stream, class, &word[LABEL.len()..]);
                    path.map_or(FieldSource::Absent, FieldSource::Label)
                }
                word if word.starts_with(STATE) => {
                    let path = path(trace, stream, class, &word[STATE.len()..]);
                    path.map_or(FieldSource::Absent, |path| {
                        FieldSource::State(path, Arc::clone(&scheduling.codes))
                    })
                }
                word => path(trace, stream, class, word).map_or(FieldSource::Absent, FieldSource::Field),
            };
            let number = if is_every { trace.find(stream, class, &["id"]) } else { None };
            let cpu = cpu(class).filter(|path| !path.is_of_packet());
            let mut fields: Vec<FieldSource> =
                (0..fields.iter().max().map_or(0, |last| last + 1)).map(field_source).collect();
            let joins = joins && words.kind == Kind::SyscallExit;
            while fields.pop_if(|source| !joins && matches!(source, FieldSource::Absent)).is_some() {}
            let has_more = is_every || cpu.is_some() || tid.is_some();
            Some(ClassBinding {
                kind: words.kind,
                name,
                joins,
                more: has_more.then(|| Box::new(More { number, calls, cpu, tid })),
                fields,
            })
        };
        let classes: Arc<[_]> = events.iter().map(class).collect();
        let wanted = classes.iter().map(Option::is_some).collect();
        let cpu = events.first().and_then(cpu).filter(FieldPath::is_of_packet);
        StreamBinding { cpu, number: 0, classes, wanted }
    }

    /// Returns the CPU of a packet.
    #[cold]
    pub(super) fn cpu(&self, event: &Event<'_, '_, '_>) -> u32 {
        self.cpu.as_ref().and_then(|path| cpu(path, event)).unwrap_or(self.number)
    }
}

impl More {
    /// Returns the index of the event's name.
    fn name(&self, event: &Event<'_, '_, '_>) -> Option<u32> {
        let number = integer(self.number.as_ref()?, event)?;
        self.calls.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the CPU that the event records.
    fn cpu(&self, event: &Event<'_, '_, '_>) -> Option<u32> {
        cpu(self.cpu.as_ref()?, event)
    }

    /// Returns the id of the thread that the event records. perf records -1 for a thread that has ended.
    fn tid(&self, event: &Event<'_, '_, '_>) -> Option<u32> {
        let tid = integer(self.tid.as_ref()?, event)?;
        i32::try_from(tid).ok().and_then(|tid| u32::try_from(tid).ok())
    }
}

impl ClassBinding {
    /// Appends an event with the requested fields. The CPU is `packet_cpu` unless the event records its own. Returns
    /// whether all fields could be read.
    #[inline]
    pub(super) fn push(
        &self,
        time: Nanos,
        packet_cpu: u32,
        event: &Event<'_, '_, '_>,
        records: &mut Records,
    ) -> bool {
        let (name, cpu_and_tid) = match &self.more {
            None => (self.name, (packet_cpu, None)),
            Some(more) => {
                let cpu_and_tid = (more.cpu(event).unwrap_or(packet_cpu), more.tid(event));
                (more.name(event).unwrap_or(self.name), cpu_and_tid)
            }
        };
        if !self.joins || !records.end_call(time, cpu_and_tid, name) {
            records.push(time, cpu_and_tid, self.kind, name);
        }
        self.read(event, records)
    }

    /// Reads the requested fields; returns whether all could be read.
    #[inline]
    fn read(&self, event: &Event<'_, '_, '_>, records: &mut Records) -> bool {
        let mut readable = true;
        for source in &self.fields {
            let before = records.fields();
            match source {
                FieldSource::Absent => {}
                FieldSource::Field(path) => {
                    readable &= event.emit_field(path, &mut Filler { records, depth: 0 }).is_ok();
                }
                FieldSource::State(path, codes) => {
                    let mut code = Number(None);
                    readable &= event.emit_field(path, &mut code).is_ok();
                    if let Some(code) = code.0 {
                        records.integer(codes.state(code).number());
                    }
                }
                FieldSource::Label(path) => {
                    readable &= event.emit_field(path, &mut Labeller(&mut *records)).is_ok();
                }
                FieldSource::All => match arguments(event) {
                    Ok(all) => records.text(&all),
                    Err(_) => readable = false,
                },
            }
            if records.fields() == before {
                records.absent();
            }
        }
        readable
    }
}
