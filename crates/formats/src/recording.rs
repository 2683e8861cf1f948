//! What every recording of control flow comes down to, whatever its container.

use hodo_clock::Nanos;
use hodo_intel_pt::Config;
use hodo_model::Loss;
use serde::{Deserialize, Serialize};

use crate::ClockIdentity;

/// A recording of Intel PT with its sideband.
#[derive(Clone, Debug, Default)]
pub struct Recording<'a> {
    /// The trace's settings.
    pub config: Config,
    /// One stream a thread or a CPU.
    pub streams: Vec<Stream<'a>>,
    /// What the kernel (or its stand-in) said meanwhile, in order of time; records without a time
    /// keep the place that they have in the file.
    pub sideband: Vec<Sideband<'a>>,
    /// The events that were recorded, Intel PT's own among them.
    pub events: Vec<RecordedEvent>,
    /// The code of BPF programs, which no file holds.
    pub bpf: Vec<BpfProgram<'a>>,
    /// Where the code of guests is.
    pub guest_code: GuestCode,
    /// What the emulated processor adds to its recordings.
    pub emulated: Option<Emulated<'a>>,
    /// Facts for `hodo info`, in order: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// What is missing from the recording.
    pub loss: Vec<Loss>,
    /// Which clock its times are of.
    pub clock_identity: ClockIdentity,
}

impl<'a> Recording<'a> {
    /// Makes all of its times this much later, in nanoseconds.
    pub fn shift(&mut self, nanos: i64) {
        let later = |time: &mut Nanos| time.0 = time.0.wrapping_add_signed(nanos);
        self.config.clock = self.config.clock.map(|clock| clock.shifted(nanos));
        self.sideband.iter_mut().filter_map(|sideband| sideband.time.as_mut()).for_each(later);
        for (begin, end) in self.loss.iter_mut().filter_map(|loss| loss.time.as_mut()) {
            later(begin);
            later(end);
        }
        if let Some(emulated) = &mut self.emulated {
            let untraced = emulated.notes.untraced.iter_mut();
            untraced.for_each(|program| program.time_ns = program.time_ns.wrapping_add_signed(nanos));
        }
    }

    /// The sideband of the machine that was recorded on, without that of its guests.
    pub fn of_host(&self) -> impl DoubleEndedIterator<Item = &Sideband<'a>> {
        self.sideband.iter().filter(|sideband| sideband.guest.is_none())
    }
}

/// The trace bytes of one source.
#[derive(Clone, Debug, Default)]
pub struct Stream<'a> {
    /// The CPU, in a per-CPU recording.
    pub cpu: Option<u32>,
    /// Process and thread, in a per-thread recording.
    pub thread: Option<Thread>,
    /// The bytes, in order. Packets may continue from one piece to the next, unless that one says
    /// that bytes are missing before it.
    pub pieces: Vec<Piece<'a>>,
}

/// A process and one of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
}

/// A run of trace bytes as it lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Bytes are missing before this piece (a snapshot, a sample, a truncated buffer): synchronise anew.
    pub after_gap: bool,
}

/// One sideband record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sideband<'a> {
    /// When, on the recording's clock; `None` where the record carries no time.
    pub time: Option<Nanos>,
    /// The CPU it happened on, where the record says so.
    pub cpu: Option<u32>,
    /// Whom it is about.
    pub thread: Thread,
    /// The virtual machine that it happened in; `None` for the machine that was recorded on. Threads,
    /// addresses and paths are then the guest's own.
    pub guest: Option<Guest>,
    /// What happened.
    pub kind: SidebandKind<'a>,
}

/// Where the code is that runs in virtual machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestCode {
    /// The recording does not say.
    #[default]
    Unknown,
    /// In the program that the host maps where a guest runs: the hypervisor's process.
    OfHost,
    /// In the mappings of guests among the sideband; all guests have the same.
    Mapped,
}

/// A virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guest {
    /// The host's process that runs it; 0 where the recording does not say.
    pub pid: u32,
    /// The virtual CPU, where the record says so.
    pub vcpu: Option<u32>,
}

