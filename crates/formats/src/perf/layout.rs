//! The numbers and layouts of perf.data, shared by its reader and its writer.
//!
//! Names are those of linux/perf_event.h and of tools/perf/Documentation/perf.data-file-format.txt in the kernel
//! tree. Everything is little-endian. A section is u64 file offset and u64 size:
//!
//! ```text
//! file header   magic, u64 size (104), u64 attr_size, sections attrs, data, event_types, 256 feature bits
//! attrs         each: perf_event_attr, section of its ids (u64 each)
//! data          records, each: u32 type, u16 misc, u16 size (header included), body
//!               after an AUXTRACE record: its trace bytes, which `size` does not include
//! features      directly after data: one section for each feature bit that is set, ascending
//! ```
//!
//! Data written to a pipe has a header of magic and size (16) only. Events and features are records: HEADER_ATTR
//! (attr, ids), HEADER_FEATURE (u64 bit, the section's bytes), HEADER_BUILD_ID (an entry of the build-id section),
//! and HEADER_TRACING_DATA (u32 size), which its section follows like the trace bytes follow AUXTRACE. A folder
//! (`perf record --threads`) has the header and few records in a file `data`, and the other records in files
//! `data.0`, `data.1`, … without a header.

use serde::{Deserialize, Serialize};

use crate::recording::RecorderNotes;

/// Magic number of a little-endian perf.data.
pub const MAGIC: &[u8; 8] = b"PERFILE2";
/// Magic number of a big-endian perf.data.
pub const MAGIC_BIG_ENDIAN: &[u8; 8] = b"2ELIFREP";
/// Size of the file header.
pub const FILE_HEADER_SIZE: u64 = 104;
/// Header size of data written to a pipe: magic and this size only.
pub const PIPE_HEADER_SIZE: u64 = 16;
/// Offset of the feature bits in the file header; 256 bits, bit 0 first.
pub const FEATURES_OFFSET: usize = 72;
/// Size of a section descriptor: offset and size.
pub const SECTION_SIZE: u64 = 16;
/// Size of a record's header: type, misc and size.
pub const RECORD_HEADER_SIZE: u16 = 8;
/// Alignment of the zero-padded trace bytes after an AUXTRACE record. The record's size includes the padding; the
/// offset of the next record in the queue does not.
pub const AUXTRACE_ALIGNMENT: u64 = 8;
/// Size of an AUXTRACE record without its trace bytes: header, u64 size, u64 offset (in the AUX area,
/// counted from the start of the recording), u64 reference, u32 idx, u32 tid, u32 cpu, u32 reserved.
pub const AUXTRACE_SIZE: u16 = 48;
/// `cpu` of an AUXTRACE record whose queue belongs to a thread.
pub const NO_CPU: u32 = u32::MAX;

/// Record types: the kernel's up to 63, perf's own from 64.
pub mod record {
    #![allow(missing_docs, reason = "the header's own names")]
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const UNTHROTTLE: u32 = 6;
    pub const FORK: u32 = 7;
    pub const READ: u32 = 8;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const AUX: u32 = 11;
    pub const ITRACE_START: u32 = 12;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const NAMESPACES: u32 = 16;
    pub const KSYMBOL: u32 = 17;
    pub const BPF_EVENT: u32 = 18;
    pub const CGROUP: u32 = 19;
    pub const TEXT_POKE: u32 = 20;
    pub const AUX_OUTPUT_HW_ID: u32 = 21;
    /// The first of perf's own types, which have no sample_id trailer.
    pub const USER_START: u32 = 64;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_EVENT_TYPE: u32 = 65;
    pub const HEADER_TRACING_DATA: u32 = 66;
    pub const HEADER_BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const ID_INDEX: u32 = 69;
    pub const AUXTRACE_INFO: u32 = 70;
    pub const AUXTRACE: u32 = 71;
    pub const AUXTRACE_ERROR: u32 = 72;
    pub const THREAD_MAP: u32 = 73;
    pub const CPU_MAP: u32 = 74;
    pub const STAT_CONFIG: u32 = 75;
    pub const STAT: u32 = 76;
    pub const STAT_ROUND: u32 = 77;
    pub const EVENT_UPDATE: u32 = 78;
    pub const TIME_CONV: u32 = 79;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const FINISHED_INIT: u32 = 82;
    pub const COMPRESSED2: u32 = 83;

