//! Describes a recording without decoding it.

use std::{borrow::Cow, collections::BTreeSet, ops::Range};

use hodo_formats::recording::{CpuTruth, Cut, SidebandKind, Snapshot, Truth, Untraced};
use hodo_intel_pt::Config;
use hodo_model::Loss;
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    flow::{stream::TraceStream, trace::Trace},
    programs::modules::Module,
};

/// Contents of a recording, and which of the files it needs are available. Serialises as one stable JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Name of the format, such as `perf.data`.
    pub format: String,
    /// Facts that the format reports, in its order.
    #[serde(serialize_with = "as_object")]
    pub facts: Vec<(&'static str, String)>,
    /// What executed the program.
    pub engine: Engine,
    /// What wrote the trace, if it was not Intel PT, whose settings follow.
    #[serde(skip)]
    pub other_unit: Option<&'static str>,
    /// The trace's settings.
    pub config: Settings,
    /// Conversion of ticks to nanoseconds; `None` if unknown.
    pub clock: Option<Clock>,
    /// First and last time; `None` if the recording has no times.
    pub span: Option<Span>,
    /// The streams of trace.
    pub streams: Vec<Stream>,
    /// The sources of code, in the order in which they were first mapped.
    pub modules: Vec<ModuleInfo>,
    /// Number of sideband records of each kind.
    #[serde(serialize_with = "as_object")]
    pub sideband: Vec<(&'static str, u64)>,
    /// Code contained in the recording.
    pub kept_code: KeptCode,
    /// Exact counts of each thread, by the emulator.
    #[serde(serialize_with = "truth")]
    pub truth: Vec<Truth>,
    /// Exact counts of each virtual processor, if a whole machine was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_truth: Vec<CpuTruth>,
    /// The snapshots that the trace consists of, and why each was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<Snapshot>,
    /// Where the trace of each virtual processor ends, and why, if the machine ended before its command did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
    /// Programs that ran without being traced.
    #[serde(serialize_with = "untraced")]
    pub untraced: Vec<Untraced>,
    /// What is missing from the recording.
    #[serde(serialize_with = "losses")]
    pub loss: Vec<Loss>,
}

/// What executed the program.
#[derive(Clone, Debug, Serialize)]
pub struct Engine {
    /// Whether it was the emulated processor, whose time is virtual.
    pub emulated: bool,
    /// Whether it was the processor, slowed because the program ran translated by the native recorder.
    pub slowed: bool,
    /// Name of the emulator or the processor, if known.
    pub name: Option<String>,
    /// Frequency of the virtual clock in Hz; each instruction takes one cycle.
    pub frequency: Option<u64>,
    /// Whether the times of the native recorder, or the clock of an emulated machine, count instructions.
    pub counts_time: bool,
}

/// The enabled packets, and settings that the decoder needs.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Family, model and stepping.
    pub cpu: Option<[u16; 3]>,
    /// The errata that the decoder takes into account, and why, in a sentence.
    pub errata: String,
    /// Whether TSC packets are enabled.
    pub tsc: bool,
    /// MTC packets are one per `2^mtc_frequency` ticks of the crystal clock; `None` if disabled.
    pub mtc_frequency: Option<u8>,
    /// Whether CYC packets are enabled.
    pub cyc: bool,
    /// Whether returns are compressed.
    pub return_compression: bool,
    /// TSC ticks per crystal-clock tick: numerator and denominator.
    pub tsc_ctc_ratio: Option<(u32, u32)>,
    /// TSC frequency over bus frequency.
    pub max_nonturbo_ratio: Option<u8>,
    /// Address filter in perf's syntax; empty if there was none.
    pub filter: String,
}

/// Conversion of ticks: nanoseconds are `zero + (ticks × multiplier) >> shift`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Clock {
    /// Right shift after the multiplication.
    pub shift: u64,
    /// Nanoseconds per tick, scaled by `2^shift`.
    pub multiplier: u64,
    /// Nanoseconds at tick 0.
    pub zero: u64,
}

/// Times on the recording's clock.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Span {
    /// First time.
    pub begin_ns: u64,
    /// Last time.
    pub end_ns: u64,
}

/// A stream of trace.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// Displayed name: `tid 12` or `cpu 3`.
    pub name: String,
    /// The CPU, for a stream of a CPU.
    pub cpu: Option<u32>,
    /// The process, for a stream of a thread.
    pub pid: Option<u32>,
    /// The thread, for a stream of a thread.
    pub tid: Option<u32>,
    /// Last name of the thread.
    pub command: Option<String>,
    /// Bytes of trace.
    pub bytes: u64,
    /// Number of pieces in the file.
    pub pieces: u64,
    /// Number of places with bytes known to be missing between pieces. Gaps in the flow show only when it is decoded.
    pub cuts: u64,
    /// Number of PSB packets. Each starts a segment that can be decoded independently.
    pub segments: u64,
    /// Offset and length in bytes of each piece in the file, in order.
    pub ranges: Vec<(u64, u64)>,
}

