//! A trace: the streams combined from its files, and the packets of each in order.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
};

use hodo_clock::{OriginNanos, TimeMap, TimelineClock};
use hodo_model::{
    Cause, Loss,
    event::{FieldSink, Ignore},
};

use crate::ClockIdentity;

use super::{
    event::{Reader, advance},
    fixups::Fixups,
    framing::Framing,
    packet::{FilePackets, Packet, PacketTrouble, SizedValue},
    plan::{FieldPath, Plans, StreamPlan, find},
    read::Walk,
    schema::{EventClass, Scope, Slot, StreamClass, Structure, TraceClass},
    steps::{Content, Slots},
};

/// A file in a trace's folder.
#[derive(Clone, Debug)]
pub struct DataFile<'a> {
    /// The path, for people.
    pub name: String,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The file's LTTng index, if it exists.
    pub index: Option<&'a [u8]>,
}

/// A trace with known packets, ready to read events from.
#[derive(Debug)]
pub struct Trace<'a> {
    /// The name for people: the trace's folder.
    pub name: String,
    /// The metadata.
    pub class: TraceClass,
    plans: Plans,
    /// The streams, by class and id.
    pub streams: Vec<Stream<'a>>,
    /// The source files.
    pub files: Vec<DataFile<'a>>,
    /// Unreadable parts of the files.
    pub loss: Vec<Loss>,
    /// Notes on some files: file name and sentence.
    pub notes: Vec<(String, String)>,
    /// The clock of its times, if the metadata does not describe it.
    pub clock_identity: Option<ClockIdentity>,
    /// How events are located in packets.
    pub(super) framing: Framing,
    /// The map from its clock to the timeline.
    map: TimeMap,
}

/// A stream of events from one source.
#[derive(Clone, Debug)]
pub struct Stream<'a> {
    /// The class id.
    pub class: u64,
    /// The stream id, if it has one.
    pub id: Option<u64>,
    /// The name for people: that of its first file.
    pub name: String,
    /// Its packets, in order.
    pub packets: Vec<StreamPacket<'a>>,
    /// Whether the begin times of packets depend on the events before them, so that every packet had to be read once.
    pub had_pre_pass: bool,
    /// A number common to all events, and its slot.
    pub number: Option<(Slot, u64)>,
}

/// A packet of a stream.
#[derive(Clone, Debug)]
pub struct StreamPacket<'a> {
    /// Index of the file.
    pub file: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The parsed header and context.
    pub packet: Packet,
    /// The clock before the packet.
    pub clock: u64,
    /// Begin time.
    pub begin: Option<OriginNanos>,
    /// End time.
    pub end: Option<OriginNanos>,
    /// Events discarded between the end of the previous packet and the end of this one.
    pub events_lost: u64,
    /// Packets missing before this one.
    pub packets_lost: u64,
    /// For perf: ranges of `bytes` with the records of this packet; empty if all of `bytes` belongs to it.
    pub pieces: Vec<Range<usize>>,
}

