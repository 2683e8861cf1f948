//! Writes perf.data: recordings of Intel PT, per thread or per CPU, that perf can decode; of Arm's trace units too, and of
//! RISC-V's, which perf does not know.
//!
//! ```text
//! Setup, sources ──► header, attr, AUXTRACE_INFO, ID_INDEX
//! Sideband…      ──► COMM, MMAP2, FORK, …, each with its sample_id
//! trace bytes    ──► AUX and AUXTRACE records, copied through
//! notes, code    ──► feature sections, including the hodoscope section
//! ```
//!
//! Write sideband in order of time, before the trace. [`Writer::finish`] fills in the sizes of sections, which are
//! unknown until the end. Memory use grows with the number of sources and trace pieces, not with their size.

mod bodies;
mod unit;

use std::{
    collections::HashMap,
    io::{self, Read, Seek, SeekFrom, Write},
};

use hodo_clock::{Nanos, PerfClock};

use super::layout::{
    AUXTRACE_ALIGNMENT, AUXTRACE_SIZE, FILE_HEADER_SIZE, HodoscopeSection, MAGIC, NO_CPU, RECORD_HEADER_SIZE,
    SECTION_SIZE, attr_flag, aux_flag, auxtrace_type, feature, intel_pt_config, intel_pt_info, record,
    sample,
};
use super::ring::RingRecord;
use crate::recording::{Sideband, Thread};
use bodies::{sideband_body, words};
pub use unit::TraceUnit;

/// `type` of the event: the number of the intel_pt PMU in the recording kernel.
const PMU_TYPE: u32 = 8;
/// PERF_ATTR_SIZE_VER7, as perf 6.1 writes it.
const ATTR_SIZE: u32 = 128;
/// The first source's event id; the others are consecutive.
const FIRST_ID: u64 = 1;
/// `have_sched_switch`: SWITCH_CPU_WIDE records per CPU.
const SWITCHES_OF_CPUS: u64 = 3;
/// PROT_READ and PROT_EXEC of an MMAP2 record, and MAP_PRIVATE.
const PROTECTION: [u32; 2] = [5, 2];

/// The properties of a recording.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// What wrote the trace.
    pub unit: TraceUnit<'a>,
    /// `perf_event_attr.config` of the event, built from the bits in [`intel_pt_config`]. That of CoreSight units of CPUs follows
    /// from their registers.
    pub config: u64,
    /// The conversion from ticks to nanoseconds.
    pub clock: PerfClock,
    /// TSC ticks per tick of the crystal clock: numerator and denominator.
    pub tsc_ctc_ratio: (u32, u32),
    /// TSC frequency over bus frequency.
    pub max_nonturbo_ratio: u8,
    /// Whether the trace is a snapshot of a ring buffer.
    pub snapshot: bool,
    /// The address filter, in perf's syntax.
    pub filter: &'a str,
    /// The event as requested, such as `intel_pt//u`.
    pub event: &'a str,
    /// The recording command.
    pub command: &'a [Vec<u8>],
    /// The recording program and its version.
    pub version: &'a str,
    /// The name of the recorded host; empty to write none.
    pub host: &'a str,
}

/// The source of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A thread, on any CPU.
    Thread(Thread),
    /// A CPU, running any thread. All sources of a recording are of one kind.
    Cpu(u32),
}

impl Source {
    /// The thread id, as records contain it.
    fn tid(self) -> u32 {
        match self {
            Source::Thread(thread) => thread.tid,
            Source::Cpu(_) => u32::MAX,
        }
    }

    /// The CPU, as records contain it.
    fn cpu(self) -> u32 {
        match self {
            Source::Thread(_) => NO_CPU,
            Source::Cpu(cpu) => cpu,
        }
    }
}

/// A perf.data under construction.
#[derive(Debug)]
pub struct Writer<'a, W> {
    out: W,
    position: u64,
    setup: Setup<'a>,
    sources: Vec<Source>,
    indices: HashMap<Source, usize>,
    /// Trace bytes written for each source.
    offsets: Vec<u64>,
    /// File offset of each AUXTRACE record.
    pieces: Vec<u64>,
    data_start: u64,
    first_and_last: Option<(Nanos, Nanos)>,
}

