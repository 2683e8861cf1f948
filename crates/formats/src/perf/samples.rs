//! Samples as software events: tracepoints with their fields, other events with the sample's own fields.
//!
//! ```text
//! records ──one pass──► blocks with first and last time ──► packets: time windows, with the blocks that overlap each
//!                                                                └──SampleReader──► samples of the window, sorted
//! ```
//!
//! perf writes the buffers of the CPUs one after another, so records are only roughly in order of time. A window's
//! samples are in the few blocks that overlap it, regardless of the rounds in which perf wrote them.

use std::{collections::BTreeMap, ops::Range, str};

use hodo_bytes::Cursor;
use hodo_clock::CycleClock;
use hodo_model::event::{Base, Meaning};

use super::{
    events::{Attr, Events},
    file::File,
    layout::{TYPE_TRACEPOINT, feature, record, sample},
    read::read_records,
    reader::Reader,
    records::{Record, Records},
    sample::Sample,
};
use crate::events::{
    DataFile, EventTrouble, Lost, Packet, Parts, SizedValue, Stream, StreamPacket, Trace,
    foreign::{Elements, ForeignField},
    framing::{Found, Framing},
    schema::{
        ByteOrder, ClockClass, Environment, EventClass, FieldClass, Integer, Member, StreamClass, Structure,
        TraceClass,
    },
};
use crate::{
    Contents, Input,
    error::Error,
    ftrace::{
        self, Names,
        description::{Description, Initial},
        format::EventFormat,
        schema::{FieldSet, Machine, SLOTS, member, pointed_texts, structure},
    },
};

/// Block size in bytes of records.
const BLOCK: usize = 1 << 16;
/// Smallest size of a packet in bytes; a packet ends where the next block begins.
const PACKET_SIZE: usize = 1 << 18;
/// Average number of reads per block above which the records of a file count as unordered.
const MOST_READS: usize = 8;
/// `perf_event_attr.type` of software events, and the `config` of the dummy event, which never occurs.
const TYPE_SOFTWARE: u32 = 1;
const SOFTWARE_DUMMY: u64 = 9;
/// The first `perf_event_attr.type` of dynamically numbered PMUs, such as Intel PT's.
const FIRST_DYNAMIC_TYPE: u32 = 6;
/// The machines whose perf.data are read.
const MACHINE: Machine = Machine { long: 8, order: ByteOrder::Little };
/// Number of records to search for events in a file without an event list.
const FIRST_RECORDS: usize = 1 << 12;

/// Detects a file's content from its first records. Neither kind if it is no perf.data.
pub fn contents(bytes: &[u8]) -> Contents {
    let Ok(file) = File::open(bytes) else { return Contents::default() };
    let mut attrs = file.events.attrs.clone();
    let mut flow = file.features.contains_key(&feature::AUXTRACE);
    for record in file.records().filter_map(Result::ok).take(FIRST_RECORDS) {
        match record.kind {
            record::AUXTRACE_INFO => flow = true,
            record::HEADER_ATTR => {
                attrs.extend(Attr::read(&mut Cursor::new(record.body, record.body_offset())).ok());
            }
            _ => {}
        }
    }
    // A processor trace belongs to a dynamic PMU too. If the end of the file is lost, that is its only sign.
    let is_device = |attr: &Attr| attr.kind >= FIRST_DYNAMIC_TYPE;
    let is_event =
        |attr: &Attr| (attr.kind, attr.config) != (TYPE_SOFTWARE, SOFTWARE_DUMMY) && !is_device(attr);
    Contents { events: attrs.iter().any(is_event), flow: flow || attrs.iter().any(is_device) }
}

/// A run of records with its time window.
#[derive(Clone, Debug)]
struct Block {
    bytes: Range<usize>,
    first: u64,
    last: u64,
    lost: u64,
}

/// The locations and times of a recording's samples.
#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    /// The blocks of each region of bytes that contains records, such as a file.
    regions: Vec<(&'a [u8], Vec<Block>)>,
    latest: u64,
}

