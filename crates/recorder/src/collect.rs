//! From the emulated processor's spool to a perf.data.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use hodo_clock::{Nanos, PerfClock};
use hodo_emulator::spool::{self, HEADER, Note, NoteKind, ThreadRecord};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        write::{Setup, Source, Writer},
    },
    recording::{EmulatedNotes, Mapping, Sideband, SidebandKind, Thread, Truth, Untraced},
};
use hodo_intel_pt::encoder::TSC_TICKS_PER_CTC;

use crate::{Error, event::Event};

/// Ticks of the virtual clock in a second; a tick is a nanosecond.
const FREQUENCY: u64 = 1_000_000_000;
/// TSC frequency over the bus frequency of 100 MHz.
const MAX_NONTURBO_RATIO: u8 = 10;

/// Everything in a spool.
pub(crate) struct Collected {
    engine: String,
    /// The files of each thread, in order of time.
    threads: BTreeMap<(u64, u32, u32), Vec<ThreadRecord>>,
    notes: Vec<Note>,
    /// Where the bytes of each code note are, in the order of those notes.
    code: Vec<(PathBuf, u64)>,
}

impl Collected {
    pub(crate) fn read(spool: &Path, engine: String) -> Result<Collected, Error> {
        let mut records = Vec::new();
        let mut notes: Vec<(Note, Option<(PathBuf, u64)>)> = Vec::new();
        for entry in std::fs::read_dir(spool).map_err(Error::file(spool))? {
            let path = entry.map_err(Error::file(spool))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("thread-") {
                records.push(ThreadRecord::read(&path).map_err(Error::file(&path))?);
            } else if name.ends_with(".notes") {
                let of_process = spool::read_notes(&path).map_err(Error::file(&path))?;
                notes.extend(with_code(of_process, &path.with_extension("code")));
            }
        }
        notes.sort_by_key(|(note, _)| (note.time, rank(&note.kind)));
        let code = notes.iter().filter_map(|(_, code)| code.clone()).collect();
        let notes = notes.into_iter().map(|(note, _)| note).collect();
        Ok(Collected { engine, threads: by_thread(records), notes, code })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    pub(crate) fn instructions(&self) -> u64 {
        self.threads.values().flatten().map(|record| record.instructions).sum()
    }

    /// What the user should know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let untraced = self.untraced().into_iter().map(|untraced| untraced.reason);
        let odd = self.threads.values().flatten().filter_map(|record| {
            let who = format!("thread {}", record.tid);
            match record {
                ThreadRecord { stopped: true, .. } => {
                    Some(format!("{who}: there is no room left on the disk; its trace ends early"))
                }
                ThreadRecord { cut: true, .. } => {
                    Some(format!("{who} was killed, or is still running; its trace ends a little early"))
                }
                ThreadRecord { surprises: 1.., .. } => Some(format!(
                    "{who}: the emulator lost the flow {} times; the trace has gaps there",
                    record.surprises
                )),
                _ => None,
            }
        });
        untraced.chain(odd).collect()
    }

    fn untraced(&self) -> Vec<Untraced> {
        let reasons = self.notes.iter().filter_map(|note| match &note.kind {
            NoteKind::Untraced { reason } => Some(Untraced {
                thread: Thread { pid: note.pid, tid: note.tid },
                time_ns: note.time,
                reason: reason.clone(),
            }),
            _ => None,
        });
        reasons.collect()
    }

    pub(crate) fn write(
        &self,
        out: impl Write + Seek,
        event: &Event,
        filter: &str,
        command: &[Vec<u8>],
    ) -> io::Result<()> {
        let snapshot = self.threads.values().flatten().any(|record| record.ring.is_some());
        let setup = Setup {
            config: event.config(),
            clock: PerfClock::new(10, 1024, 0).ok_or(io::ErrorKind::InvalidInput)?,
            tsc_ctc_ratio: (TSC_TICKS_PER_CTC as u32, 1),
            max_nonturbo_ratio: MAX_NONTURBO_RATIO,
            snapshot,
            filter,
            event: &event.text,
            command,
            version: concat!("hodo ", env!("CARGO_PKG_VERSION")),
        };
        let names = self.threads.keys().map(|&(_, pid, tid)| Source::Thread(Thread { pid, tid })).collect();
        let mut writer = Writer::new(out, setup, names)?;
        self.sideband().iter().try_for_each(|event| writer.sideband(event))?;
        writer.finished_round()?;
        for (index, records) in self.threads.values().enumerate() {
            for record in records {
                trace(&mut writer, index, record)?;
            }
        }
        writer.finish(&self.hodoscope(), self.code_bytes()?)?;
        Ok(())
    }

    /// All sideband in order of time, with the records that follow from the threads' lives.
    fn sideband(&self) -> Vec<Sideband<'_>> {
        let mut events: Vec<(u64, u8, Sideband<'_>)> = Vec::new();
        for note in &self.notes {
            if let Some(kind) = sideband_kind(&note.kind) {
                let thread = Thread { pid: note.pid, tid: note.tid };
                events.push((note.time, rank(&note.kind), event(note.time, thread, kind)));
            }
        }
        for (&(_, pid, tid), records) in &self.threads {
            let thread = Thread { pid, tid };
            let start = records.first().map_or(0, |record| record.start);
            let end = records.last().map_or(0, |record| record.end);
            for (time, rank, kind) in [
                (start, 4, SidebandKind::TraceStart),
                (start, 5, SidebandKind::SwitchIn),
                (end, 6, SidebandKind::SwitchOut { preempted: false, next: None }),
                (end, 7, SidebandKind::Exit),
            ] {
                events.push((time, rank, event(time, thread, kind)));
            }
        }
        events.sort_by_key(|&(time, rank, _)| (time, rank));
        events.into_iter().map(|(_, _, event)| event).collect()
    }