impl<'a, W: Write + Seek> Writer<'a, W> {
    /// Starts a file with one trace for each of `sources`.
    ///
    /// # Errors
    /// Returns the errors of `out`. CoreSight has trace IDs for about a hundred CPUs; more are an error.
    pub fn new(out: W, setup: Setup<'a>, sources: Vec<Source>) -> io::Result<Self> {
        check_ids(setup.unit, &sources)?;
        let offsets = vec![0; sources.len()];
        let mut writer = Writer {
            out,
            position: 0,
            setup,
            indices: sources.iter().enumerate().map(|(index, &source)| (source, index)).collect(),
            sources,
            offsets,
            pieces: Vec::new(),
            data_start: 0,
            first_and_last: None,
        };
        writer.bytes(&[0; FILE_HEADER_SIZE as usize])?;
        let ids: Vec<u8> =
            (0..writer.sources.len()).flat_map(|index| (FIRST_ID + index as u64).to_le_bytes()).collect();
        writer.bytes(&ids)?;
        let mut attr = writer.attr();
        section(&mut attr, FILE_HEADER_SIZE, ids.len() as u64);
        writer.bytes(&attr)?;
        writer.data_start = writer.position;
        let info = match writer.setup.unit {
            TraceUnit::IntelPt => writer.auxtrace_info(),
            other => other.auxtrace_info(PMU_TYPE, writer.setup.snapshot, &writer.sources),
        };
        writer.record(record::AUXTRACE_INFO, 0, &info)?;
        writer.id_index()?;
        if writer.setup.unit != TraceUnit::IntelPt {
            // AUXTRACE_INFO of Intel PT contains it.
            let clock = &writer.setup.clock;
            let conversion = words(&[clock.shift().into(), clock.multiplier().into(), clock.zero()]);
            writer.record(record::TIME_CONV, 0, &conversion)?;
        }
        Ok(writer)
    }

    /// Writes one sideband record. Records must be in order of time.
    ///
    /// # Errors
    /// If `out` fails, or a text exceeds the size of a record.
    pub fn sideband(&mut self, event: &Sideband<'_>) -> io::Result<()> {
        let mut record = sideband_body(event);
        if let Some(time) = event.time {
            let (first, last) = self.first_and_last.unwrap_or((time, time));
            self.first_and_last = Some((first.min(time), last.max(time)));
        }
        self.sample_id(&mut record.bytes, event.thread, event.time.unwrap_or_default(), event.cpu);
        self.record(record.kind, record.misc, &record.bytes)
    }