impl<'a> Index<'a> {
    /// Adds a record of `region`.
    pub(super) fn add(&mut self, region: &'a [u8], record: &Record<'a>, events: &Events) {
        let (time, lost) = match record.kind {
            record::SAMPLE => (events.of_sample(record).and_then(|attr| attr.time_of_sample(record)), 0),
            record::LOST | record::LOST_SAMPLES => {
                loss(record, events).map_or((None, 0), |loss| (loss.time, loss.count))
            }
            _ => return,
        };
        let time = time.unwrap_or(self.latest);
        self.latest = self.latest.max(time);
        let index = self.regions.iter().rposition(|(bytes, _)| std::ptr::eq(*bytes, region));
        let index = index.unwrap_or_else(|| {
            self.regions.push((region, Vec::new()));
            self.regions.len() - 1
        });
        let blocks = &mut self.regions[index].1;
        let bytes = record.offset as usize..record.trailing_offset() as usize;
        match blocks.last_mut().filter(|last| last.bytes.end == bytes.start && last.bytes.len() < BLOCK) {
            Some(last) => {
                last.bytes.end = bytes.end;
                (last.first, last.last) = (last.first.min(time), last.last.max(time));
                last.lost = last.lost.saturating_add(lost);
            }
            None => blocks.push(Block { bytes, first: time, last: time, lost }),
        }
    }
}

/// A loss of records.
struct Loss {
    time: Option<u64>,
    count: u64,
}

/// Reads LOST (u64 id, u64 lost) and LOST_SAMPLES (u64 lost).
fn loss(record: &Record<'_>, events: &Events) -> Option<Loss> {
    let (mut body, sample) = events.split(record).ok()?;
    if record.kind == record::LOST {
        body.u64().ok()?;
    }
    Some(Loss { time: sample.time.map(|time| time.0), count: body.u64().ok()? })
}

/// Reads the samples of a perf.data as a trace of events.
///
/// # Errors
/// Returns the errors of [`File::open`].
pub fn read<'a>(input: &Input<'a>) -> Result<Vec<Trace<'a>>, Error> {
    let file = File::open(input.bytes)?;
    let mut reader = Reader::new(&file);
    reader.index = Some(Index::default());
    read_records(&mut reader, &file, input);
    let index = reader.index.take().unwrap_or_default();
    let class = trace_class(&reader);
    let clock = class.clocks.first().filter(|_| class.streams[&0].clock.is_some()).map(|clock| clock.cycles);
    let mut streams = Vec::new();
    let mut files = Vec::new();
    for (number, (bytes, blocks)) in index.regions.into_iter().enumerate() {
        let name = if number == 0 { "perf.data".to_owned() } else { format!("perf.data part {number}") };
        let packets = packets(number, bytes, &blocks, clock);
        files.push(DataFile { name: name.clone(), bytes, index: None });
        streams.push(Stream { class: 0, id: None, name, packets, had_pre_pass: true, number: None });
    }
    let identity = reader.clock_identity();
    let samples = Samples { events: reader.events, clock };
    let mut trace = Trace::framed("perf".to_owned(), class, streams, files, Framing::Samples(samples));
    trace.loss = reader.loss;
    trace.clock_identity = Some(identity);
    Ok(vec![trace])
}

/// Builds packets: time windows with the blocks that overlap each.
fn packets<'a>(
    file: usize,
    bytes: &'a [u8],
    blocks: &[Block],
    clock: Option<CycleClock>,
) -> Vec<StreamPacket<'a>> {
    let mut order: Vec<&Block> = blocks.iter().collect();
    order.sort_by_key(|block| block.first);
    let mut borders = vec![0];
    let mut size = 0;
    for block in &order {
        if size >= PACKET_SIZE && Some(&block.first) > borders.last() {
            borders.push(block.first);
            size = 0;
        }
        size += block.bytes.len();
    }
    // The windows that a block overlaps.
    let windows = |block: &Block, borders: &[u64]| {
        let window = |time| borders.partition_point(|&border| border <= time) - 1;
        window(block.first)..=window(block.last)
    };
    let reads: usize = order.iter().map(|block| windows(block, &borders).count()).sum();
    if reads > MOST_READS * order.len() {
        borders.truncate(1);
    }
    let mut spans: Vec<Vec<&Block>> = vec![Vec::new(); borders.len()];
    for block in blocks {
        spans[windows(block, &borders)].iter_mut().for_each(|span| span.push(block));
    }
    let packet = |(index, span): (usize, Vec<&Block>)| {
        let (from, to) = (borders[index], borders.get(index + 1).copied());
        let own = span.iter().filter(|block| block.first >= from);
        let last = span.iter().map(|block| block.last).max().unwrap_or(from);
        let first = span.iter().map(|block| block.first.max(from)).min().unwrap_or(from);
        let time = |value| SizedValue { value, size: 64 };
        StreamPacket {
            file,
            bytes,
            packet: Packet {
                begin: Some(time(from)),
                end: to.map(time),
                ..Packet::framed(0..bytes.len(), None)
            },
            clock: from,
            begin: clock.map(|clock| clock.nanos(first)),
            end: clock.map(|clock| clock.nanos(to.unwrap_or(last).min(last))),
            events_lost: own.fold(0, |sum, block| block.lost.saturating_add(sum)),
            packets_lost: 0,
            pieces: span.iter().map(|block| block.bytes.clone()).collect(),
        }
    };
    spans.into_iter().enumerate().map(packet).collect()
}