impl<'a> Trace<'a> {
    /// Creates a trace whose streams the caller adds.
    pub fn without_streams(name: String, class: TraceClass, files: Vec<DataFile<'a>>) -> Trace<'a> {
        Trace::framed(name, class, Vec::new(), files, Framing::Ctf)
    }

    /// Combines a trace from its metadata and its other files.
    pub fn new(name: String, class: TraceClass, files: Vec<DataFile<'a>>) -> Trace<'a> {
        let packets = files.iter().map(|file| FilePackets::read(&class, file, &|_| ())).collect();
        let plans = Plans::new(&class);
        Trace::of_packets(name, (class, plans), files, packets)
    }

    /// As [`Trace::new`], with packets already read and plans already compiled.
    pub fn of_packets(
        name: String,
        (class, plans): (TraceClass, Plans),
        files: Vec<DataFile<'a>>,
        packets: Vec<FilePackets>,
    ) -> Trace<'a> {
        let mut trace = Trace {
            name,
            class,
            plans,
            streams: Vec::new(),
            files,
            loss: Vec::new(),
            notes: Vec::new(),
            clock_identity: None,
            framing: Framing::Ctf,
            map: TimeMap::default(),
        };
        let metadata = format!("metadata of {}", trace.name);
        trace.notes.extend(trace.class.notes.iter().map(|note| (metadata.clone(), note.clone())));
        let mut streams: BTreeMap<StreamKey, Vec<StreamPacket<'a>>> = BTreeMap::new();
        for (index, (file, of_file)) in trace.files.iter().zip(packets).enumerate() {
            for packet in of_file.packets {
                let key = StreamKey::new(&packet, index);
                streams.entry(key).or_default().push(StreamPacket::new(index, file.bytes, packet));
            }
            trace.loss.extend(of_file.troubles.into_iter().map(|trouble| packet_loss(file, trouble)));
            trace.notes.extend(of_file.note.map(|note| (file.name.clone(), note)));
        }
        let fixups = Fixups::of(&trace.class);
        for (key, packets) in streams {
            let stream = trace.stream(&key, packets, fixups);
            trace.streams.push(stream);
        }
        trace
    }

    /// Creates a trace of another format from known classes, streams and packets.
    pub(crate) fn framed(
        name: String,
        class: TraceClass,
        streams: Vec<Stream<'a>>,
        files: Vec<DataFile<'a>>,
        framing: Framing,
    ) -> Trace<'a> {
        let plans = Plans::new(&class);
        Trace {
            name,
            class,
            plans,
            streams,
            files,
            loss: Vec::new(),
            notes: Vec::new(),
            clock_identity: None,
            framing,
            map: TimeMap::default(),
        }
    }

    fn stream(&self, key: &StreamKey, packets: Vec<StreamPacket<'a>>, fixups: Fixups) -> Stream<'a> {
        let name = self.files[packets[0].file].name.clone();
        let packets = in_order(packets);
        let mut stream =
            Stream { class: key.class, id: key.id, name, packets, had_pre_pass: false, number: None };
        let spans = self.set_clocks(&mut stream);
        self.set_times(&mut stream, &spans);
        fixups.apply(self, &mut stream);
        let mut counters = Counters::default();
        stream.packets.iter_mut().for_each(|packet| counters.count(packet));
        stream
    }

    /// Sets the clock before each packet. If the packets contain only a part of it, reads all events once, and
    /// returns the lowest and highest cycle of each packet.
    fn set_clocks(&self, stream: &mut Stream<'a>) -> Vec<Option<RangeInclusive<u64>>> {
        let class = self.stream_class(stream);
        let full = |packet: &StreamPacket<'_>| packet.packet.begin.is_some_and(|begin| begin.size >= 64);
        if class.clock.is_none() || stream.packets.iter().all(full) {
            return Vec::new();
        }
        stream.had_pre_pass = true;
        let mut reader = self.reader(stream);
        let (mut clock, mut spans) = (0, Vec::with_capacity(stream.packets.len()));
        for packet in &mut stream.packets {
            packet.clock = clock;
            reader.open(packet.bytes, &packet.packet, clock);
            let mut span: Option<RangeInclusive<u64>> = None;
            while let Ok(Some(parts)) = reader.next_event() {
                span = parts.cycles.map(|cycles| match &span {
                    Some(span) => cycles.min(*span.start())..=cycles.max(*span.end()),
                    None => cycles..=cycles,
                });
            }
            clock = reader.clock();
            spans.push(span);
        }
        spans
    }

    /// Sets the begin and end times of packets from the packets, or else from their events.
    fn set_times(&self, stream: &mut Stream<'a>, spans: &[Option<RangeInclusive<u64>>]) {
        let Some(clock) = self.clock(stream) else { return };
        stream.packets.iter_mut().for_each(|packet| packet.set_times(clock));
        for (packet, span) in stream.packets.iter_mut().zip(spans) {
            let Some(span) = span else { continue };
            packet.begin = packet.begin.or_else(|| Some(clock.nanos(*span.start())));
            packet.end = packet.end.or_else(|| Some(clock.nanos(*span.end())));
        }
    }

    /// The name of the format.
    pub fn format(&self) -> &'static str {
        match self.framing {
            Framing::Ctf if self.class.version == 2 => "CTF 2",
            Framing::Ctf => "CTF 1.8",
            Framing::Pages(_) => "trace.dat",
            Framing::Samples(_) => "perf.data",
            Framing::Bundles(_) => "Perfetto",
        }
    }

