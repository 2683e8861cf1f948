//! Builds a [`Recording`] from records.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use hodo_bytes::{Cursor, Eof};
use hodo_clock::PerfClock;
use hodo_model::{Cause, Loss};

use super::{
    bpf,
    coresight::CoreSight,
    events::{Attr, Events, SampleId},
    features::{self, BuildIds},
    file::{Features, File, Section},
    info::Info,
    layout::{NO_CPU, TYPE_TRACEPOINT, UPDATE_NAME, aux_flag, feature, record},
    records::Record,
    riscv::RiscV,
    sample::Sample,
    samples::Index,
    sideband::{self, Known},
    streams::{Owner, Queues},
    tracepoint::{SchedSwitch, Switched},
};
use crate::{
    ClockIdentity, ClockKind, TscScale, Unpacked,
    error::Error,
    ftrace,
    recording::{BpfProgram, Guest, Mapping, RecordedEvent, Recording, Sideband, SidebandKind, Thread},
};

/// A loss caused by damage.
pub(super) fn corrupt(bytes: Range<u64>, detail: String) -> Loss {
    Loss { stream: String::new(), cause: Cause::Corrupt, bytes, time: None, count: 1, detail }
}

/// The state accumulated from the records so far.
#[derive(Default)]
pub(super) struct Reader<'a> {
    pub(super) events: Events,
    pub(super) features: Features<'a>,
    info: Option<Info>,
    /// The settings of Arm's trace units, if they wrote the trace.
    coresight: Option<CoreSight>,
    /// The settings of RISC-V's trace encoders, if they wrote the trace.
    riscv: Option<RiscV>,
    /// Whether the trace is of an unsupported kind.
    foreign_trace: bool,
    queues: Queues<'a>,
    sideband: Vec<Sideband<'a>>,
    build_ids: BuildIds<'a>,
    /// Whether events count on CPUs, not in threads.
    is_of_cpus: bool,
    /// The virtual machines of events, by kernel event id.
    guests: HashMap<u64, Guest>,
    /// Event names from records, by kernel event id.
    names: HashMap<u64, String>,
    /// The layout of `sched_switch` samples, if recorded, and the switches from them.
    sched_switch: Option<SchedSwitch>,
    switched: Vec<(SampleId, Switched)>,
    bpf: Vec<BpfProgram<'a>>,
    /// The clock from a TIME_CONV record.
    clock: Option<PerfClock>,
    /// Number of records by type.
    counts: BTreeMap<u32, u64>,
    pub(super) loss: Vec<Loss>,
    /// The index of samples. Set to read software events instead of control flow.
    pub(super) index: Option<Index<'a>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &File<'a>) -> Reader<'a> {
        let mut reader = Reader { events: file.events.clone(), ..Reader::default() };
        let features = file.features.iter();
        features.for_each(|(&bit, &section)| reader.feature(bit, section));
        reader
    }

    /// Adds a feature section. Unreadable content is a loss.
    fn feature(&mut self, bit: u8, section: Section<'a>) {
        let (what, read) = match bit {
            feature::BUILD_ID => {
                let build_ids = features::build_ids(section);
                ("build-id table", build_ids.map(|build_ids| self.build_ids.extend(build_ids)))
            }
            feature::BPF_PROG_INFO => {
                ("BPF programs", bpf::programs(section).map(|programs| self.bpf = programs))
            }
            feature::TRACING_DATA => {
                let format = SchedSwitch::find(ftrace::Cursor::little(section.cursor()));
                ("formats of tracepoints", format.map(|format| self.sched_switch = format))
            }
            _ => ("", Ok(())),
        };
        if let Err(eof) = read {
            self.loss.push(corrupt(eof.at..eof.at, Error::cut_short(what, eof).to_string()));
        }
        self.features.insert(bit, section);
    }

    pub(super) fn count(&mut self, kind: u32) {
        *self.counts.entry(kind).or_default() += 1;
    }

    pub(super) fn take(&mut self, record: &Record<'a>) -> Result<(), Error> {
        self.count(record.kind);
        match record.kind {
            record::AUXTRACE_INFO => self.info(record),
            record::HEADER_ATTR => self.attr(record),
            _ => {
                let name = record::name(record.kind).unwrap_or("record");
                self.dispatch(record).map_err(|eof| Error::cut_short(name, eof))
            }
        }
    }

    fn dispatch(&mut self, record: &Record<'a>) -> Result<(), Eof> {
        let (mut body, sample) = match record.kind {
            record::SAMPLE => return self.sample(record),
            _ => self.events.split(record)?,
        };
        match record.kind {
            record::AUXTRACE => self.queues.add(record),
            record::AUXTRACE_ERROR => self.auxtrace_error(record),
            record::AUX => self.aux(&mut body, sample),
            record::ID_INDEX => self.id_index(&mut body),
            record::EVENT_UPDATE => self.event_update(&mut body),
            record::TIME_CONV => self.time_conv(&mut body),
            record::HEADER_FEATURE => self.header_feature(&mut body),
            record::HEADER_BUILD_ID => {
                let file = features::file_build_id(record.misc, body)?;
                self.build_ids.insert(file.path, file.build_id);
                Ok(())
            }
            record::HEADER_TRACING_DATA => {
                let section = Section { offset: record.trailing_offset(), bytes: record.trailing };
                self.feature(feature::TRACING_DATA, section);
                Ok(())
            }
            _ => self.sideband(record, &mut body, sample),
        }
    }

    /// Adds a record to the index of samples, if software events are read.
    pub(super) fn index(&mut self, region: &'a [u8], record: &Record<'a>) {
        if let Some(index) = &mut self.index {
            index.add(region, record, &self.events);
        }
    }

    fn sideband(&mut self, record: &Record<'a>, body: &mut Cursor<'a>, sample: SampleId) -> Result<(), Eof> {
        if self.index.is_some() {
            return Ok(());
        }
        let known = Known { events: &self.events, guests: &self.guests };
        let sideband = sideband::read(record, body, sample, &known)?;
        if let Some(Sideband { kind: SidebandKind::Lost { records }, .. }) = sideband {
            self.lose(sample, Cause::Truncated, records, "records were lost, the buffer was full");
        }
        self.sideband.extend(sideband);
        Ok(())
    }

    fn info(&mut self, record: &Record<'a>) -> Result<(), Error> {
        if Info::is_coresight(record) {
            let coresight = CoreSight::read(record);
            self.foreign_trace = coresight.is_err();
            self.coresight = Some(coresight?);
            return Ok(());
        }
        if RiscV::is(record) {
            let riscv = RiscV::read(record);
            self.foreign_trace = riscv.is_err();
            self.riscv = Some(riscv?);
            return Ok(());
        }
        let info = Info::read(record);
        self.foreign_trace = info.is_err();
        self.info = Some(info?);
        Ok(())
    }

    /// Adds an event of a pipe file: attr, then ids up to the record's end.
    fn attr(&mut self, record: &Record<'a>) -> Result<(), Error> {
        let mut body = Cursor::new(record.body, record.body_offset());
        let mut attr = Attr::read(&mut body)?;
        while let Ok(id) = body.u64() {
            attr.ids.push(id);
        }
        self.events.add(attr);
        Ok(())
    }

    /// u64 bit, the section's bytes.
    fn header_feature(&mut self, body: &mut Cursor<'a>) -> Result<(), Eof> {
        let bit = body.u64()?;
        let section = Section { offset: body.offset(), bytes: body.rest() };
        if let Ok(bit) = u8::try_from(bit) {
            self.feature(bit, section);
        }
        Ok(())
    }

    /// u64 type, u64 id, the updated value.
    fn event_update(&mut self, body: &mut Cursor<'_>) -> Result<(), Eof> {
        let (kind, id) = (body.u64()?, body.u64()?);
        if kind == UPDATE_NAME {
            self.names.insert(id, String::from_utf8_lossy(body.c_string()).into_owned());
        }
        Ok(())
    }

    /// u64 time_shift, u64 time_mult, u64 time_zero; then fields for short counters.
    fn time_conv(&mut self, body: &mut Cursor<'_>) -> Result<(), Eof> {
        let (shift, multiplier, zero) = (body.u64()?, body.u64()?, body.u64()?);
        self.clock = PerfClock::new(shift, multiplier, zero);
        Ok(())
    }

    /// Reads a sample with trace or a context switch. Other samples do not concern control flow.
    fn sample(&mut self, record: &Record<'a>) -> Result<(), Eof> {
        let Some(attr) = self.events.of_sample(record).filter(|_| self.index.is_none()) else {
            return Ok(());
        };
        let switch = self
            .sched_switch
            .as_ref()
            .filter(|format| attr.kind == TYPE_TRACEPOINT && attr.config == format.id);
        if switch.is_none() && !attr.has(super::layout::sample::AUX) {
            return Ok(());
        }
        let sample = Sample::read(record, attr)?;
        if let Some(switched) = switch.and_then(|format| format.read(sample.raw)) {
            self.switched.push((sample.id, switched));
        }
        if let Some(owner) = self.owner(sample.id).filter(|_| !sample.aux.is_empty()) {
            self.queues.add_sample(owner, sample.aux_offset, sample.aux);
        }
        Ok(())
    }

    /// u64 count; that many u64 id, u64 idx, u64 cpu, u64 tid; since perf 6.0 that many u64 machine_pid, u64 vcpu.
    fn id_index(&mut self, body: &mut Cursor<'_>) -> Result<(), Eof> {
        let count = body.u64()?;
        /// Bytes of an entry with four words.
        const ENTRY: usize = 32;
        let entries = body.take(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(ENTRY))?;
        for entry in entries.chunks_exact(ENTRY) {
            let mut words = Cursor::new(entry, 0);
            let (id, _index, cpu) = (words.u64()?, words.u64()?, words.u64()?);
            self.is_of_cpus |= cpu as u32 != NO_CPU;
            if let (Ok(pid @ 1..), Ok(vcpu)) = (body.u64(), body.u64()) {
                self.guests.insert(id, Guest { pid: pid as u32, vcpu: u32::try_from(vcpu).ok() });
            }
        }
        Ok(())
    }

    /// u64 aux_offset, u64 aux_size, u64 flags.
    fn aux(&mut self, body: &mut Cursor<'_>, sample: SampleId) -> Result<(), Eof> {
        let (offset, size, flags) = (body.u64()?, body.u64()?, body.u64()?);
        if let Some(coresight) = &mut self.coresight {
            coresight.is_raw |= flags & aux_flag::FORMAT == aux_flag::RAW;
        }
        if flags & aux_flag::TRUNCATED != 0 {
            self.lose(sample, Cause::Truncated, 1, "trace was lost, the buffer was full");
            if let Some(owner) = self.owner(sample) {
                self.queues.lost_at(owner, offset.saturating_add(size));
            }
        }
        if flags & aux_flag::PARTIAL != 0 {
            self.lose(sample, Cause::Untraced, 1, "trace has gaps, a virtual machine ran");
        }
        if flags & aux_flag::COLLISION != 0 {
            self.lose(sample, Cause::Truncated, 1, "trace was lost, a sample collided with another");
        }
        Ok(())
    }

    /// u32 type, u32 code, u32 cpu, u32 pid, u32 tid, u32 fmt, u64 ip, u64 time, 64 bytes of text.
    fn auxtrace_error(&mut self, record: &Record<'a>) -> Result<(), Eof> {
        /// Bytes before the text.
        const NUMBERS: usize = 6 * 4 + 2 * 8;
        let mut body = Cursor::new(record.body, record.body_offset());
        body.take(NUMBERS)?;
        let text = String::from_utf8_lossy(body.c_string()).into_owned();
        let bytes = record.offset..record.offset;
        self.loss.push(corrupt(bytes, format!("perf noted an error in the trace: {text}")));
        Ok(())
    }

    /// The owner of the queue that a record belongs to. The trailer may contain both CPU and thread.
    fn owner(&self, sample: SampleId) -> Option<Owner> {
        let cpu = sample.cpu.map(Owner::Cpu);
        let thread = sample.thread.map(|thread| Owner::Thread(thread.tid));
        let is_of_cpus = self.info.as_ref().map_or(self.is_of_cpus, Info::per_cpu);
        if is_of_cpus { cpu.or(thread) } else { thread.or(cpu) }
    }

    fn lose(&mut self, sample: SampleId, cause: Cause, count: u64, detail: &str) {
        let stream = self.owner(sample).map(Owner::name).unwrap_or_default();
        let time = sample.time.map(|time| (time, time));
        self.loss.push(Loss { stream, cause, bytes: 0..0, time, count, detail: detail.to_owned() });
    }

    /// Completes the recording. `is_one_file` is false if the input has several files.
    pub(super) fn finish(mut self, is_one_file: bool, unpacked: &'a Unpacked) -> Recording<'a> {
        let mut config = self.info.as_ref().map(|info| info.config(&self.events.attrs)).unwrap_or_default();
        let cpuid = self.features.get(&feature::CPUID).and_then(|section| features::one_text(*section).ok());
        config.cpu = cpuid.as_deref().and_then(features::cpu);
        config.clock = config.clock.or(self.clock);
        config.tsc |= self.other_unit_has_time();
        let processes = processes(&self.sideband);
        let process = |tid| processes.get(&tid).copied().unwrap_or(tid);
        self.switches(process);
        self.set_build_ids();
        sort_by_time(&mut self.sideband);
        let facts = self.facts();
        let clock_identity = self.clock_identity();
        let queues = std::mem::take(&mut self.queues);
        let snapshots = self.info.as_ref().is_some_and(Info::snapshots)
            || self.coresight.as_ref().is_some_and(CoreSight::snapshots)
            || self.riscv.as_ref().is_some_and(|riscv| riscv.is_snapshot);
        let (mut streams, losses) =
            if self.foreign_trace { Default::default() } else { queues.finish(snapshots, process) };
        if let Some(coresight) = &self.coresight {
            streams = coresight.separate(streams, &self.sideband, unpacked);
        }
        if let Some(riscv) = &self.riscv {
            riscv.mark(&mut streams);
        }
        self.loss.extend(losses);
        if is_one_file && self.folder_of_files() {
            let detail =
                "the other files of the folder that perf recorded into: name the folder instead of its file";
            self.loss.push(Loss { cause: Cause::CutShort, ..corrupt(0..0, detail.to_owned()) });
        }
        let recorder = self.features.get(&feature::HODOSCOPE).map(|section| features::emulated(*section));
        let recorder = recorder.and_then(|read| match read {
            Ok(recorder) => Some(recorder),
            Err(error) => {
                self.loss.push(corrupt(error.at..error.at, error.to_string()));
                None
            }
        });
        let (events, sideband, loss) = (self.recorded(), self.sideband, self.loss);
        Recording {
            config,
            streams,
            sideband,
            events,
            bpf: self.bpf,
            recorder,
            facts,
            loss,
            clock_identity,
            ..Recording::default()
        }
    }

    /// Whether the times of packets of Arm's or RISC-V's units are ticks of the recording's clock. In a recording of threads,
    /// RISC-V's packets are too rare for the code of a time to be found.
    fn other_unit_has_time(&self) -> bool {
        let of_unit = self.coresight.as_ref().map(CoreSight::has_time);
        let of_unit = of_unit.or(self.riscv.as_ref().map(|_| self.is_of_cpus));
        self.clock.is_some() && of_unit.unwrap_or(false)
    }

    /// Whether most records are in other files.
    fn folder_of_files(&self) -> bool {
        let version = self.features.get(&feature::DIR_FORMAT).and_then(|section| section.cursor().u64().ok());
        version.is_some_and(|version| version > 0)
    }

    /// Adds switches from the `sched_switch` tracepoint, if there are no SWITCH records.
    fn switches(&mut self, process: impl Fn(u32) -> u32) {
        if [record::SWITCH, record::SWITCH_CPU_WIDE].iter().any(|kind| self.counts.contains_key(kind)) {
            return;
        }
        let thread = |tid| Thread { pid: process(tid), tid };
        for (SampleId { time, cpu, .. }, Switched { previous, preempted, next }) in self.switched.drain(..) {
            let sideband = |tid, kind| Sideband { time, cpu, thread: thread(tid), guest: None, kind };
            let out = SidebandKind::SwitchOut { preempted, next: Some(thread(next)) };
            self.sideband.extend([sideband(previous, out), sideband(next, SidebandKind::SwitchIn)]);
        }
    }

    /// Sets the build ids of mappings from the file's table of build ids, which may come after the mappings.
    fn set_build_ids(&mut self) {
        for sideband in &mut self.sideband {
            if let SidebandKind::Map(Mapping { name, build_id, .. }) = &mut sideband.kind
                && build_id.is_empty()
            {
                *build_id = self.build_ids.get(name).copied().unwrap_or_default();
            }
        }
    }

    /// Returns the conversion from the time-stamp counter, if known.
    fn tsc_clock(&self) -> Option<PerfClock> {
        let of_trace = self.info.as_ref().and_then(|info| info.config(&self.events.attrs).clock);
        of_trace.or(self.clock)
    }

    /// Returns the clock of times.
    pub(super) fn clock_identity(&self) -> ClockIdentity {
        let section = |feature| self.features.get(&feature).copied();
        let chosen = self.events.attrs.iter().find_map(|attr| attr.clock);
        let moment = section(feature::CLOCK_DATA).and_then(|section| features::moment(section).ok());
        let moment = moment.filter(|moment| Some(moment.clock) == chosen);
        ClockIdentity {
            kind: chosen.map_or(ClockKind::Perf, ClockKind::Posix),
            host: section(feature::HOSTNAME).and_then(|section| features::one_text(section).ok()),
            unix_zero: moment.map(|moment| i128::from(moment.wall) - i128::from(moment.time)),
            tsc: self.tsc_clock().filter(|_| chosen.is_none()).map(TscScale::of),
            ..ClockIdentity::default()
        }
    }

    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("format", "perf.data".to_owned())];
        facts.extend(features::facts(&self.features));
        facts.push(("events", shown(&self.recorded())));
        facts.push(("records", self.records()));
        let unknown = self.events.attrs.iter().fold(0, |all, attr| all | attr.sample_type)
            & !super::layout::sample::ALL;
        if unknown != 0 {
            facts.push(("unknown fields of samples", format!("{unknown:#x}")));
        }
        if self.info.as_ref().is_some_and(Info::snapshots) {
            facts.push(("trace", "snapshots".to_owned()));
        }
        if self.queues.has_samples() {
            facts.push(("trace", "pieces before samples".to_owned()));
        }
        facts
    }

    /// The events, with their names if the file contains them.
    pub(super) fn recorded(&self) -> Vec<RecordedEvent> {
        let section = self.features.get(&feature::EVENT_DESC);
        let names = section.and_then(|section| features::event_names(*section).ok()).unwrap_or_default();
        let name = |(index, attr): (usize, &Attr)| {
            let by_id = || attr.ids.iter().find_map(|id| self.names.get(id));
            let name = names.get(index).or_else(by_id).cloned().unwrap_or_default();
            RecordedEvent { name, pmu: attr.kind, config: attr.config }
        };
        self.events.attrs.iter().enumerate().map(name).collect()
    }

    /// Describes the number of records by type.
    fn records(&self) -> String {
        let shown = |(&kind, count): (&u32, &u64)| match record::name(kind) {
            Some(name) => format!("{count} {name}"),
            None => format!("{count} of unknown type {kind}"),
        };
        self.counts.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// The process of each thread, from the first record that contains the thread.
fn processes(sideband: &[Sideband<'_>]) -> HashMap<u32, u32> {
    let mut processes = HashMap::new();
    for Sideband { thread: Thread { pid, tid }, .. } in sideband {
        processes.entry(*tid).or_insert(*pid);
    }
    processes
}

/// Sorts by time. Records without a timestamp stay after all that precede them in the file.
fn sort_by_time(sideband: &mut Vec<Sideband<'_>>) {
    let mut latest = None;
    let timed = sideband.drain(..).map(|record| {
        latest = latest.max(record.time);
        (record.time.or(latest), record)
    });
    let mut timed: Vec<_> = timed.collect();
    timed.sort_by_key(|(time, _)| *time);
    sideband.extend(timed.into_iter().map(|(_, record)| record));
}

/// The names of the events, or type and config of unnamed ones.
fn shown(events: &[RecordedEvent]) -> String {
    let name = |event: &RecordedEvent| match event.name.as_str() {
        "" => format!("type {} config {:#x}", event.pmu, event.config),
        name => name.to_owned(),
    };
    events.iter().map(name).collect::<Vec<_>>().join(", ")
}
