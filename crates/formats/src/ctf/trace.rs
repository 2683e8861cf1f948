//! A trace: its streams, put together from files, and the packets of each in order.

use std::{collections::BTreeMap, ops::Range};

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
    packet::{FilePackets, Packet, PacketTrouble},
    plan::{FieldPath, Plans, StreamPlan, find},
    read::Walk,
    schema::{EventClass, Scope, Slot, StreamClass, Structure, TraceClass},
    steps::{Content, Slots},
};

/// A file of a trace's folder.
#[derive(Clone, Debug)]
pub struct DataFile<'a> {
    /// Its path, for people.
    pub name: String,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// LTTng's index of it, where there is one.
    pub index: Option<&'a [u8]>,
}

/// A trace whose packets are known, and whose events can be read.
#[derive(Debug)]
pub struct Trace<'a> {
    /// Its name for people: the folder that it came from.
    pub name: String,
    /// Its metadata.
    pub class: TraceClass,
    plans: Plans,
    /// Its streams, in order of class and id.
    pub streams: Vec<Stream<'a>>,
    /// The files that it was read from.
    pub files: Vec<DataFile<'a>>,
    /// What of its files can't be read.
    pub loss: Vec<Loss>,
    /// What was made of some of its files: their names, and a sentence.
    pub notes: Vec<(String, String)>,
    /// Which clock its times are of, where the metadata does not say that.
    pub clock_identity: Option<ClockIdentity>,
    /// How its events are found.
    pub(super) framing: Framing,
    /// From its clock to the timeline.
    map: TimeMap,
}

/// A stream of events from one source.
#[derive(Clone, Debug)]
pub struct Stream<'a> {
    /// The id of its class.
    pub class: u64,
    /// Its own id, where it has one.
    pub id: Option<u64>,
    /// Its name for people: that of its first file.
    pub name: String,
    /// Its packets, in order.
    pub packets: Vec<StreamPacket<'a>>,
    /// Whether packets only know their beginning from the events before them, so that each had to be read.
    pub had_pre_pass: bool,
    /// A number that its events have in common, and where it is kept.
    pub number: Option<(Slot, u64)>,
}

/// A packet in its stream.
#[derive(Clone, Debug)]
pub struct StreamPacket<'a> {
    /// Index of its file.
    pub file: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What it says of itself.
    pub packet: Packet,
    /// The clock before it.
    pub clock: u64,
    /// When it begins.
    pub begin: Option<OriginNanos>,
    /// When it ends.
    pub end: Option<OriginNanos>,
    /// Events that were discarded between the end of the packet before it, and its own.
    pub events_lost: u64,
    /// Packets that are missing before it.
    pub packets_lost: u64,
    /// Of perf: where in `bytes` records of these times are; empty where they fill them.
    pub pieces: Vec<Range<usize>>,
}

impl<'a> Trace<'a> {
    /// A trace whose streams somebody else puts together.
    pub fn without_streams(name: String, class: TraceClass, files: Vec<DataFile<'a>>) -> Trace<'a> {
        Trace::framed(name, class, Vec::new(), files, Framing::Ctf)
    }

    /// Puts a trace together from its metadata and all of its other files.
    pub fn new(name: String, class: TraceClass, files: Vec<DataFile<'a>>) -> Trace<'a> {
        let packets = files.iter().map(|file| FilePackets::read(&class, file, &|_| ())).collect();
        let plans = Plans::new(&class);
        Trace::of_packets(name, (class, plans), files, packets)
    }

    /// The same where the packets of each file are known, and the plans of its metadata are compiled.
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
        for (index, (file, found)) in trace.files.iter().zip(packets).enumerate() {
            for packet in found.packets {
                let key = StreamKey::new(&packet, index);
                streams.entry(key).or_default().push(StreamPacket::new(index, file.bytes, packet));
            }
            trace.loss.extend(found.troubles.into_iter().map(|trouble| packet_loss(file, trouble)));
            trace.notes.extend(found.note.map(|note| (file.name.clone(), note)));
        }
        let fixups = Fixups::of(&trace.class);
        for (key, packets) in streams {
            let stream = trace.stream(&key, packets, fixups);
            trace.streams.push(stream);
        }
        trace
    }

    /// A trace of another format whose classes, streams and packets are known.
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
        let spans = self.clocks(&mut stream);
        self.times(&mut stream, &spans);
        fixups.apply(self, &mut stream);
        let mut counters = Counters::default();
        stream.packets.iter_mut().for_each(|packet| counters.count(packet));
        stream
    }

