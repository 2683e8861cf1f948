//! The common form of control-flow recordings in any container.

use std::sync::Arc;

use hodo_clock::{Nanos, PerfClock};
use hodo_intel_pt::Config;
use hodo_model::Loss;
use hodo_native_log::Log;
use serde::{Deserialize, Serialize};

use crate::ClockIdentity;

/// A recording of Intel PT, of the native recorder, or of trace units of Arm and RISC-V, with its sideband.
#[derive(Clone, Debug, Default)]
pub struct Recording<'a> {
    /// The trace's settings.
    pub config: Config,
    /// One stream per thread or per CPU.
    pub streams: Vec<Stream<'a>>,
    /// Records of the kernel, or of the emulator in its place, in order of time. Records without a timestamp keep
    /// their position in the file.
    pub sideband: Vec<Sideband<'a>>,
    /// The recorded events, including Intel PT's own.
    pub events: Vec<RecordedEvent>,
    /// Code of BPF programs, which is in no file.
    pub bpf: Vec<BpfProgram<'a>>,
    /// The location of guest code.
    pub guest_code: GuestCode,
    /// Additional data from Hodoscope's own recorders: the emulated processor, and the native recorder.
    pub recorder: Option<RecorderData<'a>>,
    /// Names and values for `hodo info`, in order.
    pub facts: Vec<(&'static str, String)>,
    /// Files of code without headers, by the names of their mappings.
    pub flat_files: Vec<String>,
    /// Data missing from the recording.
    pub loss: Vec<Loss>,
    /// The clock of its times.
    pub clock_identity: ClockIdentity,
}

impl<'a> Recording<'a> {
    /// Shifts all of its times, in nanoseconds.
    pub fn shift(&mut self, nanos: i64) {
        let clock = self.config.clock.map(|clock| clock.shifted(nanos));
        self.place(clock, |time| time.wrapping_add_signed(nanos));
    }

    /// Moves all of its times: those in nanoseconds by `place`, those in ticks by another clock.
    pub fn place(&mut self, clock: Option<PerfClock>, place: impl Fn(u64) -> u64) {
        let later = |time: &mut Nanos| time.0 = place(time.0);
        self.config.clock = clock;
        self.sideband.iter_mut().filter_map(|sideband| sideband.time.as_mut()).for_each(later);
        for (begin, end) in self.loss.iter_mut().filter_map(|loss| loss.time.as_mut()) {
            later(begin);
            later(end);
        }
        if let Some(recorder) = &mut self.recorder {
            let untraced = recorder.notes.untraced.iter_mut();
            untraced.for_each(|program| program.time_ns = place(program.time_ns));
            let cut = recorder.notes.cut.iter_mut();
            cut.for_each(|cut| cut.time_ns = place(cut.time_ns));
        }
    }

    /// The sideband of the host, without that of its guests.
    pub fn of_host(&self) -> impl DoubleEndedIterator<Item = &Sideband<'a>> {
        self.sideband.iter().filter(|sideband| sideband.guest.is_none())
    }
}

/// The trace bytes of one source.
#[derive(Clone, Debug, Default)]
pub struct Stream<'a> {
    /// The CPU in a per-CPU recording.
    pub cpu: Option<u32>,
    /// Process and thread in a per-thread recording.
    pub thread: Option<Thread>,
    /// The bytes, in order. A packet may continue in the next piece, unless that has [`Piece::after_gap`] set.
    pub pieces: Vec<Piece<'a>>,
    /// How the bytes are read.
    pub kind: StreamKind<'a>,
}

/// How the bytes of a stream are read.
#[derive(Clone, Debug, Default)]
pub enum StreamKind<'a> {
    /// As packets of Intel PT.
    #[default]
    IntelPt,
    /// As a log of the native recorder, each of whose blocks is a piece.
    Log(Arc<Log<'a>>),
    /// As packets of a trace unit of Arm with these settings.
    Etm(hodo_etm::Config),
    /// As packets or messages of RISC-V's trace with these settings.
    RiscV(Arc<hodo_etrace::Settings>),
}

/// A process and one of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
}

/// Contiguous trace bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// File offset of the first byte.
    pub file_offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether bytes are missing before this piece (a snapshot, a sample, a truncated buffer). The decoder must
    /// resynchronise.
    pub after_gap: bool,
}

