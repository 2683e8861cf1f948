//! Makes traces of an index, one per machine, with one stream per CPU.

use std::{collections::BTreeMap, sync::Arc};

use hodo_clock::CycleClock;
use hodo_model::{Cause, Loss};

use super::{
    index::{BufferLoss, CpuBundles, CpuKey, Index, IndexedBundle, Machine},
    packet,
    reader::{Bundles, Context},
    schema::{self, NumberNames, SLOTS, slot},
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
/// The kernel's numbers of clocks.
const CLOCK_MONOTONIC_RAW: u32 = 4;
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
const ABOUT_TRACING: &[u32] = &[
    packet::FTRACE_STATS,
    packet::TRACE_STATS,
    packet::SYNCHRONIZATION_MARKER,
    33,  // trace_config
    46,  // trigger
    69,  // service_event
    89,  // trace_uuid
    113, // clone_snapshot_trigger
    124, // trace_provenance
    126, // trace_attributes
    138, // recovered_trace_info
];

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
    let mut counts = Vec::new();
    for (number, count) in packets.iter().filter(|(number, _)| !ABOUT_TRACING.contains(number)) {
        counts.push(match UNREAD.iter().find(|(known, _)| known == number) {
            Some((_, name)) => format!("{count} of {name}"),
            None => format!("{count} of field {number}"),
        });
    }
    (!counts.is_empty())
        .then(|| format!("only ftrace's packets are read, and these are not: {}", counts.join(", ")))
}

/// A sentence about what Perfetto's own buffers lost, whose position is unknown.
fn lost(BufferLoss { chunks, packets }: BufferLoss) -> Option<String> {
    let sentence = format!(
        "Perfetto's buffers overwrote {chunks} chunks of packets, and {packets} packets were lost; \
         what is missing is marked where packets say so"
    );
    (chunks > 0 || packets > 0).then_some(sentence)
}

fn trace<'a>(input: &Input<'a>, number: u32, mut machine: Machine<'a>) -> Trace<'a> {
    let (clock, identity) = clock(&machine);
    let names = number_names(&machine);
    let (stream_class, classes) = schema::classes(&machine.survey, &names);
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
    loss.extend(machine.cpus.iter().filter_map(|(key, cpu)| loss_without_bundles(key.cpu, cpu)));
    machine.cpus.retain(|_, cpu| !cpu.bundles.is_empty());
    let keys: Vec<CpuKey> = machine.cpus.keys().copied().collect();
    let (mut streams, mut contexts) = (Vec::new(), Vec::new());
    for (CpuKey { cpu, sequence }, mut bundles) in machine.cpus {
        let is_only = keys.iter().filter(|key| key.cpu == cpu).count() == 1;
        let name = if is_only { format!("cpu {cpu}") } else { format!("cpu {cpu} of sequence {sequence}") };
        loss.extend(losses(&name, &mut bundles));
        contexts.extend(bundles.bundles.iter().map(|bundle| bundle.context.clone()));
        streams.push(stream(cpu, name, bundles, clock.cycles));
    }
    contexts.sort_by_key(|context| context.position);
    let class = TraceClass {
        environment,
        clocks: vec![clock],
        streams: BTreeMap::from([(0, stream_class)]),
        slots: SLOTS,
        ..TraceClass::default()
    };
    let name = if number == 0 { "ftrace".to_owned() } else { format!("machine {number}") };
    // Compressed packets are not in the file as they are read: no bytes of the file are theirs.
    let files = [("packets", input.bytes), ("compressed packets", &[])];
    let files = files.map(|(name, bytes)| DataFile { name: name.to_owned(), bytes, index: None }).into();
    let bundles = Bundles { contexts, classes, names: machine.names };
    let mut trace = Trace::framed(name, class, streams, files, Framing::Bundles(bundles));
    trace.loss = loss;
    trace.notes = notes.into_iter().map(|note| ("events".to_owned(), note)).collect();
    trace.clock_identity = Some(ClockIdentity { host: hostname, ..identity });
    trace
}

/// Sentences for people about what is shown differently than they may expect.
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

fn number_names(machine: &Machine<'_>) -> NumberNames {
    let mut threads = machine.switched.clone();
    threads.extend(machine.threads.iter().map(|(&id, name)| (id, name.clone())));
    let numbered = |number: i64, name: &[u8]| (number as u64, name.to_owned());
    NumberNames {
        threads: Names::numbered(threads.iter().map(|(&id, name)| numbered(id, name))),
        processes: Arc::new(machine.processes.iter().map(|(&thread, &process)| (thread, process)).collect()),
        rows: Names::numbered(machine.names.iter().map(|(name, &index)| numbered(index, name))),
        symbols: Names::numbered(machine.symbols.iter().map(|(&id, name)| (id, name.clone()))),
    }
}

