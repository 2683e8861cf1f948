//! Converts a trace.dat to traces, one per buffer, with one stream per CPU.

use std::{collections::BTreeMap, str};

use hodo_clock::{CycleClock, OriginNanos};
use hodo_model::{Cause, Loss, event::Meaning};

use super::{
    cursor::Cursor,
    description::{Description, FormatFile},
    file::{Buffer, Cpu, File},
    format::EventFormat,
    names::Names,
    page::{Layout, Missed, Page, Records},
    reader::{Pages, Ticks},
    schema::{AddressNames, CPU_SLOT, FieldSet, Machine, SLOTS, event_class, member, named, structure},
};
use crate::events::{
    DataFile, Packet, Stream, StreamPacket, Trace,
    foreign::ForeignField,
    framing::Framing,
    schema::{
        ByteOrder, ClockClass, Environment, EventClass, FieldClass, StreamClass, Structure, TraceClass,
    },
};
use crate::{ClockIdentity, Input, TscScale, error::Error};

/// Pages per packet.
const PAGES: usize = 16;
/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;

/// Reads the description and all page headers, and returns a trace for each buffer. Damage is a loss.
///
/// # Errors
/// A file of another kind or for other machines, or a description that is cut short or invalid.
pub fn read<'a>(input: &Input<'a>) -> Result<Vec<Trace<'a>>, Error> {
    let file = File::open(input)?;
    let classes = events(&file.description, file.threads, file.order);
    let is_empty =
        |buffer: &&Buffer<'_>| buffer.cpus.iter().all(|cpu| cpu.runs.is_empty() && cpu.missing.is_none());
    let mut buffers: Vec<_> = file.buffers.iter().filter(|buffer| !is_empty(buffer)).collect();
    if buffers.is_empty() {
        buffers.extend(file.buffers.first());
    }
    Ok(buffers.into_iter().map(|buffer| trace(input, &file, buffer, classes.clone())).collect())
}

/// The classes of all events, in one stream class.
fn events(description: &Description<'_>, threads: &[u8], order: ByteOrder) -> StreamClass {
    let long = Layout::new(description.header_page, 0, order).long_size as u32;
    let machine = Machine { long, order };
    let address_names =
        AddressNames { symbols: Names::symbols(description.symbols), texts: Names::texts(description.texts) };
    let mut events: BTreeMap<u64, EventClass> = BTreeMap::new();
    let (mut common, threads) = (None, Names::threads(threads));
    for FormatFile { system, text } in &description.formats {
        let Some(format) = EventFormat::parse(text) else { continue };
        common.get_or_insert_with(|| common_fields(&format, machine, &threads));
        events.entry(format.id).or_insert_with(|| event_class(system, &format, &address_names, machine));
    }
    let cpu = ForeignField::Known { slot: CPU_SLOT, meaning: Meaning { size: 32, ..Meaning::default() } };
    let cpu = member("cpu_id", FieldClass::ForeignField(Box::new(cpu)));
    StreamClass {
        id: 0,
        clock: Some(0),
        packet_context: Some(Structure { members: vec![cpu], minimum_alignment: 8 }),
        event_header: None,
        common_context: common,
        events: events.into_values().collect(),
    }
}

/// The common fields, preceded by the name of the thread in `common_pid`.
fn common_fields(format: &EventFormat<'_>, machine: Machine, threads: &Names) -> Structure {
    let mut common = structure(format, FieldSet::Common, machine);
    let pid = format.fields.iter().find(|field| field.name == "common_pid");
    // First, because the offset of `common_pid` counts from where the name is placed.
    common.members.splice(0..0, pid.and_then(|pid| named("comm", pid, threads, machine)));
    common
}

fn trace<'a>(input: &Input<'a>, file: &File<'a>, buffer: &Buffer<'a>, events: StreamClass) -> Trace<'a> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let name = if buffer.name.is_empty() { "ftrace".to_owned() } else { text(buffer.name) };
    let clock = clock(file, buffer);
    let layout = Layout::new(file.description.header_page, (buffer.page_size as usize).max(1), file.order);
    let ticks = Ticks { tsc: file.options.tsc.filter(|_| clock.name == "x86-tsc") };
    let pages = Pages::new(layout, &events, ticks, clock.cycles);
    let scale = ticks.tsc.map(|tsc| TscScale {
        multiplier: tsc.multiplier.into(),
        shift: tsc.shift.into(),
        // It wraps: an offset in the upper half is negative.
        zero: tsc.offset.cast_signed().into(),
    });
    let identity = ClockIdentity::of_ftrace(&clock, file.options.system.map(text).as_deref(), scale);
    let mut environment = Vec::new();
    for (name, value) in [("system", file.options.system), ("recorder", file.options.recorder)] {
        environment.extend(value.map(|value| (name.to_owned(), Environment::Text(text(value)))));
    }
    if file.options.is_guest {
        let what = "of a guest; not shifted to its host's".to_owned();
        environment.push(("times".to_owned(), Environment::Text(what)));
    }
    let class = TraceClass {
        environment,
        clocks: vec![clock],
        streams: BTreeMap::from([(0, events)]),
        slots: SLOTS,
        state_codes: file.description.state_codes(),
        ..TraceClass::default()
    };
    let mut loss = Vec::new();
    let streams = buffer.cpus.iter().map(|cpu| stream(cpu, &pages, &mut loss)).collect();
    let files = vec![DataFile { name: name.clone(), bytes: input.bytes, index: None }];
    let mut trace = Trace::framed(name, class, streams, files, Framing::Pages(pages));
    trace.loss = loss;
    trace.clock_identity = Some(if file.options.is_guest { ClockIdentity::default() } else { identity });
    trace
}