/// One sideband record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sideband<'a> {
    /// Timestamp on the recording's clock, if the record has one.
    pub time: Option<Nanos>,
    /// The CPU, if the record contains it.
    pub cpu: Option<u32>,
    /// The process and thread that the record is about.
    pub thread: Thread,
    /// The virtual machine; `None` for the host. Threads, addresses and paths are then the guest's.
    pub guest: Option<Guest>,
    /// The content of the record.
    pub kind: SidebandKind<'a>,
}

/// The location of code that runs in virtual machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestCode {
    /// Not recorded.
    #[default]
    Unknown,
    /// In the hypervisor's process, as the host maps it.
    OfHost,
    /// In the guests' own mappings in the sideband, which all guests share.
    Mapped,
}

/// A virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guest {
    /// The host process that runs the virtual machine; 0 if not recorded.
    pub pid: u32,
    /// The virtual CPU, if recorded.
    pub vcpu: Option<u32>,
}

/// The content of a sideband record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidebandKind<'a> {
    /// An executable mapping of a file, or of a bracketed name such as `[vdso]`.
    Map(Mapping<'a>),
    /// A thread's new name. If `exec` is set, the thread executed another program, which removed all mappings of the
    /// process.
    Comm {
        /// The name.
        name: &'a [u8],
        /// Whether an `exec` set the name.
        exec: bool,
    },
    /// The process or thread was created.
    Fork {
        /// The creating thread.
        parent: Thread,
    },
    /// The thread exited.
    Exit,
    /// The thread was scheduled in.
    SwitchIn,
    /// The thread was scheduled out.
    SwitchOut {
        /// Whether the thread was still runnable.
        preempted: bool,
        /// The next thread on this CPU, if recorded.
        next: Option<Thread>,
    },
    /// Tracing of the thread began.
    TraceStart,
    /// The tracer lost records.
    Lost {
        /// The number of lost records.
        records: u64,
    },
    /// The kernel throttled sampling, or stopped throttling it.
    Throttle {
        /// Whether throttling begins.
        on: bool,
    },
    /// The kernel registered or removed code generated at run time.
    KernelSymbol(KernelSymbol<'a>),
    /// A BPF program was loaded or unloaded.
    BpfProgram {
        /// The kernel's id of the program.
        id: u32,
        /// Whether the program was loaded or unloaded.
        loaded: bool,
        /// Hash of the program's source form.
        tag: &'a [u8],
    },
    /// The kernel modified its own code.
    TextPoke(TextPoke<'a>),
    /// The id with which PEBS records in the trace refer to an event of the recording.
    HardwareId {
        /// The id: the index of a counter.
        id: u64,
        /// Index into [`Recording::events`].
        event: usize,
    },
}

/// Kernel code generated at run time: a BPF program, a trampoline, a copy of a probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The name.
    pub name: &'a [u8],
    /// Whether it is a BPF program.
    pub bpf: bool,
    /// Whether it was removed.
    pub dropped: bool,
}

/// A modification of kernel code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPoke<'a> {
    /// First address.
    pub address: u64,
    /// The bytes before; empty for new code.
    pub old: &'a [u8],
    /// The bytes afterwards; empty for removed code.
    pub new: &'a [u8],
}

/// A recorded event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The name, such as `intel_pt//u`; empty if not recorded.
    pub name: String,
    /// The PMU: `perf_event_attr.type`.
    pub pmu: u32,
    /// The event of the PMU: `perf_event_attr.config`.
    pub config: u64,
}

/// The code of a BPF program in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BpfProgram<'a> {
    /// The kernel's id of the program.
    pub id: u32,
    /// First address and code of each function.
    pub functions: Vec<(u64, &'a [u8])>,
}

/// An executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// File offset of the byte at `address`.
    pub file_offset: u64,
    /// The file's path in the traced system, or a name such as `[vdso]` or `//anon`.
    pub name: &'a [u8],
    /// The file's build id; empty if not recorded.
    pub build_id: &'a [u8],
    /// Whether it is kernel code.
    pub kernel: bool,
}