/// The source of a module's code bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The executed file, as verified by its build id if it has one.
    File,
    /// The recording itself.
    Recording,
    /// A list of names, for code contained in the recording.
    Names,
    /// None: the file can't be opened, is a different build, or never existed.
    Missing,
}

/// A file that code was mapped from, or a pseudo-file with a name in brackets.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleInfo {
    /// Path in the traced system.
    pub name: String,
    /// Build id from the recording, in hexadecimal; empty if there is none.
    pub build_id: String,
    /// Whether it is kernel code.
    pub kernel: bool,
    /// Where its bytes come from.
    pub source: Source,
    /// The address ranges where it was mapped in any process: first address, and the one after the last.
    pub addresses: Vec<(u64, u64)>,
    /// Number of functions with a name.
    pub symbols: u64,
    /// Why bytes or symbols are not available.
    pub problem: Option<String>,
}

/// Amount of code contained in the recording.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KeptCode {
    /// Number of pieces.
    pub ranges: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Describes a recording. Searches all of the trace for PSBs, but decodes nothing.
pub fn info(trace: &Trace<'_>) -> Info {
    let recording = &trace.recording;
    let mut facts = recording.facts.clone();
    let format = facts.iter().position(|(name, _)| *name == "format").map(|index| facts.remove(index).1);
    let notes = recording.recorder.as_ref().map(|emulated| &emulated.notes);
    let emulator = notes.filter(|notes| !notes.slowed);
    let processor = facts.iter().find(|(name, _)| *name == "processor").map(|(_, value)| value.clone());
    let code = || recording.recorder.iter().flat_map(|emulated| &emulated.code);
    let clock = recording.config.clock;
    Info {
        format: format.unwrap_or_default(),
        facts,
        engine: Engine {
            emulated: notes.is_some_and(|notes| !notes.slowed),
            slowed: notes.is_some_and(|notes| notes.slowed),
            name: emulator.map(|notes| notes.engine.clone()).or(processor),
            frequency: emulator.map(|notes| notes.frequency),
            counts_time: notes.is_some_and(|notes| notes.counts_time),
        },
        config: settings(&recording.config),
        other_unit: trace.streams.iter().find_map(TraceStream::other_unit),
        clock: clock.map(|clock| Clock {
            shift: clock.shift().into(),
            multiplier: clock.multiplier().into(),
            zero: clock.zero(),
        }),
        span: clock.zip(trace.span()).map(|(clock, (first, last))| Span {
            begin_ns: clock.nanos(first).0,
            end_ns: clock.nanos(last).0,
        }),
        streams: streams(trace),
        modules: modules(trace),
        sideband: sideband(trace),
        kept_code: KeptCode {
            ranges: code().count() as u64,
            bytes: code().map(|kept| kept.bytes.len() as u64).sum(),
        },
        truth: notes.map(|notes| notes.threads.clone()).unwrap_or_default(),
        cpu_truth: notes.map(|notes| notes.cpus.clone()).unwrap_or_default(),
        snapshots: notes.map(|notes| notes.snapshots.clone()).unwrap_or_default(),
        cut: notes.map(|notes| notes.cut.clone()).unwrap_or_default(),
        untraced: notes.map(|notes| notes.untraced.clone()).unwrap_or_default(),
        loss: trace.recorded_losses().into_list(),
    }
}

fn settings(config: &Config) -> Settings {
    Settings {
        cpu: config.cpu.map(|cpu| [cpu.family, cpu.model.into(), cpu.stepping.into()]),
        errata: config.errata_note(),
        tsc: config.tsc,
        mtc_frequency: config.mtc_frequency,
        cyc: config.cyc,
        return_compression: !config.no_return_compression,
        tsc_ctc_ratio: config.tsc_ctc_ratio,
        max_nonturbo_ratio: config.max_nonturbo_ratio,
        filter: config.filter.clone(),
    }
}

fn streams(trace: &Trace<'_>) -> Vec<Stream> {
    let streams = trace.streams.iter().zip(&trace.recording.streams);
    let streams = streams.map(|(stream, recorded)| Stream {
        name: stream.name.clone(),
        cpu: stream.cpu,
        pid: stream.thread.map(|thread| thread.pid),
        tid: stream.thread.map(|thread| thread.tid),
        command: stream.thread.and_then(|thread| trace.thread_name(thread)).map(Cow::into_owned),
        bytes: stream.bytes(),
        pieces: recorded.pieces.len() as u64,
        cuts: stream.extents.len().saturating_sub(1) as u64,
        segments: stream.extents.iter().map(|extent| extent.segments().count() as u64).sum(),
        ranges: recorded.pieces.iter().map(|piece| (piece.file_offset, piece.bytes.len() as u64)).collect(),
    });
    streams.collect()
}

