//! Makes traces of an index, one per machine, with one stream per CPU.

use std::{collections::BTreeMap, sync::Arc};

use hodo_clock::CycleClock;
use hodo_model::{Cause, Loss};

use super::{
    index::{CpuBundles, Found, Index, Machine},
    packet,
    reader::{Before, Bundles},
    schema::{self, Called, SLOTS, slot},
};
use crate::{
    ClockIdentity, ClockKind, Input,
    error::{Error, ErrorKind},
    events::{
        DataFile, Packet, Stream, StreamPacket, Trace,
        framing::Framing,
        schema::{ClockClass, Environment, TraceClass},
    },
    ftrace::Names,
};

/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;
/// `FtraceClock`: the clock that counts from boot.
const BOOT: u64 = 0;
/// The kernel's number of the clock that counts from boot.
const CLOCK_BOOTTIME: u32 = 7;
/// Names of packets that are not read.
const UNREAD: &[(u32, &str)] = &[
    (9, "process_stats"),
    (7, "sys_stats"),
    (11, "track_event"),
    (37, "profile_packet"),
    (38, "battery"),
    (39, "android_log"),
    (40, "power_rails"),
    (47, "packages_list"),
    (52, "gpu_counter_event"),
    (53, "gpu_render_stage_event"),
    (57, "graphics_frame_event"),
    (60, "track_descriptor"),
    (66, "perf_sample"),
    (67, "cpu_info"),
    (84, "statsd_atom"),
];
/// Packets about the tracing itself: the configuration, statistics, marks and triggers.
const OF_TRACING: &[u32] =
    &[33, packet::FTRACE_STATS, packet::TRACE_STATS, 36, 46, 69, 89, 113, 124, 126, 138];

/// Indexes the packets, and returns a trace for each machine with ftrace events. Damage is a loss.
///
/// # Errors
/// A trace without ftrace events: what it has instead.
pub fn read<'a>(input: &Input<'a>) -> Result<Vec<Trace<'a>>, Error> {
    let index = Index::of(input);
    let has_events = |machine: &Machine<'_>| machine.cpus.values().any(|cpu| !cpu.bundles.is_empty());
    let note = unread(&index.unread);
    if !index.machines.values().any(has_events) && index.loss.is_empty() {
        let others = note.map_or(String::new(), |note| format!("; {note}"));
        let reason = format!("none of its {} packets has ftrace events{others}", index.packets);
        return Err(Error { at: 0, kind: ErrorKind::Text { what: "Perfetto trace", reason } });
    }
    let machines = index.machines.into_iter().filter(|(_, machine)| has_events(machine));
    let mut traces: Vec<Trace<'a>> =
        machines.map(|(number, machine)| trace(input, number, machine)).collect();
    if traces.is_empty() {
        traces.push(trace(input, 0, Machine::default()));
    }
    traces[0].loss.splice(0..0, index.loss);
    let lost = lost(index.lost);
    traces[0].notes.extend(note.into_iter().chain(lost).map(|note| ("packets".to_owned(), note)));
    Ok(traces)
}

/// A sentence about packets that are not read.
fn unread(packets: &BTreeMap<u32, u64>) -> Option<String> {
    let shown =
        packets.iter().filter(|(number, _)| !OF_TRACING.contains(number)).map(|(number, count)| match UNREAD
            .iter()
            .find(|(known, _)| known == number)
        {
            Some((_, name)) => format!("{count} of {name}"),
            None => format!("{count} of field {number}"),
        });
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty())
        .then(|| format!("only ftrace's packets are read, and these are not: {}", shown.join(", ")))
}

/// A sentence about what Perfetto's own buffers lost, whose position is unknown.
fn lost((chunks, packets): (u64, u64)) -> Option<String> {
    let sentence = format!(
        "Perfetto's buffers overwrote {chunks} chunks of packets, and {packets} packets were lost; \
         what is missing is marked where packets say so"
    );
    (chunks > 0 || packets > 0).then_some(sentence)
}