/// What a sideband record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidebandKind<'a> {
    /// A file (or something with a name in brackets) was mapped for execution.
    Map(Mapping<'a>),
    /// The thread got a name; `exec` where that was because it executed another program, which
    /// also dropped every mapping of the process.
    Comm {
        /// The name.
        name: &'a [u8],
        /// Whether it executed another program.
        exec: bool,
    },
    /// The process or thread was made by this one.
    Fork {
        /// This one.
        parent: Thread,
    },
    /// The thread ended.
    Exit,
    /// The thread was scheduled in.
    SwitchIn,
    /// The thread was scheduled out.
    SwitchOut {
        /// Whether it could have run on.
        preempted: bool,
        /// Who runs next on this CPU, where the record says so.
        next: Option<Thread>,
    },
    /// Tracing of the thread began.
    TraceStart,
    /// The tracer lost this many records.
    Lost {
        /// How many.
        records: u64,
    },
    /// The kernel took fewer samples for a time, or all of them again.
    Throttle {
        /// Fewer.
        on: bool,
    },
    /// The kernel registered code that it made at run time, or dropped it.
    KernelSymbol(KernelSymbol<'a>),
    /// A BPF program was loaded or unloaded.
    BpfProgram {
        /// The kernel's number of the program.
        id: u32,
        /// Loaded; unloaded, where not.
        loaded: bool,
        /// Hash of the program's source form.
        tag: &'a [u8],
    },
    /// The kernel changed its own code.
    TextPoke(TextPoke<'a>),
    /// The number by which PEBS records in the trace name one of the recording's events.
    HardwareId {
        /// The number: the index of a counter.
        id: u64,
        /// Index into [`Recording::events`].
        event: usize,
    },
}

/// Code that the kernel made at run time: a BPF program, a trampoline, a copy of a probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Its name.
    pub name: &'a [u8],
    /// It is a BPF program.
    pub bpf: bool,
    /// It was dropped.
    pub dropped: bool,
}

/// A change of the kernel's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPoke<'a> {
    /// First address.
    pub address: u64,
    /// The bytes before; none, where the code is new.
    pub old: &'a [u8],
    /// The bytes from now on; none, where the code is gone.
    pub new: &'a [u8],
}

/// An event that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Its name, such as `intel_pt//u`; empty where the recording has none.
    pub name: String,
    /// Its PMU: `perf_event_attr.type`.
    pub pmu: u32,
    /// What of the PMU: `perf_event_attr.config`.
    pub config: u64,
}

/// A BPF program as it lay in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BpfProgram<'a> {
    /// The kernel's number of the program.
    pub id: u32,
    /// Its functions: first address and code.
    pub functions: Vec<(u64, &'a [u8])>,
}

/// A mapping of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file of the byte at `address`.
    pub file_offset: u64,
    /// The file's path as the traced system named it, or a name such as `[vdso]` or `//anon`.
    pub name: &'a [u8],
    /// The file's build id, where the recording has it; empty else.
    pub build_id: &'a [u8],
    /// Whether it is kernel code.
    pub kernel: bool,
}

/// What the emulated processor keeps beside the trace: exact counts to check a decoder against, and
/// code that no file holds.
#[derive(Clone, Debug, Default)]
pub struct Emulated<'a> {
    /// The part that is written as JSON.
    pub notes: EmulatedNotes,
    /// Code that no file holds, in order of time.
    pub code: Vec<KeptCode<'a>>,
    /// The symbols of the machine's kernel, as `/proc/kallsyms` has them; empty, where no kernel was recorded.
    pub kallsyms: &'a [u8],
}

impl KeptCode<'_> {
    /// The process of code that is the kernel's.
    pub const KERNEL: u32 = u32::MAX;
}

/// The emulated processor's account of itself and of what it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatedNotes {
    /// Who emulated, such as `qemu-x86_64 7.2.22`.
    pub engine: String,
    /// Instructions (cycles, ticks) in a second of the virtual clock.
    pub frequency: u64,
    /// What each thread really ran.
    pub threads: Vec<Truth>,
    /// What each virtual processor really ran, where a whole machine was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuTruth>,
    /// What ran outside the emulator, and why.
    pub untraced: Vec<Untraced>,
}

/// What one thread really ran, by the emulator's own count: the ground truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Process and thread.
    pub thread: Thread,
    /// Instructions retired; a `rep` string instruction is one, however many rounds it makes.
    pub instructions: u64,
    /// Near calls retired.
    pub calls: u64,
    /// Instructions retired while the trace was on (all of them, unless filtered or lost on request).
    pub traced_instructions: u64,
    /// Near calls retired while the trace was on.
    pub traced_calls: u64,
}

/// What one virtual processor really ran while its trace was on, by the emulator's own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTruth {
    /// The virtual processor.
    pub cpu: u32,
    /// Instructions retired.
    pub instructions: u64,
    /// Digest of their addresses, in order: `digest = digest * 0x9e3779b97f4a7c15 + address` for each, from 0
    /// on, in 64 bits.
    pub digest: u64,
    /// Whether an account that counts instructions one by one, as they begin, came to the same; unknown where
    /// there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<bool>,
}

/// A program that ran where the emulator could not follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untraced {
    /// Who started it.
    pub thread: Thread,
    /// When, in nanoseconds of the virtual clock.
    pub time_ns: u64,
    /// Why, for people.
    pub reason: String,
}

/// Bytes of code that no file holds, as they were from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptCode<'a> {
    /// The process, or [`KeptCode::KERNEL`].
    pub pid: u32,
    /// From when on.
    pub time: Nanos,
    /// When it was found there, on the clock that the program's own files use (`CLOCK_MONOTONIC`).
    pub found: Option<Nanos>,
    /// First address.
    pub address: u64,
    /// The code.
    pub bytes: &'a [u8],
}