    /// The name of a type in the kernel's header, such as `MMAP2`; `None` if it has none.
    pub fn name(kind: u32) -> Option<&'static str> {
        const KERNEL: &str = "MMAP LOST COMM EXIT THROTTLE UNTHROTTLE FORK READ SAMPLE MMAP2 AUX ITRACE_START LOST_SAMPLES \
            SWITCH SWITCH_CPU_WIDE NAMESPACES KSYMBOL BPF_EVENT CGROUP TEXT_POKE AUX_OUTPUT_HW_ID";
        const USER: &str = "HEADER_ATTR HEADER_EVENT_TYPE HEADER_TRACING_DATA HEADER_BUILD_ID FINISHED_ROUND ID_INDEX \
            AUXTRACE_INFO AUXTRACE AUXTRACE_ERROR THREAD_MAP CPU_MAP STAT_CONFIG STAT STAT_ROUND \
            EVENT_UPDATE TIME_CONV HEADER_FEATURE COMPRESSED FINISHED_INIT COMPRESSED2";
        let (names, first) = if kind < USER_START { (KERNEL, MMAP) } else { (USER, USER_START) };
        names.split(' ').nth(kind.checked_sub(first)? as usize)
    }
}

/// Bits of `misc` in a record header.
pub mod misc {
    /// Mask of the processor mode.
    pub const CPUMODE: u16 = 7;
    /// Processor mode: kernel.
    pub const KERNEL: u16 = 1;
    /// Processor mode: user space.
    pub const USER: u16 = 2;
    /// Processor mode: kernel of a virtual machine.
    pub const GUEST_KERNEL: u16 = 4;
    /// Processor mode: user space of a virtual machine.
    pub const GUEST_USER: u16 = 5;
    /// MMAP, MMAP2: the mapping is not executable.
    pub const MMAP_DATA: u16 = 1 << 13;
    /// COMM: the name comes from executing a program.
    pub const COMM_EXEC: u16 = 1 << 13;
    /// SWITCH, SWITCH_CPU_WIDE: set for switch-out, clear for switch-in.
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// SWITCH, SWITCH_CPU_WIDE: switched out while still runnable.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// MMAP2: u8 build_id_size, 3 reserved bytes and 20 bytes of build id replace u32 maj, u32 min, u64 ino and u64
    /// ino_generation.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// Records of the build-id feature: byte 20 of the build id's 24 bytes is its length.
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// Values in a KSYMBOL record.
pub mod ksymbol {
    /// `ksym_type`: the code of a BPF program.
    pub const BPF: u16 = 1;
    /// `ksym_type`: other code generated at run time, such as a trampoline.
    pub const OUT_OF_LINE: u16 = 2;
    /// `flags`: the code is removed.
    pub const UNREGISTER: u16 = 1;
}

/// `type` of a BPF_EVENT record: the program was loaded.
pub const BPF_LOAD: u16 = 1;
/// `type` of a BPF_EVENT record: the program was unloaded.
pub const BPF_UNLOAD: u16 = 2;

/// Bits of an AUX record's flags.
pub mod aux_flag {
    /// Trace was lost after these bytes, because the buffer was full.
    pub const TRUNCATED: u64 = 1;
    /// Snapshot mode: the bytes may be overwritten by later ones.
    pub const OVERWRITE: u64 = 2;
    /// The record contains gaps.
    pub const PARTIAL: u64 = 4;
    /// The sample collided with another.
    pub const COLLISION: u64 = 8;
    /// How the bytes are stored, by the PMU.
    pub const FORMAT: u64 = 0xff00;
    /// Of CoreSight: the bytes of one source, without frames.
    pub const RAW: u64 = 0x0100;
}

/// Bits of `perf_event_attr.sample_type`. A sample_id trailer has eight bytes for each of these bits that is set, in
/// this order: TID (u32 pid, u32 tid), TIME, ID, STREAM_ID, CPU (u32 cpu, u32 zero), IDENTIFIER. A time of 0 means
/// "no time"; perf writes it to records that it synthesizes.
pub mod sample {
    #![allow(missing_docs, reason = "the header's own names")]
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const TRANSACTION: u64 = 1 << 17;
    pub const REGS_INTR: u64 = 1 << 18;
    pub const PHYS_ADDR: u64 = 1 << 19;
    pub const AUX: u64 = 1 << 20;
    pub const CGROUP: u64 = 1 << 21;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
    /// All known bits.
    pub const ALL: u64 = (1 << 25) - 1;
}

/// Bits of `perf_event_attr.read_format`.
pub mod read_format {
    #![allow(missing_docs, reason = "the header's own names")]
    pub const TOTAL_TIME_ENABLED: u64 = 1;
    pub const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    pub const ID: u64 = 1 << 2;
    pub const GROUP: u64 = 1 << 3;
    pub const LOST: u64 = 1 << 4;
}

/// Bits of `perf_event_attr.branch_sample_type` that add words to samples.
pub mod branch {
    #![allow(missing_docs, reason = "the header's own names")]
    pub const HW_INDEX: u64 = 1 << 17;
    pub const COUNTERS: u64 = 1 << 19;
}

/// `type` of the compression feature: Zstandard.
pub const ZSTD: u32 = 1;
/// `type` of an EVENT_UPDATE record: the event's name follows the id.
pub const UPDATE_NAME: u64 = 2;

/// `perf_event_attr.type` of tracepoints; `config` is the tracepoint's number.
pub const TYPE_TRACEPOINT: u32 = 2;

/// Bits of the flag word in `perf_event_attr`.
pub mod attr_flag {
    #![allow(missing_docs, reason = "the header's own names")]
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_USER: u64 = 1 << 4;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
    pub const BUILD_ID: u64 = 1 << 34;
}

/// Bits of `perf_event_attr.config` for the kernel's intel_pt PMU.
pub mod intel_pt_config {
    /// CYC packets.
    pub const CYC: u64 = 1 << 1;
    /// MTC packets.
    pub const MTC: u64 = 1 << 9;
    /// TSC packets.
    pub const TSC: u64 = 1 << 10;
    /// Returns are not compressed.
    pub const NORETCOMP: u64 = 1 << 11;
    /// Branches are traced.
    pub const BRANCH: u64 = 1 << 13;
    /// Mask of mtc_period.
    pub const MTC_PERIOD: u64 = 0xf << 14;
    /// Mask of cyc_thresh.
    pub const CYC_THRESH: u64 = 0xf << 19;
    /// Mask of psb_period.
    pub const PSB_PERIOD: u64 = 0xf << 24;
}

/// Bits of `perf_event_attr.config` for the kernel's cs_etm PMU, and those of TRCCONFIGR that they switch on (Linux,
/// `include/linux/coresight-pmu.h`).
pub mod coresight_config {
    /// Pairs of a bit of `config` and one of TRCCONFIGR: cycle counts, context ID, virtual context, timestamps, return stack.
    const BITS: [(u64, u32); 5] =
        [(1 << 12, 1 << 4), (1 << 14, 1 << 6), (1 << 15, 1 << 7), (1 << 28, 1 << 11), (1 << 29, 1 << 12)];