/// Additional data from Hodoscope's own recorders: code that is in no file, losses, and, from the emulated processor, exact
/// counts to verify a decoder with.
#[derive(Clone, Debug, Default)]
pub struct RecorderData<'a> {
    /// The part stored as JSON.
    pub notes: RecorderNotes,
    /// Code that is in no file, in order of time.
    pub code: Vec<KeptCode<'a>>,
    /// Symbols of the emulated machine's kernel, in `/proc/kallsyms` format; empty if no kernel was recorded.
    pub kallsyms: &'a [u8],
}

impl KeptCode<'_> {
    /// The process id of kernel code.
    pub const KERNEL: u32 = u32::MAX;
}

/// A recorder's description of itself and of what it executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderNotes {
    /// The recorder, such as `qemu-x86_64 7.2.22` or `native`.
    pub engine: String,
    /// Instructions (cycles, ticks) per second of the virtual clock; ticks of the time-stamp counter if the time is real.
    pub frequency: u64,
    /// Whether programs ran translated by the native recorder, and so took longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slowed: bool,
    /// Whether the times of the native recorder, or the clock of a whole machine, count instructions; they are the host's
    /// otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_time: bool,
    /// Exact counts of each thread.
    pub threads: Vec<Truth>,
    /// Exact counts of each virtual processor, for whole-machine recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuTruth>,
    /// What ran before positions in the traces of virtual processors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CpuCheckpoints>,
    /// Programs that ran outside the emulator, with the reason.
    pub untraced: Vec<Untraced>,
    /// The snapshots that the trace consists of, and why each was taken, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<Snapshot>,
    /// Where the trace of each virtual processor ends, if a whole machine ended before the recorded command did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
}

/// The end of a virtual processor's trace, before that of the recorded command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The virtual processor.
    pub cpu: u32,
    /// The end, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The reason, for people: what the guest's kernel said when it panicked, the signal that ended QEMU, a full disk.
    pub reason: String,
}

/// A snapshot of the last part of a trace, taken because a latency was longer than the limit of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The trigger, as the user wrote it.
    pub trigger: String,
    /// The time of the snapshot, at which the latency ended, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// The latency.
    pub latency_ns: u64,
    /// The instructions that the processor ran meanwhile; `None` if it was not always the same processor.
    pub instructions: Option<u64>,
    /// The processor on which the latency ended, if known.
    pub cpu: Option<u32>,
    /// The thread that ran there then, if known.
    pub thread: Option<Thread>,
}

/// Exact counts of one thread by the emulator: the ground truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Process and thread.
    pub thread: Thread,
    /// Instructions retired; a `rep` string instruction counts once, however often it iterates.
    pub instructions: u64,
    /// Near calls retired.
    pub calls: u64,
    /// Instructions retired while the trace was on (all of them, unless filtered or lost on request).
    pub traced_instructions: u64,
    /// Near calls retired while the trace was on.
    pub traced_calls: u64,
}

/// Exact counts of one virtual processor while its trace was on, by the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTruth {
    /// The virtual processor.
    pub cpu: u32,
    /// Instructions retired.
    pub instructions: u64,
    /// 64-bit digest of the instruction addresses in order, from 0: `digest = digest * 0x9e3779b97f4a7c15 + address`.
    pub digest: u64,
    /// Whether an independent count of single instructions, taken as each begins, agrees; `None` if there was no such
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<bool>,
}

/// What ran on one virtual processor while its trace was on, before positions in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCheckpoints {
    /// The virtual processor.
    pub cpu: u32,
    /// The positions in order: each PSB, and the end.
    pub places: Vec<Checkpoint>,
}

/// What ran before a position in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The number of trace bytes of the processor before it.
    pub position: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Sum of their addresses, modulo 2^64.
    pub sum: u64,
}

/// A program that the emulator could not trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untraced {
    /// The thread that started it.
    pub thread: Thread,
    /// Start time in nanoseconds of the virtual clock.
    pub time_ns: u64,
    /// The reason, for people.
    pub reason: String,
}

/// A version of code that is in no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptCode<'a> {
    /// The process, or [`KeptCode::KERNEL`].
    pub pid: u32,
    /// Of a guest: the address of its VMCS. No process is known then.
    pub guest: Option<u64>,
    /// Start of validity.
    pub time: Nanos,
    /// Time of discovery on the clock of the program's own files (`CLOCK_MONOTONIC`).
    pub found: Option<Nanos>,
    /// First address.
    pub address: u64,
    /// The code.
    pub bytes: &'a [u8],
}