    /// Copies a kernel's sideband record. Records must be in order of time, together with the others.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn copy(&mut self, record: &RingRecord<'_>) -> io::Result<()> {
        let time = record.time.unwrap_or_default();
        let (first, last) = self.first_and_last.unwrap_or((time, time));
        self.first_and_last = Some((first.min(time), last.max(time)));
        let mut body = record.body.to_vec();
        self.sample_id(&mut body, record.thread, time, record.cpu);
        self.record(record.kind, record.misc, &body)
    }

    /// Ends a run of sideband. perf sorts records by time between two such marks.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn finished_round(&mut self) -> io::Result<()> {
        self.record(record::FINISHED_ROUND, 0, &[])
    }

    /// Appends `length` bytes to the trace of the source at `index`; `end` is the time at which they were complete. They
    /// end between two packets: perf can't read a packet that lies in two pieces.
    ///
    /// # Errors
    /// If `out` or `trace` fails, or the trace is shorter than `length`.
    pub fn trace(&mut self, index: usize, end: Nanos, length: u64, mut trace: impl Read) -> io::Result<()> {
        let (thread, cpu) = match self.sources[index] {
            Source::Thread(thread) => (thread, None),
            Source::Cpu(cpu) => (Thread { pid: 0, tid: 0 }, Some(cpu)),
        };
        let flags = if self.setup.snapshot { aux_flag::OVERWRITE } else { 0 };
        if length > 0 {
            let mut body = words(&[self.offsets[index], length, flags]);
            self.sample_id(&mut body, thread, end, cpu);
            self.record(record::AUX, 0, &body)?;
            self.piece(index, length, self.setup.clock.ticks(end).0, &mut trace)?;
            self.offsets[index] += length;
        }
        Ok(())
    }

    /// Writes an AUXTRACE record with its trace bytes. perf takes the upper bits of the first TSC packet from
    /// `reference`, and ignores TSC packets if that is 0.
    fn piece(&mut self, index: usize, size: u64, reference: u64, trace: &mut impl Read) -> io::Result<()> {
        let padded = size.next_multiple_of(AUXTRACE_ALIGNMENT);
        self.pieces.push(self.position);
        let mut body = words(&[padded, self.offsets[index], reference]);
        let source = self.sources[index];
        for word in [index as u32, source.tid(), source.cpu(), 0] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        self.record(record::AUXTRACE, 0, &body)?;
        let copied = io::copy(&mut trace.take(size), &mut self.out)?;
        if copied != size {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{copied} of {size} trace bytes"),
            ));
        }
        self.position += copied;
        self.bytes(&vec![0; (padded - size) as usize])
    }

    /// Writes the feature sections and the header. `code` supplies the bytes of `section.code`, concatenated, and
    /// then the kernel's symbols.
    ///
    /// # Errors
    /// Returns the errors of `out` and `code`.
    pub fn finish(mut self, hodoscope: &HodoscopeSection, code: impl Read) -> io::Result<W> {
        self.finished_round()?;
        let data_end = self.position;
        let features = self.features();
        let mut bits = [0; 32];
        let mut table = Vec::new();
        let mut offset = data_end + SECTION_SIZE * (features.len() as u64 + 1);
        for (bit, bytes) in &features {
            bits[usize::from(bit / 8)] |= 1 << (bit % 8);
            section(&mut table, offset, bytes.len() as u64);
            offset += bytes.len() as u64;
        }
        bits[usize::from(feature::HODOSCOPE / 8)] |= 1 << (feature::HODOSCOPE % 8);
        let json = serde_json::to_vec(hodoscope)?;
        let code_length: u64 = hodoscope.code.iter().map(|entry| entry.length).sum();
        section(&mut table, offset, 4 + json.len() as u64 + code_length + hodoscope.kallsyms);
        self.bytes(&table)?;
        features.iter().try_for_each(|(_, bytes)| self.bytes(bytes))?;
        self.bytes(&(json.len() as u32).to_le_bytes())?;
        self.bytes(&json)?;
        let code_length = code_length + hodoscope.kallsyms;
        let copied = io::copy(&mut code.take(code_length), &mut self.out)?;
        if copied != code_length {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{copied} of {code_length} code bytes"),
            ));
        }
        self.out.seek(SeekFrom::Start(0))?;
        let header = self.header(data_end, &bits);
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(&self, data_end: u64, features: &[u8; 32]) -> Vec<u8> {
        let attr_size = u64::from(ATTR_SIZE) + SECTION_SIZE;
        let mut header = MAGIC.to_vec();
        header.extend(words(&[FILE_HEADER_SIZE, attr_size]));
        section(&mut header, self.data_start - attr_size, attr_size);
        section(&mut header, self.data_start, data_end - self.data_start);
        section(&mut header, 0, 0);
        header.extend_from_slice(features);
        header
    }

    fn attr(&self) -> Vec<u8> {
        let mut attr = Vec::new();
        attr.extend_from_slice(&PMU_TYPE.to_le_bytes());
        attr.extend_from_slice(&ATTR_SIZE.to_le_bytes());
        let period = 1;
        let samples = sample::IP | sample::TID | sample::TIME | sample::CPU | sample::IDENTIFIER;
        let of_program = attr_flag::INHERIT | attr_flag::EXCLUDE_KERNEL | attr_flag::ENABLE_ON_EXEC;
        let flags = attr_flag::DISABLED
            | if self.per_cpu() { 0 } else { of_program }
            | attr_flag::EXCLUDE_HV
            | attr_flag::MMAP
            | attr_flag::COMM
            | attr_flag::TASK
            | attr_flag::SAMPLE_ID_ALL
            | attr_flag::MMAP2
            | attr_flag::COMM_EXEC
            | attr_flag::CONTEXT_SWITCH
            | attr_flag::BUILD_ID;
        let config = self.setup.unit.event_config(self.setup.config, self.per_cpu());
        attr.extend(words(&[config, period, samples, 0, flags]));
        attr.resize(ATTR_SIZE as usize, 0);
        attr
    }

    fn auxtrace_info(&self) -> Vec<u8> {
        use intel_pt_info as index;
        let clock = &self.setup.clock;
        let mut filter = self.setup.filter.as_bytes().to_vec();
        let mut private = [0u64; index::WORDS];
        private[index::PMU_TYPE] = PMU_TYPE.into();
        private[index::TIME_SHIFT] = clock.shift().into();
        private[index::TIME_MULT] = clock.multiplier().into();
        private[index::TIME_ZERO] = clock.zero();
        private[index::CAP_USER_TIME_ZERO] = 1;
        private[index::TSC_BIT] = intel_pt_config::TSC;
        private[index::NORETCOMP_BIT] = intel_pt_config::NORETCOMP;
        if self.per_cpu() {
            private[index::HAVE_SCHED_SWITCH] = SWITCHES_OF_CPUS;
            private[index::PER_CPU_MMAPS] = 1;
        }
        private[index::SNAPSHOT_MODE] = self.setup.snapshot.into();
        private[index::MTC_BIT] = intel_pt_config::MTC;
        private[index::MTC_FREQ_BITS] = intel_pt_config::MTC_PERIOD;
        private[index::TSC_CTC_N] = self.setup.tsc_ctc_ratio.0.into();
        private[index::TSC_CTC_D] = self.setup.tsc_ctc_ratio.1.into();
        private[index::CYC_BIT] = intel_pt_config::CYC;
        private[index::MAX_NONTURBO_RATIO] = self.setup.max_nonturbo_ratio.into();
        private[index::FILTER_STR_LEN] = filter.len() as u64;
        let mut body = words(&[auxtrace_type::INTEL_PT.into()]);
        body.extend(words(&private));
        if !filter.is_empty() {
            filter.resize((filter.len() + 1).next_multiple_of(8), 0);
        }
        body.extend(filter);
        body
    }

    fn per_cpu(&self) -> bool {
        matches!(self.sources.first(), Some(Source::Cpu(_)))
    }

    /// Writes ID_INDEX records, which map event ids to sources.
    fn id_index(&mut self) -> io::Result<()> {
        const ENTRY_SIZE: usize = 32;
        // The size of a record has 16 bits.
        let most_entries = (usize::from(u16::MAX) - 64) / ENTRY_SIZE;
        let entries: Vec<Vec<u8>> = (self.sources.iter().enumerate())
            .map(|(index, source)| {
                let (id, index) = (FIRST_ID + index as u64, index as u64);
                words(&[id, index, source.cpu().into(), source.tid().into()])
            })
            .collect();
        entries.chunks(most_entries).try_for_each(|chunk| {
            let mut body = words(&[chunk.len() as u64]);
            body.extend(chunk.concat());
            self.record(record::ID_INDEX, 0, &body)
        })
    }

    /// Appends a record's trailer: TID, TIME, CPU, IDENTIFIER.
    fn sample_id(&self, body: &mut Vec<u8>, thread: Thread, time: Nanos, cpu: Option<u32>) {
        body.resize(body.len().next_multiple_of(8), 0);
        let source = match cpu.filter(|_| self.per_cpu()) {
            Some(cpu) => Source::Cpu(cpu),
            None => Source::Thread(thread),
        };
        let index = self.indices.get(&source).copied().unwrap_or(0);
        body.extend_from_slice(&thread.pid.to_le_bytes());
        body.extend_from_slice(&thread.tid.to_le_bytes());
        body.extend(words(&[time.0, cpu.unwrap_or(0).into(), FIRST_ID + index as u64]));
    }

    /// The feature sections except the last, by feature bit.
    fn features(&self) -> Vec<(u8, Vec<u8>)> {
        let mut command = (self.setup.command.len() as u32).to_le_bytes().to_vec();
        self.setup.command.iter().for_each(|argument| text(&mut command, argument));
        let mut index = words(&[self.pieces.len() as u64]);
        self.pieces.iter().for_each(|&offset| index.extend(words(&[offset, AUXTRACE_SIZE.into()])));
        let (first, last) = self.first_and_last.unwrap_or_default();
        let one_text = |value: &str| {
            let mut bytes = Vec::new();
            text(&mut bytes, value.as_bytes());
            bytes
        };
        let host = (!self.setup.host.is_empty()).then(|| (feature::HOSTNAME, one_text(self.setup.host)));
        let rest = [
            (feature::VERSION, one_text(self.setup.version)),
            (feature::ARCH, one_text(self.setup.unit.architecture())),
            (feature::CMDLINE, command),
            (feature::EVENT_DESC, self.event_desc()),
            (feature::AUXTRACE, index),
            (feature::SAMPLE_TIME, words(&[first.0, last.0])),
        ];
        host.into_iter().chain(rest).collect()
    }

    fn event_desc(&self) -> Vec<u8> {
        let mut bytes = [1, ATTR_SIZE].map(u32::to_le_bytes).concat();
        bytes.extend(self.attr());
        bytes.extend((self.sources.len() as u32).to_le_bytes());
        text(&mut bytes, self.setup.event.as_bytes());
        bytes.extend((0..self.sources.len()).flat_map(|index| (FIRST_ID + index as u64).to_le_bytes()));
        bytes
    }

    fn record(&mut self, kind: u32, flags: u16, body: &[u8]) -> io::Result<()> {
        let size = u16::try_from(usize::from(RECORD_HEADER_SIZE) + body.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "a record is longer than 65535 bytes")
        })?;
        self.bytes(&kind.to_le_bytes())?;
        self.bytes(&flags.to_le_bytes())?;
        self.bytes(&size.to_le_bytes())?;
        self.bytes(body)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// Checks that CoreSight has a trace ID for each CPU.