fn modules(trace: &Trace<'_>) -> Vec<ModuleInfo> {
    let kept = trace.recording.recorder.iter().flat_map(|emulated| &emulated.code);
    let mut kept: Vec<Range<u64>> =
        kept.map(|code| code.address..code.address.saturating_add(code.bytes.len() as u64)).collect();
    kept.sort_unstable_by_key(|range| range.start);
    // Code of a mapping without a file is available if the recording contains some that begins within the mapping.
    let is_kept = |range: &Range<u64>| {
        let next = kept.get(kept.partition_point(|kept| kept.start < range.start));
        next.is_some_and(|next| next.start < range.end)
    };
    let mut kernel = BTreeSet::new();
    for sideband in trace.recording.of_host() {
        if let SidebandKind::Map(mapping) = &sideband.kind {
            kernel.extend(mapping.kernel.then(|| trace.modules.of(mapping)));
        }
    }
    let named = |(index, module): (usize, &Module<'_>)| {
        let index = index as u32;
        let source = match module.source {
            Source::Missing if module.ranges.iter().any(is_kept) => Source::Recording,
            source => source,
        };
        // DWARF that can't be read is a problem.
        let unreadable = || trace.modules.debug(index).err().filter(|_| source == Source::File);
        ModuleInfo {
            name: module.name.clone(),
            build_id: module.build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            kernel: kernel.contains(&index),
            source,
            addresses: module.ranges.iter().map(|range| (range.start, range.end)).collect(),
            symbols: trace.modules.named_functions(index),
            problem: module.problem.clone().filter(|_| source != Source::Recording).or_else(unreadable),
        }
    };
    let modules = trace.modules.list().iter().enumerate().skip(1);
    modules.filter(|(_, module)| module.source != Source::Recording).map(named).collect()
}

fn sideband(trace: &Trace<'_>) -> Vec<(&'static str, u64)> {
    const KINDS: [&str; 15] = [
        "mappings",
        "names",
        "execs",
        "threads_started",
        "threads_ended",
        "switches_in",
        "switches_out",
        "preemptions",
        "trace_starts",
        "losses",
        "throttles",
        "kernel_symbols",
        "bpf_programs",
        "text_pokes",
        "hardware_ids",
    ];
    let mut counts = [0; KINDS.len()];
    for sideband in &trace.recording.sideband {
        let kind = match sideband.kind {
            SidebandKind::Map(_) => 0,
            SidebandKind::Comm { exec: false, .. } => 1,
            SidebandKind::Comm { exec: true, .. } => 2,
            SidebandKind::Fork { .. } => 3,
            SidebandKind::Exit => 4,
            SidebandKind::SwitchIn => 5,
            SidebandKind::SwitchOut { preempted: false, .. } => 6,
            SidebandKind::SwitchOut { preempted: true, .. } => 7,
            SidebandKind::TraceStart => 8,
            SidebandKind::Lost { .. } => 9,
            SidebandKind::Throttle { .. } => 10,
            SidebandKind::KernelSymbol(_) => 11,
            SidebandKind::BpfProgram { .. } => 12,
            SidebandKind::TextPoke(_) => 13,
            SidebandKind::HardwareId { .. } => 14,
        };
        counts[kind] += 1;
    }
    KINDS.into_iter().zip(counts).collect()
}

/// Serialises pairs as one JSON object, with underscores for spaces in names.
fn as_object<S: Serializer, V: Serialize>(pairs: &[(&str, V)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(Some(pairs.len()))?;
    for (name, value) in pairs {
        object.serialize_entry(&name.replace(' ', "_"), value)?;
    }
    object.end()
}

fn truth<S: Serializer>(truth: &[Truth], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row {
        pid: u32,
        tid: u32,
        instructions: u64,
        calls: u64,
        traced_instructions: u64,
        traced_calls: u64,
    }
    serializer.collect_seq(truth.iter().map(|truth| Row {
        pid: truth.thread.pid,
        tid: truth.thread.tid,
        instructions: truth.instructions,
        calls: truth.calls,
        traced_instructions: truth.traced_instructions,
        traced_calls: truth.traced_calls,
    }))
}

fn untraced<S: Serializer>(untraced: &[Untraced], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        pid: u32,
        tid: u32,
        time_ns: u64,
        reason: &'a str,
    }
    serializer.collect_seq(untraced.iter().map(|program| Row {
        pid: program.thread.pid,
        tid: program.thread.tid,
        time_ns: program.time_ns,
        reason: &program.reason,
    }))
}

/// Serialises losses with the same members as in the JSON of tables.
fn losses<S: Serializer>(losses: &[Loss], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        stream: &'a str,
        cause: &'a str,
        count: u64,
        begin_ns: Option<u64>,
        end_ns: Option<u64>,
        begin_byte: Option<u64>,
        end_byte: Option<u64>,
        detail: &'a str,
    }
    serializer.collect_seq(losses.iter().map(|loss| {
        let bytes = Some(&loss.bytes).filter(|bytes| !bytes.is_empty());
        Row {
            stream: &loss.stream,
            cause: loss.cause.name(),
            count: loss.count,
            begin_ns: loss.time.map(|(begin, _)| begin.0),
            end_ns: loss.time.map(|(_, end)| end.0),
            begin_byte: bytes.map(|bytes| bytes.start),
            end_byte: bytes.map(|bytes| bytes.end),
            detail: &loss.detail,
        }
    }))
}
