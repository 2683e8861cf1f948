//! A whole perf.data to a [`Recording`].

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use hodo_bytes::{Cursor, Eof};
use hodo_trace::{Cause, Loss};

use super::{
    events::SampleId,
    features::{self, BuildIds},
    file::{File, Section},
    info::Info,
    layout::{aux_flag, feature, record},
    records::Record,
    sideband::{self, Known},
    streams::{Owner, Queues},
};
use crate::{
    error::Error,
    recording::{Guest, RecordedEvent, Recording, Sideband, SidebandKind, Thread},
};

/// Reads a perf.data.
///
/// Damage is a loss, not an error: what lies before it is returned, and what lies behind it where the
/// file tells how to go on.
///
/// # Errors
/// Those of [`File::open`].
pub fn read(bytes: &[u8]) -> Result<Recording<'_>, Error> {
    let file = File::open(bytes)?;
    let mut reader = Reader::default();
    let parsed = feature_or_loss(&file, feature::BUILD_ID, &mut reader.loss, |section| {
        features::build_ids(section).map_err(|eof| Error::cut_short("build-id table", eof))
    });
    reader.build_ids = parsed.unwrap_or_default();
    let mut cut_at = bytes.len() as u64;
    let mut records = file.records();
    loop {
        let start = records.offset();
        match records.next() {
            None => break,
            Some(Ok(record)) => {
                if let Err(error) = reader.take(&file, &record) {
                    reader.loss.push(corrupt(start..record.trace_offset(), error.to_string()));
                }
            }
            Some(Err(_)) if records.is_done() && file.cut_short().is_some() => cut_at = start,
            Some(Err(error)) => reader.loss.push(corrupt(start..records.offset(), error.to_string())),
        }
    }
    if let Some(detail) = file.cut_short() {
        let bytes = cut_at.min(bytes.len() as u64)..bytes.len() as u64;
        reader.loss.push(Loss { cause: Cause::CutShort, ..corrupt(bytes, detail) });
    }
    Ok(reader.finish(&file))
}

fn corrupt(bytes: Range<u64>, detail: String) -> Loss {
    Loss { stream: String::new(), cause: Cause::Corrupt, bytes, time: None, count: 1, detail }
}

fn feature_or_loss<'a, T>(
    file: &File<'a>,
    bit: u8,
    loss: &mut Vec<Loss>,
    parse: impl Fn(Section<'a>) -> Result<T, Error>,
) -> Option<T> {
    match parse(file.feature(bit)?) {
        Ok(value) => Some(value),
        Err(error) => {
            loss.push(corrupt(error.at..error.at, error.to_string()));
            None
        }
    }
}