fn trace<'a>(input: &Input<'a>, number: u32, mut machine: Machine<'a>) -> Trace<'a> {
    let (clock, identity) = clock(&machine);
    let called = called(&machine);
    let (stream_class, classes) = schema::classes(&machine.survey, &called);
    let mut environment = std::mem::take(&mut machine.environment);
    let hostname = environment.iter().find_map(|(name, value)| match value {
        Environment::Text(text) if name == "hostname" => Some(text.clone()),
        _ => None,
    });
    if number != 0 {
        environment.push(("machine_id".to_owned(), Environment::Integer(number.into())));
    }
    let notes = notes(&machine);
    let mut loss = std::mem::take(&mut machine.loss);
    let (mut before, cycles) = (Vec::new(), clock.cycles);
    let with_bundles = machine.cpus.iter().filter(|(_, cpu)| !cpu.bundles.is_empty());
    let sequences: Vec<(u32, u32)> = with_bundles.map(|(key, _)| *key).collect();
    loss.extend(machine.cpus.iter().filter_map(|((cpu, _), found)| unplaced(*cpu, found)));
    let streams = machine.cpus.into_iter().filter(|(_, cpu)| !cpu.bundles.is_empty()).map(
        |((cpu, sequence), found)| {
            let is_only = sequences.iter().filter(|(known, _)| *known == cpu).count() == 1;
            let name =
                if is_only { format!("cpu {cpu}") } else { format!("cpu {cpu} of sequence {sequence}") };
            stream((cpu, name), found, cycles, (&mut before, &mut loss))
        },
    );
    let streams: Vec<Stream<'a>> = streams.collect();
    before.sort_by_key(|before| before.position);
    let class = TraceClass {
        environment,
        clocks: vec![clock],
        streams: BTreeMap::from([(0, stream_class)]),
        slots: SLOTS,
        ..TraceClass::default()
    };
    let name = if number == 0 { "ftrace".to_owned() } else { format!("machine {number}") };
    // Compressed packets are not in the file as they are read, so nothing of it belongs to them.
    let files = [("packets", input.bytes), ("compressed packets", &[])];
    let files = files.map(|(name, bytes)| DataFile { name: name.to_owned(), bytes, index: None }).into();
    let bundles = Bundles { before, classes, names: machine.names };
    let mut trace = Trace::framed(name, class, streams, files, Framing::Bundles(bundles));
    trace.loss = loss;
    trace.notes = notes.into_iter().map(|note| ("events".to_owned(), note)).collect();
    trace.clock_identity = Some(ClockIdentity { host: hostname, ..identity });
    trace
}

/// What is not as it seems, for people.
fn notes(machine: &Machine<'_>) -> Vec<String> {
    let unknown = machine.survey.unknown().into_iter().map(|(number, count)| {
        format!(
            "events of a type that is not known, field {number}, are shown as `unknown_{number}`: {count}"
        )
    });
    let mut notes: Vec<String> = unknown.collect();
    if machine.clocks.len() > 1 {
        notes.push("bundles are of several clocks; their times are shown as if they were of one".to_owned());
    }
    notes
}

/// The names of numbers.
fn called(machine: &Machine<'_>) -> Called {
    let mut threads = machine.switched.clone();
    threads.extend(machine.threads.iter().map(|(&id, name)| (id, name.clone())));
    let numbered = |number: i64, name: &[u8]| (number as u64, name.to_owned());
    Called {
        threads: Names::numbered(threads.iter().map(|(&id, name)| numbered(id, name))),
        processes: Arc::new(machine.processes.iter().map(|(&thread, &process)| (thread, process)).collect()),
        rows: Names::numbered(machine.names.iter().map(|(name, &index)| numbered(index, name))),
        symbols: Names::numbered(machine.symbols.iter().map(|(&id, name)| (id, name.clone()))),
    }
}