/// The event classes: one per `perf_event_attr`, whose index is the id.
fn trace_class(reader: &Reader<'_>) -> TraceClass {
    let mut description = Description::default();
    if let Some(section) = reader.features.get(&feature::TRACING_DATA) {
        let mut cursor = ftrace::Cursor::little(section.cursor());
        // A section that is cut short is already reported as a loss. The part before the cut is used.
        let _ = Initial::read(&mut cursor).map(|_| description.read(&mut cursor));
    }
    let formats: BTreeMap<u64, (&[u8], EventFormat<'_>)> = description
        .formats
        .iter()
        .filter_map(|file| Some((file.system, EventFormat::parse(file.text)?)))
        .map(|(system, format)| (format.id, (system, format)))
        .collect();
    let texts = Names::texts(description.texts);
    let names = reader.recorded().into_iter().map(|event| event.name);
    let attrs = reader.events.attrs.iter().zip(names).enumerate();
    let events = attrs.map(|(index, (attr, name))| {
        let format = formats.get(&attr.config).filter(|_| attr.kind == TYPE_TRACEPOINT);
        EventClass { id: index as u64, ..event_class(attr, name, format, &texts) }
    });
    let has_time = reader.events.attrs.iter().any(|attr| attr.has(sample::TIME));
    let stream =
        StreamClass { clock: has_time.then_some(0), events: events.collect(), ..StreamClass::default() };
    let clock = ClockClass {
        name: "perf".to_owned(),
        description: "the clock of `perf record`".to_owned(),
        cycles: CycleClock::new(1_000_000_000, 0, 0).expect("a frequency that is not zero"),
        unix: false,
        uid: None,
    };
    let facts =
        reader.facts().into_iter().filter(|(name, _)| !["format", "events", "records"].contains(name));
    TraceClass {
        environment: facts.map(|(name, value)| (name.to_owned(), Environment::Text(value))).collect(),
        clocks: vec![clock],
        streams: BTreeMap::from([(0, stream)]),
        slots: SLOTS,
        state_codes: description.state_codes(),
        ..TraceClass::default()
    }
}

/// The event class of `attr`, without its id. `format` is a tracepoint's system and format.
fn event_class(
    attr: &Attr,
    name: String,
    format: Option<&(&[u8], EventFormat<'_>)>,
    texts: &Names,
) -> EventClass {
    let name = match format {
        _ if !name.is_empty() => name,
        Some((system, format)) => format!("{}:{}", String::from_utf8_lossy(system), format.name),
        None => format!("type {} config {:#x}", attr.kind, attr.config),
    };
    let raw = || {
        let raw = FieldClass::ForeignField(Box::new(ForeignField::Rest(Elements::Blob)));
        Structure { members: vec![member("raw", raw)], minimum_alignment: 8 }
    };
    let payload = match format {
        Some((_, format)) => {
            let mut payload = structure(format, FieldSet::Whole, MACHINE);
            // At the beginning, the origin of the offsets.
            payload.members.splice(0..0, pointed_texts(format, texts, MACHINE));
            Some(payload)
        }
        None => attr.has(sample::RAW).then(raw),
    };
    EventClass { name, specific_context: Some(context(attr)), payload, ..EventClass::default() }
}

/// The fields of a sample before its raw part, in the order of the kernel's `perf_output_sample`.
fn context(attr: &Attr) -> Structure {
    let foreign = |foreign| FieldClass::ForeignField(Box::new(foreign));
    let hidden = || vec![member("", foreign(ForeignField::Padding(8)))];
    let visible = |name: &str, class| vec![member(name, class)];
    let fields: [(u64, Vec<Member>); 9] = [
        (sample::IDENTIFIER, hidden()),
        (sample::IP, visible("ip", FieldClass::Integer(address()))),
        (sample::TID, ["pid", "tid"].map(|name| member(name, signed(4))).into()),
        (sample::TIME, hidden()),
        (sample::ADDR, visible("addr", FieldClass::Integer(address()))),
        (sample::ID, hidden()),
        (sample::STREAM_ID, hidden()),
        (sample::CPU, vec![member("cpu", unsigned(4)), member("", foreign(ForeignField::Padding(4)))]),
        (sample::PERIOD, visible("period", unsigned(8))),
    ];
    let mut members = Vec::new();
    for (field, own) in fields {
        if attr.has(field) {
            members.extend(own);
        }
    }
    // Counter values, whose number varies, would precede it.
    if attr.has(sample::CALLCHAIN) && !attr.has(sample::READ) {
        members.push(member("callchain", foreign(ForeignField::Counted(address()))));
    }
    Structure { members, minimum_alignment: 8 }
}

fn unsigned(bytes: u32) -> FieldClass {
    FieldClass::Integer(Integer::plain(Meaning { size: bytes * 8, ..Meaning::default() }))
}

fn signed(bytes: u32) -> FieldClass {
    let meaning = Meaning { size: bytes * 8, ..Meaning::default() };
    FieldClass::Integer(Integer { signed: true, ..Integer::plain(meaning) })
}

fn address() -> Integer {
    Integer::plain(Meaning { base: Base::Hexadecimal, size: 64, labels: Vec::new() })
}

/// The context for reading samples.
#[derive(Debug)]
pub(crate) struct Samples {
    events: Events,
    clock: Option<CycleClock>,
}

/// A record in a time window.
#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    /// Offset in its file.
    offset: usize,
    kind: EntryKind,
}

#[derive(Clone, Copy, Debug)]
enum EntryKind {
    /// A sample of the event with this index.
    Sample(u32),
    Lost(u64),
}

/// Reads the samples of time windows.
#[derive(Debug)]
pub(crate) struct SampleReader<'t, 'a> {
    samples: &'t Samples,
    bytes: &'a [u8],
    /// Remaining records of the current window, the last first.
    left: Vec<Entry>,
}

impl<'t, 'a> SampleReader<'t, 'a> {
    pub(crate) fn new(samples: &'t Samples) -> SampleReader<'t, 'a> {
        SampleReader { samples, bytes: &[], left: Vec::new() }
    }

    pub(crate) fn open(&mut self, packet: &'t StreamPacket<'a>) {
        self.bytes = packet.bytes;
        self.left.clear();
        let from = packet.packet.begin.map_or(0, |begin| begin.value);
        let to = packet.packet.end.map(|end| end.value);
        let mut latest = from;
        for piece in &packet.pieces {
            let bytes = piece.start as u64..piece.end as u64;
            for record in Records::new(packet.bytes, bytes, Vec::new()).map_while(Result::ok) {
                let Some((time, kind)) = self.samples.kind(&record) else { continue };
                let time = time.unwrap_or(latest);
                latest = latest.max(time);
                if from <= time && to.is_none_or(|to| time < to) {
                    self.left.push(Entry { time, offset: record.offset as usize, kind });
                }
            }
        }
        self.left.sort_unstable_by_key(|entry| std::cmp::Reverse((entry.time, entry.offset)));
    }

    pub(crate) fn find(&mut self) -> Result<Option<Found>, EventTrouble> {
        let Some(Entry { time, offset, kind }) = self.left.pop() else { return Ok(None) };
        let class = match kind {
            EntryKind::Sample(class) => class,
            EntryKind::Lost(count) => {
                let before = self.samples.clock.map(|clock| clock.nanos(time));
                return Ok(Some(Found::Lost(Lost { count, packets: false, after: None, before })));
            }
        };
        let trouble = |reason| EventTrouble { position: 8 * offset as u64, reason };
        let end = self.bytes.len() as u64;
        let record = Records::new(self.bytes, offset as u64..end, Vec::new()).next();
        let record = record
            .ok_or_else(|| trouble("no record".to_owned()))?
            .map_err(|error| trouble(error.to_string()))?;
        let attr = &self.samples.events.attrs[class as usize];
        let sample =
            Sample::read(&record, attr).map_err(|eof| trouble(format!("a sample is cut short: {eof}")))?;
        let end = if attr.has(sample::RAW) {
            sample.raw_offset + sample.raw.len() as u64
        } else {
            record.trailing_offset()
        };
        let (body, payload) = (8 * record.body_offset(), 8 * sample.raw_offset);
        Ok(Some(Found::Event(Parts {
            class,
            cycles: self.samples.clock.map(|_| time),
            start: 8 * offset as u64,
            common: body,
            specific: body,
            payload,
            end: 8 * end,
        })))
    }
}

impl Samples {
    /// The kind of a record and its timestamp, if it has one. `None` if it is neither sample nor loss.
    fn kind(&self, record: &Record<'_>) -> Option<(Option<u64>, EntryKind)> {
        if record.kind == record::SAMPLE {
            let index = self.events.index_of_sample(record)?;
            return Some((self.events.attrs[index].time_of_sample(record), EntryKind::Sample(index as u32)));
        }
        if ![record::LOST, record::LOST_SAMPLES].contains(&record.kind) {
            return None;
        }
        let loss = loss(record, &self.events)?;
        Some((loss.time, EntryKind::Lost(loss.count)))
    }
}