    /// The class of a stream.
    pub fn stream_class(&self, stream: &Stream<'a>) -> &StreamClass {
        self.class.streams.get(&stream.class).expect("packets of other classes do not belong to this trace")
    }

    /// The plan for a stream's events.
    pub fn plan(&self, stream: &Stream<'a>) -> &StreamPlan {
        self.plans.get(stream.class)
    }

    /// The clock of a stream, on the timeline.
    pub fn clock(&self, stream: &Stream<'a>) -> Option<TimelineClock<'_>> {
        let class = self.class.clocks.get(self.stream_class(stream).clock?)?;
        Some(TimelineClock::new(class.cycles, &self.map))
    }

    /// Returns the map from the times of the trace's own clock to the timeline.
    pub fn time_map(&self) -> &TimeMap {
        &self.map
    }

    /// Places the trace on a timeline. Called once; until then, times are those of the trace's own clock.
    pub fn place(&mut self, map: TimeMap) {
        let packets = self.streams.iter_mut().flat_map(|stream| &mut stream.packets);
        for time in packets.flat_map(|packet| [&mut packet.begin, &mut packet.end]).flatten() {
            *time = map.estimate(*time);
        }
        self.map = map;
    }

    /// Passes the fields of a packet's header or context to a sink, up to the first unreadable one.
    pub(crate) fn emit_packet(
        &self,
        stream: &Stream<'a>,
        packet: &StreamPacket<'a>,
        scope: Scope,
        sink: &mut impl FieldSink,
    ) {
        let slots = Slots::new(self.class.slots);
        stream.number.iter().for_each(|&(slot, number)| slots.set(slot, number));
        let content = Content { bytes: packet.bytes, end: packet.packet.content };
        let (mut position, mut ignore) = (0, Ignore);
        let roots = [
            (Scope::PacketHeader, &self.class.packet_header),
            (Scope::PacketContext, &self.stream_class(stream).packet_context),
        ];
        for (root, structure) in roots {
            let Some(structure) = structure else { continue };
            let end = if root == scope {
                Walk::new(content, position, &slots, sink).root(structure, position)
            } else {
                // The context may depend on fields of the header.
                Walk::new(content, position, &slots, &mut ignore).root(structure, position)
            };
            let Ok(end) = end else { return };
            position = end;
        }
    }

    /// Creates a reader for packets of a stream.
    pub fn reader(&self, stream: &Stream<'a>) -> Reader<'_, 'a> {
        Reader::new(&self.class, self.stream_class(stream), self.plan(stream))
    }

    /// Finds a field of an event class by its name, or by its path of names, outermost first.
    pub fn find(&self, stream: &Stream<'a>, event: &EventClass, names: &[&str]) -> Option<FieldPath> {
        self.find_in(stream, event, &event.payload, names)
    }

    /// As [`Trace::find`], in the contexts only. Finds a context field that a payload field of the same name hides.
    pub fn find_context(&self, stream: &Stream<'a>, event: &EventClass, names: &[&str]) -> Option<FieldPath> {
        self.find_in(stream, event, &None, names)
    }

    fn find_in(
        &self,
        stream: &Stream<'a>,
        event: &EventClass,
        payload: &Option<Structure>,
        names: &[&str],
    ) -> Option<FieldPath> {
        // Other framings may place events differently from the plan.
        let plan = matches!(self.framing, Framing::Ctf).then(|| self.plan(stream));
        find(&self.class, self.stream_class(stream), plan, event, payload, names)
    }

    /// The first and last time of any packet.
    pub fn span(&self) -> Option<(OriginNanos, OriginNanos)> {
        let packets = self.streams.iter().flat_map(|stream| &stream.packets);
        let times = packets.flat_map(|packet| [packet.begin, packet.end]).flatten();
        times.fold(None, |span, time| match span {
            None => Some((time, time)),
            Some((first, last)) => Some((time.min(first), time.max(last))),
        })
    }
}

/// The identity of a stream. Packets without a stream id belong to the stream of their file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StreamKey {
    class: u64,
    id: Option<u64>,
    file: Option<usize>,
}