/// The clock of a machine's bundles. If a bundle relates it to the clock that counts from boot, times are of that one.
fn clock(machine: &Machine<'_>) -> (ClockClass, ClockIdentity) {
    let (&number, &to_boot) = machine.clocks.first_key_value().unwrap_or((&BOOT, &None));
    let offset = to_boot.filter(|_| number != BOOT);
    let name = match number {
        _ if number == BOOT || offset.is_some() => "boot",
        2 => "global",
        3 => "local",
        4 => "mono_raw",
        _ => "",
    };
    let kind = match name {
        "boot" => ClockKind::Posix(CLOCK_BOOTTIME),
        "mono_raw" => ClockKind::Posix(CLOCK_MONOTONIC_RAW),
        "" => ClockKind::Unknown,
        name => ClockKind::Ftrace(name.to_owned()),
    };
    let offset_seconds = 0;
    let with_offset = |cycles| CycleClock::new(SECOND, offset_seconds, cycles);
    // An offset that exceeds 64 bits is ignored.
    let cycles =
        with_offset(offset.unwrap_or(0)).or_else(|| with_offset(0)).expect("a frequency that is not zero");
    let unix_zero = machine.unix_zero.filter(|_| name == "boot");
    let description = "the clock of ftrace".to_owned();
    let class = ClockClass { name: name.to_owned(), description, cycles, unix: false, uid: None };
    // `unix` is false although `unix_zero` may be known: times are shown as they count from the boot.
    (class, ClockIdentity { kind, unix_zero, ..ClockIdentity::default() })
}

/// Returns the loss of a CPU whose sequence of packets has statistics but no bundles.
fn loss_without_bundles(cpu: u32, bundles: &CpuBundles<'_>) -> Option<Loss> {
    let count = bundles.lost();
    let detail = "the kernel counted lost events of this CPU, of which there are no events".to_owned();
    let loss = Loss {
        stream: format!("cpu {cpu}"),
        cause: Cause::Truncated,
        bytes: 0..0,
        time: None,
        count,
        detail,
    };
    (bundles.bundles.is_empty() && count > 0).then_some(loss)
}

/// Notes in the bundles of a CPU how many events the kernel lost before or after them. Returns the losses that can't be
/// counted or have no position.
fn losses(name: &str, cpu: &mut CpuBundles<'_>) -> Vec<Loss> {
    let mut losses = Vec::new();
    let mut lose = |count, detail: &str| {
        let (stream, detail) = (name.to_owned(), detail.to_owned());
        losses.push(Loss { stream, cause: Cause::Truncated, bytes: 0..0, time: None, count, detail });
    };
    let lost = cpu.lost();
    let marked = cpu.bundles.iter().filter(|bundle| bundle.context.lost.is_some()).count() as u64;
    if let Some(last) = cpu.bundles.iter_mut().rev().find(|bundle| bundle.context.lost.is_some()) {
        // The kernel counts lost events per CPU only: by the last mark, all of them were lost.
        last.context.lost = Some(lost);
    } else if let Some(last) = cpu.bundles.last_mut() {
        last.context.lost_after = lost;
    }
    if !cpu.has_statistics && marked > 0 {
        lose(marked, "events were lost before a bundle; their number is unknown");
    } else if cpu.has_statistics && marked == 0 && lost > 0 {
        lose(lost, "the kernel counted lost events, but no bundle shows where they were");
    }
    let gaps = cpu.bundles.iter().filter(|bundle| bundle.context.is_after_gap).count() as u64;
    if gaps > 0 {
        lose(gaps, "packets were lost before a bundle; their number is unknown");
    }
    losses
}

/// The stream of a CPU, a packet for each bundle.
fn stream<'a>(cpu: u32, name: String, bundles: CpuBundles<'a>, cycles: CycleClock) -> Stream<'a> {
    let mut packets: Vec<StreamPacket<'a>> = Vec::with_capacity(bundles.bundles.len());
    for IndexedBundle { bytes, context: Context { position, lost, is_after_gap, lost_after, .. }, times } in
        bundles.bundles
    {
        let latest = packets.last().and_then(|packet| packet.end);
        packets.push(StreamPacket {
            file: position.file,
            bytes,
            packet: Packet::framed(position.offset..position.offset + bytes.len(), Some(cpu.into())),
            clock: 0,
            begin: times.map(|times| cycles.nanos(times.first)).or(latest),
            end: times.map(|times| cycles.nanos(times.last)).or(latest),
            events_lost: lost.unwrap_or(0).saturating_add(lost_after),
            packets_lost: is_after_gap.into(),
            pieces: Vec::new(),
        });
    }
    let number = Some((slot::CPU, cpu.into()));
    Stream { class: 0, id: Some(cpu.into()), name, packets, had_pre_pass: false, number }
}