/// What the records have said so far.
#[derive(Default)]
struct Reader<'a> {
    info: Option<Info>,
    /// Whether the trace bytes are of a kind that nothing here reads.
    foreign_trace: bool,
    queues: Queues<'a>,
    sideband: Vec<Sideband<'a>>,
    build_ids: BuildIds<'a>,
    /// The virtual machines that events belong to, by the kernel's ids of the events.
    guests: HashMap<u64, Guest>,
    /// How many records of each type there are.
    counts: BTreeMap<u32, u64>,
    loss: Vec<Loss>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, file: &File<'a>, record: &Record<'a>) -> Result<(), Error> {
        *self.counts.entry(record.kind).or_default() += 1;
        if record.kind == record::AUXTRACE_INFO {
            return self.info(record);
        }
        let name = record::name(record.kind).unwrap_or("record");
        self.dispatch(file, record).map_err(|eof| Error::cut_short(name, eof))
    }

    fn dispatch(&mut self, file: &File<'a>, record: &Record<'a>) -> Result<(), Eof> {
        let (mut body, sample) = file.events.split(record)?;
        match record.kind {
            record::AUXTRACE => self.queues.add(record),
            record::AUXTRACE_ERROR => self.auxtrace_error(record),
            record::AUX => self.aux(&mut body, sample),
            record::ID_INDEX => self.id_index(&mut body),
            _ => {
                let known = Known { events: &file.events, build_ids: &self.build_ids, guests: &self.guests };
                let said = sideband::read(record, &mut body, sample, &known)?;
                if let Some(Sideband { kind: SidebandKind::Lost { records }, .. }) = said {
                    self.lose(sample, Cause::Truncated, records, "records were lost, the buffer was full");
                }
                self.sideband.extend(said);
                Ok(())
            }
        }
    }

    fn info(&mut self, record: &Record<'a>) -> Result<(), Error> {
        let info = Info::read(record);
        self.foreign_trace = info.is_err();
        self.info = Some(info?);
        Ok(())
    }

    /// u64 count; as many u64 id, u64 idx, u64 cpu, u64 tid; since perf 6.0 as many u64 machine_pid, u64 vcpu.
    fn id_index(&mut self, body: &mut Cursor<'_>) -> Result<(), Eof> {
        let count = body.u64()?;
        let entries = body.take(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(32))?;
        for entry in entries.chunks_exact(32) {
            let id = Cursor::new(entry, 0).u64()?;
            let (Ok(pid), Ok(vcpu)) = (body.u64(), body.u64()) else { break };
            if pid != 0 {
                self.guests.insert(id, Guest { pid: pid as u32, vcpu: u32::try_from(vcpu).ok() });
            }
        }
        Ok(())
    }

    /// u64 aux_offset, u64 aux_size, u64 flags.
    fn aux(&mut self, body: &mut Cursor<'_>, sample: SampleId) -> Result<(), Eof> {
        let (offset, size, flags) = (body.u64()?, body.u64()?, body.u64()?);
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
        let mut body = Cursor::new(record.body, record.body_offset());
        let at = record.offset;
        body.take(40)?;
        let text = String::from_utf8_lossy(body.c_string()).into_owned();
        self.loss.push(corrupt(at..at, format!("perf noted an error in the trace: {text}")));
        Ok(())
    }

    /// Whose queue a record lies in; the trailer may name both the CPU and the thread.
    fn owner(&self, sample: SampleId) -> Option<Owner> {
        let cpu = sample.cpu.map(Owner::Cpu);
        let thread = sample.thread.map(|thread| Owner::Thread(thread.tid));
        if self.info.as_ref().is_some_and(Info::per_cpu) { cpu.or(thread) } else { thread.or(cpu) }
    }

    fn lose(&mut self, sample: SampleId, cause: Cause, count: u64, detail: &str) {
        let stream = self.owner(sample).map(Owner::name).unwrap_or_default();
        let time = sample.time.map(|time| (time, time));
        self.loss.push(Loss { stream, cause, bytes: 0..0, time, count, detail: detail.to_owned() });
    }

    fn finish(mut self, file: &File<'a>) -> Recording<'a> {
        let mut config = self.info.as_ref().map(|info| info.config(&file.events.attrs)).unwrap_or_default();
        let cpuid = file.feature(feature::CPUID).and_then(|section| features::one_text(section).ok());
        config.cpu = cpuid.as_deref().and_then(features::cpu);
        let snapshots = self.info.as_ref().is_some_and(Info::snapshots);
        let processes = processes(&self.sideband);
        let queues = std::mem::take(&mut self.queues);
        let process = |tid| processes.get(&tid).copied().unwrap_or(tid);
        let (streams, losses) =
            if self.foreign_trace { Default::default() } else { queues.finish(snapshots, process) };
        self.loss.extend(losses);
        let emulated = feature_or_loss(file, feature::HODOSCOPE, &mut self.loss, features::emulated);
        sort_by_time(&mut self.sideband);
        let mut facts = vec![("format", "perf.data".to_owned())];
        facts.extend(features::facts(file));
        let events = events(file);
        facts.push(("events", shown(&events)));
        facts.push(("records", self.records()));
        if snapshots {
            facts.push(("trace", "snapshots".to_owned()));
        }
        Recording {
            config,
            streams,
            sideband: self.sideband,
            events,
            bpf: Vec::new(),
            emulated,
            facts,
            loss: self.loss,
        }
    }

    /// The number of records of each type, in words.
    fn records(&self) -> String {
        let shown = |(&kind, count): (&u32, &u64)| match record::name(kind) {
            Some(name) => format!("{count} {name}"),
            None => format!("{count} of unknown type {kind}"),
        };
        self.counts.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// The process of each thread, as the first record says that names the thread.
fn processes(sideband: &[Sideband<'_>]) -> HashMap<u32, u32> {
    let mut processes = HashMap::new();
    for Sideband { thread: Thread { pid, tid }, .. } in sideband {
        processes.entry(*tid).or_insert(*pid);
    }
    processes
}

/// Sorts by time; records without a time stay behind all that the file has before them.
fn sort_by_time(sideband: &mut Vec<Sideband<'_>>) {
    let mut latest = None;
    let placed = sideband.drain(..).map(|record| {
        latest = latest.max(record.time);
        (record.time.or(latest), record)
    });
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(time, _)| *time);
    sideband.extend(placed.into_iter().map(|(_, record)| record));
}

/// The events, with names where the file has them.
fn events(file: &File<'_>) -> Vec<RecordedEvent> {
    let names = file.feature(feature::EVENT_DESC).and_then(|section| features::event_names(section).ok());
    let names = names.unwrap_or_default().into_iter().chain(std::iter::repeat(String::new()));
    let events = file.events.attrs.iter().zip(names);
    events.map(|(attr, name)| RecordedEvent { name, pmu: attr.kind, config: attr.config }).collect()
}

/// The names of the events, or their numbers where they have no names.
fn shown(events: &[RecordedEvent]) -> String {
    let one = |event: &RecordedEvent| match event.name.as_str() {
        "" => format!("type {} config {:#x}", event.pmu, event.config),
        name => name.to_owned(),
    };
    events.iter().map(one).collect::<Vec<_>>().join(", ")
}