impl StreamKey {
    fn new(packet: &Packet, file: usize) -> StreamKey {
        StreamKey {
            class: packet.stream_class,
            id: packet.stream,
            file: packet.stream.is_none().then_some(file),
        }
    }
}

impl<'a> StreamPacket<'a> {
    /// Bytes to read for its events.
    pub fn size(&self) -> u64 {
        match self.pieces.as_slice() {
            [] => self.bytes.len() as u64,
            pieces => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// Sets the begin and end times, once the clock before the packet is known.
    pub(super) fn set_times(&mut self, clock: TimelineClock<'_>) {
        let begin = self.packet.begin.map(|begin| advance(self.clock, begin.value, begin.size));
        let end = self.packet.end.map(|end| advance(begin.unwrap_or(self.clock), end.value, end.size));
        self.begin = begin.map(|cycles| clock.nanos(cycles));
        self.end = end.map(|cycles| clock.nanos(cycles));
    }

    pub(super) fn new(file: usize, bytes: &'a [u8], packet: Packet) -> StreamPacket<'a> {
        let bytes = &bytes[packet.bytes.clone()];
        StreamPacket {
            file,
            bytes,
            packet,
            clock: 0,
            begin: None,
            end: None,
            events_lost: 0,
            packets_lost: 0,
            pieces: Vec::new(),
        }
    }
}

/// Sorts packets of several files and drops duplicates, as in overlapping snapshots. Packets of a single file are
/// already in the tracer's order.
fn in_order(mut packets: Vec<StreamPacket<'_>>) -> Vec<StreamPacket<'_>> {
    let first = packets[0].file;
    if packets.iter().all(|packet| packet.file == first) {
        return packets;
    }
    let value = |field: Option<SizedValue>| field.map(|field| field.value);
    if packets.iter().all(|packet| packet.packet.begin.is_some()) {
        packets.sort_by_key(|packet| (value(packet.packet.begin), value(packet.packet.sequence)));
    }
    packets.dedup_by(|later, earlier| {
        let is_other_file = later.file != earlier.file;
        let (later, earlier) = (&later.packet, &earlier.packet);
        is_other_file
            && later.begin.is_some()
            && later.begin == earlier.begin
            && later.end == earlier.end
            && later.sequence == earlier.sequence
            && later.content == earlier.content
    });
    packets
}

/// Loss counters at the previous packet. A counter that goes backwards, as LTTng's sometimes does, reports no loss until it
/// exceeds its highest value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// The highest number of discarded events.
    most: Option<u64>,
    /// The last sequence number.
    last: Option<u64>,
}

impl Counters {
    /// Computes the losses up to the end of the next packet.
    pub(super) fn count(&mut self, packet: &mut StreamPacket<'_>) {
        if let Some(SizedValue { value: count, size }) = packet.packet.discarded {
            packet.events_lost = ahead(self.most.unwrap_or(0), count, size);
            if self.most.is_none() || packet.events_lost > 0 {
                self.most = Some(count);
            }
        }
        if let Some(SizedValue { value: number, size }) = packet.packet.sequence {
            packet.packets_lost = self.last.map_or(0, |last| ahead(last, number, size).saturating_sub(1));
            self.last = Some(number);
        }
    }
}

/// Counters below this size never go backwards. They wrap after a few hundred events or packets, so a step over half
/// of their range does not mean a step back. Only LTTng's counters, which have 32 or 64 bits, are known to go back.
const WIDE: u32 = 32;

/// The increase of a counter of `size` bits; 0 if it went backwards.
fn ahead(from: u64, to: u64, size: u32) -> u64 {
    let mask = u64::MAX >> (64 - size);
    let step = to.wrapping_sub(from) & mask;
    if size >= WIDE && step > mask / 2 { 0 } else { step }
}

fn packet_loss(file: &DataFile<'_>, trouble: PacketTrouble) -> Loss {
    Loss {
        stream: file.name.clone(),
        cause: if trouble.cut_short { Cause::CutShort } else { Cause::Corrupt },
        bytes: trouble.bytes.start as u64..trouble.bytes.end as u64,
        time: None,
        count: 1,
        detail: trouble.reason,
    }
}