    /// Sets the clock before each packet. Where packets do not say all of it, their events are stepped over: the
    /// lowest and the highest cycle of those of each packet.
    fn clocks(&self, stream: &mut Stream<'a>) -> Vec<Option<(u64, u64)>> {
        let class = self.stream_class(stream);
        let full = |packet: &StreamPacket<'_>| packet.packet.begin.is_some_and(|(_, size)| size >= 64);
        if class.clock.is_none() || stream.packets.iter().all(full) {
            return Vec::new();
        }
        stream.had_pre_pass = true;
        let mut reader = self.reader(stream);
        let (mut clock, mut spans) = (0, Vec::with_capacity(stream.packets.len()));
        for packet in &mut stream.packets {
            packet.clock = clock;
            reader.open(packet.bytes, &packet.packet, clock);
            let mut span = None;
            while let Ok(Some(parts)) = reader.next_event() {
                span = parts.cycles.map(|cycles| match span {
                    Some((first, last)) => (cycles.min(first), cycles.max(last)),
                    None => (cycles, cycles),
                });
            }
            clock = reader.clock();
            spans.push(span);
        }
        spans
    }

    /// Sets when packets begin and end: as they say, or as their events do.
    fn times(&self, stream: &mut Stream<'a>, spans: &[Option<(u64, u64)>]) {
        let Some(clock) = self.clock(stream) else { return };
        stream.packets.iter_mut().for_each(|packet| packet.set_times(clock));
        for (packet, span) in stream.packets.iter_mut().zip(spans) {
            let Some((first, last)) = *span else { continue };
            packet.begin = packet.begin.or_else(|| Some(clock.nanos(first)));
            packet.end = packet.end.or_else(|| Some(clock.nanos(last)));
        }
    }

    /// What it was read from.
    pub fn format(&self) -> &'static str {
        match self.framing {
            Framing::Ctf if self.class.version == 2 => "CTF 2",
            Framing::Ctf => "CTF 1.8",
            Framing::Pages(_) => "trace.dat",
            Framing::Samples(_) => "perf.data",
        }
    }

    /// The class of a stream.
    pub fn stream_class(&self, stream: &Stream<'a>) -> &StreamClass {
        self.class.streams.get(&stream.class).expect("packets of other classes are no packets of this trace")
    }

    /// The plan that its events are read by.
    pub fn plan(&self, stream: &Stream<'a>) -> &StreamPlan {
        self.plans.get(stream.class)
    }

    /// The clock of a stream, on the timeline.
    pub fn clock(&self, stream: &Stream<'a>) -> Option<TimelineClock<'_>> {
        let class = self.class.clocks.get(self.stream_class(stream).clock?)?;
        Some(TimelineClock::new(class.cycles, &self.map))
    }

    /// How its clock's own times become those of the timeline.
    pub fn time_map(&self) -> &TimeMap {
        &self.map
    }

    /// Puts it on a timeline, once: its times are its clock's own until then.
    pub fn place(&mut self, map: TimeMap) {
        let packets = self.streams.iter_mut().flat_map(|stream| &mut stream.packets);
        for time in packets.flat_map(|packet| [&mut packet.begin, &mut packet.end]).flatten() {
            *time = map.estimate(*time);
        }
        self.map = map;
    }

    /// Tells a sink the fields of a packet's header or context; those before one that can't be read.
    pub(super) fn tell_packet(
        &self,
        stream: &Stream<'a>,
        packet: &StreamPacket<'a>,
        scope: Scope,
        sink: &mut impl FieldSink,
    ) {
        let slots = Slots::new(self.class.slots);
        stream.number.iter().for_each(|&(slot, number)| slots.set(slot, number));
        let content = Content { bytes: packet.bytes, end: packet.packet.content };
        let (mut at, mut ignore) = (0, Ignore);
        let roots = [
            (Scope::PacketHeader, &self.class.packet_header),
            (Scope::PacketContext, &self.stream_class(stream).packet_context),
        ];
        for (root, structure) in roots {
            let Some(structure) = structure else { continue };
            let end = match root == scope {
                true => Walk::new(content, at, &slots, sink).root(structure, at),
                // What the context depends on may lie in the header.
                false => Walk::new(content, at, &slots, &mut ignore).root(structure, at),
            };
            let Ok(end) = end else { return };
            at = end;
        }
    }

    /// Something that reads packets of a stream.
    pub fn reader(&self, stream: &Stream<'a>) -> Reader<'_, 'a> {
        Reader::new(&self.class, self.stream_class(stream), self.plan(stream))
    }

    /// Looks for a field of events of a class by its name, or by its names from the outside in.
    pub fn find(&self, stream: &Stream<'a>, event: &EventClass, names: &[&str]) -> Option<FieldPath> {
        self.find_in(stream, event, &event.payload, names)
    }

    /// The same in its contexts alone: where the payload has a field of the same name, it stays hidden behind that.
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
        // What else finds events may place them otherwise than the plan.
        let plan = matches!(self.framing, Framing::Ctf).then(|| self.plan(stream));
        find(&self.class, self.stream_class(stream), plan, event, payload, names)
    }

    /// First and last time of packets, as far as they tell.
    pub fn span(&self) -> Option<(OriginNanos, OriginNanos)> {
        let packets = self.streams.iter().flat_map(|stream| &stream.packets);
        let times = packets.flat_map(|packet| [packet.begin, packet.end]).flatten();
        times.fold(None, |span, time| match span {
            None => Some((time, time)),
            Some((first, last)) => Some((time.min(first), time.max(last))),
        })
    }
}