    /// Returns the `config` of an event that sets TRCCONFIGR to this.
    pub fn of(register: u32) -> u64 {
        BITS.into_iter().filter(|(_, bit)| register & bit != 0).map(|(config, _)| config).sum()
    }
}

/// `type` of an AUXTRACE_INFO record: the kind of trace.
pub mod auxtrace_type {
    /// Intel Processor Trace.
    pub const INTEL_PT: u32 = 1;
    /// Intel Branch Trace Store.
    pub const INTEL_BTS: u32 = 2;
    /// Arm CoreSight.
    pub const CS_ETM: u32 = 3;
    /// Arm Statistical Profiling Extension.
    pub const ARM_SPE: u32 = 4;
    /// E-Trace or N-Trace of RISC-V: Hodoscope's own, "hodo" in ASCII; perf has none. After u32 type and u32 reserved: u64
    /// version (1), u64 snapshot, u64 length, and so many bytes of settings in TOML, padded to whole words.
    pub const RISCV: u32 = 0x6f64_6f68;
}

/// Indices of the u64 words in the private part of Intel PT's AUXTRACE_INFO record, after u32 type and u32 reserved.
pub mod intel_pt_info {
    /// PMU type: the `perf_event_attr.type` of Intel PT's events.
    pub const PMU_TYPE: usize = 0;
    /// Clock: shift.
    pub const TIME_SHIFT: usize = 1;
    /// Clock: multiplier.
    pub const TIME_MULT: usize = 2;
    /// Clock: nanoseconds at tick 0.
    pub const TIME_ZERO: usize = 3;
    /// Whether the three clock words are valid.
    pub const CAP_USER_TIME_ZERO: usize = 4;
    /// The bit of `config` that enables TSC packets.
    pub const TSC_BIT: usize = 5;
    /// The bit of `config` that disables return compression.
    pub const NORETCOMP_BIT: usize = 6;
    /// Source of context switches: 0 none, 1 sched_switch samples, 2 and 3 SWITCH records.
    pub const HAVE_SCHED_SWITCH: usize = 7;
    /// Whether the recording consists of snapshots.
    pub const SNAPSHOT_MODE: usize = 8;
    /// Whether queues belong to CPUs.
    pub const PER_CPU_MMAPS: usize = 9;
    /// The bit of `config` that enables MTC packets.
    pub const MTC_BIT: usize = 10;
    /// The mask in `config` of RTIT_CTL.MTCFreq.
    pub const MTC_FREQ_BITS: usize = 11;
    /// TSC ticks per crystal tick: numerator.
    pub const TSC_CTC_N: usize = 12;
    /// TSC ticks per crystal tick: denominator.
    pub const TSC_CTC_D: usize = 13;
    /// The bit of `config` that enables CYC packets.
    pub const CYC_BIT: usize = 14;
    /// Maximum non-turbo ratio.
    pub const MAX_NONTURBO_RATIO: usize = 15;
    /// Length of the following filter string in bytes, without its NUL. String and NUL are padded to whole words.
    pub const FILTER_STR_LEN: usize = 16;
    /// Number of words before the filter string.
    pub const WORDS: usize = 17;
}

/// Feature bits in the file header. A text is u32 padded length and NUL-padded bytes.
pub mod feature {
    /// Tracepoint formats.
    pub const TRACING_DATA: u8 = 1;
    /// Records of files and their build ids: header, i32 pid, 24 bytes of build id, path.
    pub const BUILD_ID: u8 = 2;
    /// Text.
    pub const HOSTNAME: u8 = 3;
    /// Text: the kernel's release.
    pub const OSRELEASE: u8 = 4;
    /// Text: perf's version.
    pub const VERSION: u8 = 5;
    /// Text: such as `x86_64`.
    pub const ARCH: u8 = 6;
    /// u32 available, u32 online.
    pub const NRCPUS: u8 = 7;
    /// Text: the processor's name.
    pub const CPUDESC: u8 = 8;
    /// Text: `GenuineIntel,6,61,4` (vendor, family, model, stepping).
    pub const CPUID: u8 = 9;
    /// u32 count, then that many texts.
    pub const CMDLINE: u8 = 11;
    /// u32 events, u32 attr size, then for each: attr, u32 ids, text name, u64 ids.
    pub const EVENT_DESC: u8 = 12;
    /// u64 count, then that many pairs of u64 file offset and u64 size of AUXTRACE records.
    pub const AUXTRACE: u8 = 18;
    /// u64 time of the first sample, u64 time of the last.
    pub const SAMPLE_TIME: u8 = 21;
    /// u64 frequency of the clock that `perf record -k` selected.
    pub const CLOCKID: u8 = 23;
    /// u64 version. The data is a folder, with one file for version 0, else several.
    pub const DIR_FORMAT: u8 = 24;
    /// u32 count, then each program's `bpf_prog_info` and the data that it points to.
    pub const BPF_PROG_INFO: u8 = 25;
    /// Compression of records: u32 version, u32 type (1: zstd), u32 level, u32 ratio, u32 mmap_len.
    pub const COMPRESSED: u8 = 27;
    /// u32 version, u32 clock id, u64 nanoseconds of the wall clock and u64 of that clock at the same instant.
    pub const CLOCK_DATA: u8 = 29;
    /// u32 count, then text PMU and text CPUs for each.
    pub const HYBRID_TOPOLOGY: u8 = 30;
    /// Data of the emulated processor: u32 length of JSON, JSON ([`super::HodoscopeSection`]), code. perf skips
    /// feature bits above those it knows.
    pub const HODOSCOPE: u8 = 255;
}

/// The JSON of the [`feature::HODOSCOPE`] section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HodoscopeSection {
    /// The emulator's description and counts.
    pub notes: RecorderNotes,
    /// Code that is in no file, in order of time. The bytes follow the JSON in this order, without padding.
    pub code: Vec<CodeEntry>,
    /// Size in bytes of the kernel's symbols, which follow the code.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kallsyms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A piece of code that is in no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeEntry {
    /// The process id; `u32::MAX` for the kernel.
    pub pid: u32,
    /// Of a guest: the address of its VMCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<u64>,
    /// Start of validity in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// Time of discovery in nanoseconds of `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_ns: Option<u64>,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}