/// The clock of a machine's bundles: that which counts from boot, or one that a bundle relates to it.
fn clock(machine: &Machine<'_>) -> (ClockClass, ClockIdentity) {
    let (&number, &instant) = machine.clocks.first_key_value().unwrap_or((&BOOT, &None));
    let offset = instant.filter(|_| number != BOOT).map(|(own, boot)| i128::from(boot) - i128::from(own));
    let name = match number {
        _ if number == BOOT || offset.is_some() => "boot",
        2 => "global",
        3 => "local",
        4 => "mono_raw",
        _ => "",
    };
    let kind = match name {
        "boot" => ClockKind::Posix(CLOCK_BOOTTIME),
        "mono_raw" => ClockKind::Posix(4),
        "" => ClockKind::Unknown,
        name => ClockKind::Ftrace(name.to_owned()),
    };
    let plain = || CycleClock::new(SECOND, 0, 0).expect("a frequency that is not zero");
    let cycles = CycleClock::new(SECOND, 0, offset.unwrap_or(0)).unwrap_or_else(plain);
    let unix_zero = machine.unix_zero.filter(|_| name == "boot");
    let description = "the clock of ftrace".to_owned();
    let class = ClockClass { name: name.to_owned(), description, cycles, unix: false, uid: None };
    // Times are of the boot clock itself, whose zero is shown as zero.
    (class, ClockIdentity { kind, unix_zero, ..ClockIdentity::default() })
}

/// The loss of a CPU without bundles in the sequence of its statistics.
fn unplaced(cpu: u32, found: &CpuBundles<'_>) -> Option<Loss> {
    let count = found.lost.1.saturating_sub(found.lost.0);
    let detail = "the kernel counted lost events of this CPU, of which there are no events".to_owned();
    let loss = Loss {
        stream: format!("cpu {cpu}"),
        cause: Cause::Truncated,
        bytes: 0..0,
        time: None,
        count,
        detail,
    };
    (found.bundles.is_empty() && count > 0).then_some(loss)
}

/// The stream of a CPU, a packet for each bundle.
fn stream<'a>(
    (cpu, name): (u32, String),
    mut found: CpuBundles<'a>,
    cycles: CycleClock,
    (all_before, loss): (&mut Vec<Before>, &mut Vec<Loss>),
) -> Stream<'a> {
    let mut lose = |cause, count, detail: &str| {
        let (stream, detail) = (name.clone(), detail.to_owned());
        loss.push(Loss { stream, cause, bytes: 0..0, time: None, count, detail });
    };
    let lost = found.lost.1.saturating_sub(found.lost.0);
    let marked = found.bundles.iter().filter(|found| found.before.lost.is_some()).count() as u64;
    match found.bundles.iter_mut().rev().find(|found| found.before.lost.is_some()) {
        // The kernel counts per CPU only; the last mark is the first time by which all of them were lost.
        Some(last) => last.before.lost = Some(lost),
        None => found.bundles.iter_mut().last().into_iter().for_each(|last| last.before.lost_after = lost),
    }
    if !found.has_statistics && marked > 0 {
        lose(Cause::Truncated, marked, "events were lost before a bundle; their number is unknown");
    } else if found.has_statistics && marked == 0 && lost > 0 {
        lose(Cause::Truncated, lost, "the kernel counted lost events, but no bundle shows where they were");
    }
    let gaps = found.bundles.iter().filter(|found| found.before.is_after_gap).count() as u64;
    if gaps > 0 {
        lose(Cause::Truncated, gaps, "packets were lost before a bundle; their number is unknown");
    }
    let mut packets: Vec<StreamPacket<'a>> = Vec::with_capacity(found.bundles.len());
    for Found { bytes, before, times } in found.bundles {
        let latest = packets.last().and_then(|before| before.end);
        let time = |time: u64| Some(cycles.nanos(time));
        let (begin, end) = times.map_or((latest, latest), |(first, last)| (time(first), time(last)));
        packets.push(StreamPacket {
            file: before.position.0,
            bytes,
            packet: Packet::framed(before.position.1..before.position.1 + bytes.len(), Some(cpu.into())),
            clock: 0,
            begin,
            end,
            events_lost: before.lost.unwrap_or(0).saturating_add(before.lost_after),
            packets_lost: before.is_after_gap.into(),
            pieces: Vec::new(),
        });
        all_before.push(before);
    }
    let number = Some((slot::CPU, cpu.into()));
    Stream { class: 0, id: Some(cpu.into()), name, packets, had_pre_pass: false, number }
}