fn check_ids(unit: TraceUnit<'_>, sources: &[Source]) -> io::Result<()> {
    let lacks_id = |source: &&Source| match **source {
        Source::Cpu(cpu) => matches!(unit, TraceUnit::CoreSight(_)) && unit.trace_id(cpu).is_none(),
        Source::Thread(_) => false,
    };
    match sources.iter().find(lacks_id) {
        None => Ok(()),
        Some(source) => {
            let reason = format!("CPU {} has no trace ID: CoreSight has no more", source.cpu());
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }
}

fn section(bytes: &mut Vec<u8>, offset: u64, size: u64) {
    bytes.extend(words(&[offset, size]));
}

/// Appends a text in perf's format: padded length, then the text with at least one NUL.
fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    let padded = (text.len() + 1).next_multiple_of(64);
    bytes.extend_from_slice(&(padded as u32).to_le_bytes());
    bytes.extend_from_slice(text);
    bytes.resize(bytes.len() + padded - text.len(), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Mapping, SidebandKind};
    use crate::{Input, Unpacked, perf::layout::CodeEntry, perf::read, recording::RecorderNotes};

    const THREADS: [Thread; 2] = [Thread { pid: 7, tid: 7 }, Thread { pid: 7, tid: 8 }];

    fn sideband() -> Vec<Sideband<'static>> {
        let map = Mapping {
            address: 0x1000,
            length: 0x2000,
            file_offset: 0x3000,
            name: b"/bin/a b",
            build_id: &[9; 20],
            kernel: false,
        };
        let kinds = [
            SidebandKind::Comm { name: b"ab", exec: true },
            SidebandKind::Map(map),
            SidebandKind::Map(Mapping { name: b"//anon", build_id: &[], ..map }),
            SidebandKind::TraceStart,
            SidebandKind::SwitchIn,
            SidebandKind::Fork { parent: THREADS[0] },
            SidebandKind::SwitchOut { preempted: true, next: None },
            SidebandKind::Exit,
        ];
        let event = |(index, kind)| Sideband {
            time: Some(Nanos(100 + index as u64)),
            cpu: Some(0),
            thread: THREADS[usize::from(index == 5)],
            guest: None,
            kind,
        };
        kinds.into_iter().enumerate().map(event).collect()
    }

    fn write(trace: &[&[u8]], section: &HodoscopeSection) -> Vec<u8> {
        let setup = Setup {
            unit: TraceUnit::IntelPt,
            config: intel_pt_config::TSC | intel_pt_config::MTC | 4 << 14,
            clock: PerfClock::new(10, 1024, 0).unwrap(),
            tsc_ctc_ratio: (40, 1),
            max_nonturbo_ratio: 10,
            snapshot: false,
            filter: "filter 0x10/0x20@/bin/a",
            event: "intel_pt//u",
            command: &[b"hodo".to_vec(), b"record".to_vec()],
            version: "hodo test",
            host: "",
        };
        let mut writer =
            Writer::new(io::Cursor::new(Vec::new()), setup, THREADS.map(Source::Thread).to_vec()).unwrap();
        sideband().iter().for_each(|event| writer.sideband(event).unwrap());
        writer.finished_round().unwrap();
        for (index, bytes) in trace.iter().enumerate() {
            writer.trace(index, Nanos(200), bytes.len() as u64, *bytes).unwrap();
        }
        writer.finish(section, &b"codenames"[..]).unwrap().into_inner()
    }

    #[test]
    fn what_is_written_is_read() {
        let section = HodoscopeSection {
            notes: RecorderNotes { engine: "test".into(), frequency: 1, ..RecorderNotes::default() },
            code: vec![CodeEntry {
                pid: 7,
                guest: Some(0x7000),
                time_ns: 5,
                found_ns: None,
                address: 0x5000,
                length: 4,
            }],
            kallsyms: 5,
        };
        let bytes = write(&[&[2, 0x82, 1], &[5; 16]], &section);
        let unpacked = Unpacked::default();
        let recording = read(&Input::file(&bytes, &unpacked)).unwrap();
        assert_eq!(recording.loss, []);
        assert_eq!(recording.sideband, sideband());
        assert_eq!(recording.config.tsc_ctc_ratio, Some((40, 1)));
        assert_eq!(recording.config.mtc_frequency, Some(4));
        assert_eq!(recording.config.filter, "filter 0x10/0x20@/bin/a");
        let streams: Vec<_> =
            recording.streams.iter().map(|stream| (stream.thread, stream.pieces.len())).collect();
        assert_eq!(streams, [(Some(THREADS[0]), 1), (Some(THREADS[1]), 1)]);
        assert!(recording.streams[0].pieces[0].bytes.starts_with(&[2, 0x82, 1]));
        assert_eq!(recording.streams[1].pieces[0].bytes, [5; 16]);
        let emulated = recording.recorder.unwrap();
        assert_eq!(emulated.notes, section.notes);
        assert_eq!((emulated.code[0].address, emulated.code[0].bytes), (0x5000, &b"code"[..]));
        assert_eq!(emulated.kallsyms, b"names");
    }

    #[test]
    fn a_trace_that_ends_early_is_an_error() {
        let setup = Setup {
            unit: TraceUnit::IntelPt,
            config: 0,
            clock: PerfClock::new(10, 1024, 0).unwrap(),
            tsc_ctc_ratio: (1, 1),
            max_nonturbo_ratio: 1,
            snapshot: true,
            filter: "",
            event: "",
            command: &[],
            version: "",
            host: "",
        };
        let mut writer =
            Writer::new(io::Cursor::new(Vec::new()), setup, THREADS.map(Source::Thread).to_vec()).unwrap();
        let error = writer.trace(0, Nanos(1), 10, &[1, 2, 3][..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