    fn hodoscope(&self) -> HodoscopeSection {
        let threads = self.threads.iter().map(|(&(_, pid, tid), records)| {
            let sum = |count: fn(&ThreadRecord) -> u64| records.iter().map(count).sum();
            Truth {
                thread: Thread { pid, tid },
                instructions: sum(|record| record.instructions),
                calls: sum(|record| record.calls),
                traced_instructions: sum(|record| record.traced_instructions),
                traced_calls: sum(|record| record.traced_calls),
            }
        });
        let code = self.notes.iter().filter_map(|note| match note.kind {
            NoteKind::Code { address, length, found } => {
                let (time_ns, found_ns) = (note.time, Some(found));
                Some(CodeEntry { pid: note.pid, time_ns, found_ns, address, length })
            }
            _ => None,
        });
        let notes = EmulatedNotes {
            engine: self.engine.clone(),
            frequency: FREQUENCY,
            threads: threads.collect(),
            untraced: self.untraced(),
            ..EmulatedNotes::default()
        };
        HodoscopeSection { notes, code: code.collect(), kallsyms: 0 }
    }

    /// The bytes of all code notes, in their order.
    fn code_bytes(&self) -> io::Result<impl Read> {
        let lengths = self.notes.iter().filter_map(|note| match note.kind {
            NoteKind::Code { length, .. } => Some(length),
            _ => None,
        });
        let mut bytes = Vec::new();
        for ((path, offset), length) in self.code.iter().zip(lengths) {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(*offset))?;
            file.take(length).read_to_end(&mut bytes)?;
        }
        Ok(io::Cursor::new(bytes))
    }
}

/// Adds to each code note of a process where its bytes are in the process's code file.
fn with_code(notes: Vec<Note>, code: &Path) -> impl Iterator<Item = (Note, Option<(PathBuf, u64)>)> {
    let mut end = 0;
    notes.into_iter().map(move |note| {
        let place = match note.kind {
            NoteKind::Code { length, .. } => {
                let start = end;
                end += length;
                Some((code.to_owned(), start))
            }
            _ => None,
        };
        (note, place)
    })
}

/// The files of each thread, threads in the order in which they began.
fn by_thread(mut records: Vec<ThreadRecord>) -> BTreeMap<(u64, u32, u32), Vec<ThreadRecord>> {
    records.sort_by_key(|record| (record.pid, record.tid, record.start, record.sequence));
    let mut threads: BTreeMap<(u64, u32, u32), Vec<ThreadRecord>> = BTreeMap::new();
    let mut key = (0, 0, 0);
    for record in records {
        if (key.1, key.2) != (record.pid, record.tid) {
            key = (record.start, record.pid, record.tid);
        }
        threads.entry(key).or_default().push(record);
    }
    threads
}

/// What comes first among records of one time: who is there before what it does, and code that no
/// file holds over what is mapped.
fn rank(kind: &NoteKind) -> u8 {
    match kind {
        NoteKind::Fork { .. } => 0,
        NoteKind::Comm { .. } => 1,
        NoteKind::Map(_) => 2,
        NoteKind::Code { .. } | NoteKind::Untraced { .. } => 3,
    }
}

fn event(time: u64, thread: Thread, kind: SidebandKind<'_>) -> Sideband<'_> {
    Sideband { time: Some(Nanos(time)), cpu: None, thread, guest: None, kind }
}

fn sideband_kind(kind: &NoteKind) -> Option<SidebandKind<'_>> {
    match kind {
        NoteKind::Comm { name, exec } => Some(SidebandKind::Comm { name, exec: *exec }),
        NoteKind::Map(map) => Some(SidebandKind::Map(Mapping {
            address: map.address,
            length: map.length,
            file_offset: map.file_offset,
            name: &map.name,
            build_id: &map.build_id,
            kernel: false,
        })),
        NoteKind::Fork { parent_pid, parent_tid } => {
            Some(SidebandKind::Fork { parent: Thread { pid: *parent_pid, tid: *parent_tid } })
        }
        NoteKind::Code { .. } | NoteKind::Untraced { .. } => None,
    }
}

/// Copies a thread's trace: what it wrote, or in snapshot mode the last of it, and its tail.
fn trace<W: Write + Seek>(writer: &mut Writer<'_, W>, index: usize, record: &ThreadRecord) -> io::Result<()> {
    let end = Nanos(record.end);
    let tail = record.tail.as_slice();
    let open = |at: u64| {
        let mut file = File::open(&record.path)?;
        file.seek(SeekFrom::Start(HEADER + at))?;
        io::Result::Ok(file)
    };
    let written = record.written;
    match record.ring {
        Some(ring) if written > ring => {
            let split = written % ring;
            let bytes = open(split)?.take(ring - split).chain(open(0)?.take(split)).chain(tail);
            writer.trace(index, end, ring + tail.len() as u64, bytes)
        }
        _ => writer.trace(index, end, written + tail.len() as u64, open(0)?.take(written).chain(tail)),
    }
}