/// The clock of a buffer: nanoseconds, except for `counter` and `uptime`, whose unit is unknown.
fn clock(file: &File<'_>, buffer: &Buffer<'_>) -> ClockClass {
    let names = String::from_utf8_lossy(buffer.clock).into_owned();
    let chosen = names.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    let name = chosen.unwrap_or(names.trim()).to_owned();
    let microseconds = file.options.date.and_then(number).unwrap_or(0);
    let offset = file.options.offset.and_then(number).unwrap_or(0) + microseconds * 1000;
    let cycles = CycleClock::new(SECOND, 0, offset);
    let cycles = cycles.or(CycleClock::new(SECOND, 0, 0)).expect("a frequency that is not zero");
    let description = "the kernel's trace_clock".to_owned();
    ClockClass { name, description, cycles, unix: file.options.date.is_some(), uid: None }
}

/// Parses a decimal or hexadecimal number.
fn number(text: &[u8]) -> Option<i128> {
    let text = str::from_utf8(text).ok()?.trim();
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let number: i128 = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?.into(),
        None => digits.parse::<u64>().ok()?.into(),
    };
    Some(if negative { -number } else { number })
}

/// The stream of a CPU, in packets of several pages.
fn stream<'a>(cpu: &Cpu<'a>, pages: &Pages, loss: &mut Vec<Loss>) -> Stream<'a> {
    let name = format!("cpu {}", cpu.number);
    let mut packets = Vec::new();
    for run in &cpu.runs {
        let size = PAGES.saturating_mul(pages.layout.page_size).max(1);
        for (index, bytes) in run.bytes.chunks(size).enumerate() {
            let start = run.offset as usize + index * size;
            packets.push(packet(cpu.number, start, bytes, pages, |detail| {
                loss.push(lost(&name, Cause::Truncated, 0..0, detail));
            }));
        }
    }
    for index in 1..packets.len() {
        let (begin, before) = (packets[index].begin, packets[index - 1].begin);
        packets[index - 1].end = begin.filter(|_| begin >= before);
    }
    if let Some(last) = packets.last_mut() {
        last.end = last_time(last.bytes, pages).or(last.begin);
    }
    if let Some((bytes, reason)) = &cpu.missing {
        loss.push(lost(&name, Cause::CutShort, bytes.clone(), reason.clone()));
    }
    let number = Some((CPU_SLOT, cpu.number.into()));
    Stream { class: 0, id: Some(cpu.number.into()), name, packets, had_pre_pass: false, number }
}

fn lost(stream: &str, cause: Cause, bytes: std::ops::Range<u64>, detail: String) -> Loss {
    Loss { stream: stream.to_owned(), cause, bytes, time: None, count: 1, detail }
}

/// The packet with these pages, which start at this offset of the file.
fn packet<'a>(
    cpu: u32,
    start: usize,
    bytes: &'a [u8],
    pages: &Pages,
    mut lose: impl FnMut(String),
) -> StreamPacket<'a> {
    let begin = Cursor::new(bytes, 0, pages.layout.order).u64().ok();
    let mut events_lost = 0u64;
    for page in bytes.chunks(pages.layout.page_size) {
        match Page::read(page, &pages.layout).ok().and_then(|page| page.lost) {
            Some(Missed::Count(count)) => events_lost = events_lost.saturating_add(count),
            Some(Missed::Some) => {
                lose("events were lost before a page; their number is unknown".to_owned());
            }
            None => {}
        }
    }
    StreamPacket {
        file: 0,
        bytes,
        packet: Packet::framed(start..start + bytes.len(), Some(cpu.into())),
        clock: 0,
        begin: begin.map(|time| pages.time(time)),
        end: None,
        events_lost,
        packets_lost: 0,
        pieces: Vec::new(),
    }
}

/// The time of the last record in some pages.
fn last_time(bytes: &[u8], pages: &Pages) -> Option<OriginNanos> {
    let bytes = bytes.chunks(pages.layout.page_size).rev().find_map(|bytes| {
        let page = Page::read(bytes, &pages.layout).ok().filter(|page| page.end > page.data)?;
        Some((bytes, page))
    });
    let (bytes, page) = bytes?;
    let mut records = Records::new(&page);
    let mut last = None;
    while let Ok(Some(record)) = records.next(bytes) {
        last = Some(pages.time(record.time));
    }
    last
}