/// What makes packets parts of one stream. Without an id, the file does.
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
    /// Bytes that are read for its events.
    pub fn size(&self) -> u64 {
        match self.pieces.as_slice() {
            [] => self.bytes.len() as u64,
            pieces => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// When it begins and ends, once the clock before it is known.
    pub(super) fn set_times(&mut self, clock: TimelineClock<'_>) {
        let begin = self.packet.begin.map(|(value, size)| advance(self.clock, value, size));
        let end = self.packet.end.map(|(value, size)| advance(begin.unwrap_or(self.clock), value, size));
        (self.begin, self.end) =
            (begin.map(|cycles| clock.nanos(cycles)), end.map(|cycles| clock.nanos(cycles)));
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

/// Puts packets of several files in order, and drops those that are there twice, as in overlapping snapshots.
/// Those of one file are in the order in which the tracer wrote them.
fn in_order(mut packets: Vec<StreamPacket<'_>>) -> Vec<StreamPacket<'_>> {
    let first = packets[0].file;
    if packets.iter().all(|packet| packet.file == first) {
        return packets;
    }
    let value = |of: Option<(u64, u32)>| of.map(|(value, _)| value);
    if packets.iter().all(|packet| packet.packet.begin.is_some()) {
        packets.sort_by_key(|packet| (value(packet.packet.begin), value(packet.packet.sequence)));
    }
    packets.dedup_by(|later, earlier| {
        let same = |of: fn(&Packet) -> Option<(u64, u32)>| of(&later.packet) == of(&earlier.packet);
        later.file != earlier.file
            && later.packet.begin.is_some()
            && same(|packet| packet.begin)
            && same(|packet| packet.end)
            && same(|packet| packet.sequence)
            && later.packet.content == earlier.packet.content
    });
    packets
}

/// Counters of what a tracer lost, as they stood at the packet before. One that goes backwards, as LTTng's
/// sometimes does, tells of no loss, and neither does its way back to where it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    most: Option<u64>,
    last: Option<u64>,
}

impl Counters {
    /// Counts what was lost up to the end of the next packet.
    pub(super) fn count(&mut self, packet: &mut StreamPacket<'_>) {
        if let Some((count, size)) = packet.packet.discarded {
            packet.events_lost = ahead(self.most.unwrap_or(0), count, size);
            if self.most.is_none() || packet.events_lost > 0 {
                self.most = Some(count);
            }
        }
        if let Some((number, size)) = packet.packet.sequence {
            packet.packets_lost = self.last.map_or(0, |last| ahead(last, number, size).saturating_sub(1));
            self.last = Some(number);
        }
    }
}

/// Counters of fewer bits only go forward. They wrap after a few hundred events or packets, so that a step over half
/// of their range is no sign of one that goes back; only LTTng's are known to do that, which have 32 or 64 bits.
const WIDE: u32 = 32;

/// How far a counter of so many bits went from one value to the next; 0 where it went back.
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
