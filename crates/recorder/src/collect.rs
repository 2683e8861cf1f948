//! Converts the emulated processor's spool to a perf.data.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    io::{self, Seek, Write},
    path::Path,
};

use hodo_clock::{Nanos, PerfClock};
use hodo_emulator::{
    Target,
    seal::SealedThread,
    spool::{self, Note, NoteKind, ThreadRecord},
};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        write::{Setup, Source, Writer},
    },
    recording::{Mapping, RecorderNotes, Sideband, SidebandKind, Thread, Truth, Untraced},
};
use hodo_intel_pt::encoder::TSC_TICKS_PER_CTC;

use crate::{
    Error,
    event::Event,
    units::{self, Clock, Encoded},
};

/// Ticks of the virtual clock per second; a tick is a nanosecond.
const FREQUENCY: u64 = 1_000_000_000;
/// The ratio of the TSC frequency to the bus frequency of 100 MHz.
const MAX_NONTURBO_RATIO: u8 = 10;

/// The content of a spool.
pub(crate) struct Collected {
    engine: String,
    /// Ticks of virtual time per second; 0 if the time is another.
    frequency: u64,
    target: Target,
    /// The traces of another unit than Intel PT, of all files of `threads` in order.
    encoded: Vec<Encoded>,
    /// The files of each thread, in order of time.
    threads: BTreeMap<ThreadKey, Vec<ThreadRecord>>,
    notes: Vec<Note>,
    /// The bytes of each code note, in the order of those notes.
    code: Vec<Vec<u8>>,
    /// Process and thread ids of the threads that continued after the recording ended.
    running: BTreeSet<(u32, u32)>,
    /// Messages about unreadable parts of the spool.
    unreadable: Vec<String>,
}

/// A thread; in order of its begin.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct ThreadKey {
    start: u64,
    pid: u32,
    tid: u32,
}

impl Collected {
    /// Reads a sealed spool with these threads; the threads of the processes in `running` may still run.
    pub(crate) fn read(
        spool: &Path,
        engine: String,
        target: Target,
        threads: &[SealedThread],
        running: &BTreeSet<u32>,
        clock: Clock<'_>,
    ) -> Result<Collected, Error> {
        let (mut records, mut notes, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        for thread in threads {
            let path = spool.join(&thread.name);
            match ThreadRecord::read(&path, thread.settled) {
                Ok(record) => records.extend(record),
                Err(error) => {
                    let name = thread.name.to_string_lossy();
                    unreadable.push(format!("the trace of {name} can't be read, and is missing: {error}"));
                }
            }
        }
        for entry in std::fs::read_dir(spool).map_err(Error::file(spool))? {
            let path = entry.map_err(Error::file(spool))?.path();
            if path.extension() == Some(OsStr::new("notes")) {
                let (of_process, torn) = spool::read_notes(&path).map_err(Error::file(&path))?;
                notes.extend(with_code(of_process, &path.with_extension("code"), &mut unreadable));
                if torn > 0 {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    unreadable.push(format!("{name}: {torn} notes can't be read, and are missing"));
                }
            }
        }
        notes.sort_by_key(|(note, _)| (note.time, rank(&note.kind)));
        let (mut notes, code): (Vec<Note>, Vec<_>) = notes.into_iter().unzip();
        let code: Vec<Vec<u8>> = code.into_iter().flatten().collect();
        let mut running_threads = BTreeSet::new();
        for &ThreadRecord { pid, tid, .. } in &records {
            if running.contains(&pid) && Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
                running_threads.insert((pid, tid));
            }
        }
        let mut threads = by_thread(records);
        let encoded = match units::unit(target) {
            Some(_) => units::encode(target, &notes, &code, threads.values().flatten(), clock)?,
            None => Vec::new(),
        };
        place(&mut threads, &mut notes, clock);
        let frequency = if let Clock::Instructions = clock { FREQUENCY } else { 0 };
        let records = threads.values().flatten();
        for (record, encoded) in records.zip(&encoded) {
            if let Some(missing) = &encoded.missing {
                unreadable.push(format!("thread {}: {missing}", record.tid));
            }
        }
        Ok(Collected {
            engine,
            frequency,
            target,
            encoded,
            threads,
            notes,
            code,
            running: running_threads,
            unreadable,
        })
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

    /// Messages for the user.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.untraced().into_iter().map(|untraced| untraced.reason).collect()
    }

    /// Everything that is missing, for any reason.
    fn untraced(&self) -> Vec<Untraced> {
        let of_notes = self.notes.iter().filter_map(|note| match &note.kind {
            NoteKind::Untraced { reason } => Some(Untraced {
                thread: Thread { pid: note.pid, tid: note.tid },
                time_ns: note.time,
                reason: reason.clone(),
            }),
            _ => None,
        });
        let of_threads = self.threads.values().flat_map(|records| {
            let last = records.len() - 1;
            records.iter().enumerate().filter_map(move |(index, record)| {
                let goes_on = index == last && self.running.contains(&(record.pid, record.tid));
                Some(Untraced {
                    thread: Thread { pid: record.pid, tid: record.tid },
                    time_ns: record.end,
                    reason: missing(record, goes_on)?,
                })
            })
        });
        let (pid, tid) = self.threads.keys().next().map_or((0, 0), |key| (key.pid, key.tid));
        let time_ns = self.threads.values().flatten().next().map_or(0, |record| record.start);
        let of_files = self.unreadable.iter().map(|reason| Untraced {
            thread: Thread { pid, tid },
            time_ns,
            reason: reason.clone(),
        });
        of_notes.chain(of_threads).chain(of_files).collect()
    }

    pub(crate) fn write(
        &self,
        out: impl Write + Seek,
        event: &Event,
        filter: &str,
        command: &[Vec<u8>],
    ) -> io::Result<()> {
        let unit = units::unit(self.target);
        let snapshot = self.threads.values().flatten().any(|record| record.ring.is_some());
        let setup = Setup {
            unit: unit.unwrap_or_default(),
            config: event.config(),
            clock: PerfClock::NANOSECONDS,
            tsc_ctc_ratio: (TSC_TICKS_PER_CTC as u32, 1),
            max_nonturbo_ratio: MAX_NONTURBO_RATIO,
            snapshot,
            filter,
            event: &event.text,
            command,
            version: concat!("hodo ", env!("CARGO_PKG_VERSION")),
            host: "",
        };
        let names = self
            .threads
            .keys()
            .map(|&ThreadKey { pid, tid, .. }| Source::Thread(Thread { pid, tid }))
            .collect();
        let mut writer = Writer::new(out, setup, names)?;
        self.sideband().iter().try_for_each(|event| writer.sideband(event))?;
        writer.finished_round()?;
        let mut encoded = self.encoded.iter();
        for (index, records) in self.threads.values().enumerate() {
            for record in records {
                let end = Nanos(record.end);
                if unit.is_none() {
                    let (length, bytes) = record.trace()?;
                    writer.trace(index, end, length, bytes)?;
                } else if let Some(Encoded { bytes, .. }) = encoded.next() {
                    writer.trace(index, end, bytes.len() as u64, bytes.as_slice())?;
                }
            }
        }
        writer.finish(&self.hodoscope(), self.code.concat().as_slice())?;
        Ok(())
    }

    /// All sideband in order of time, including the records that follow from the lives of threads.
    fn sideband(&self) -> Vec<Sideband<'_>> {
        let mut events: Vec<((u64, Rank), Sideband<'_>)> = Vec::new();
        for note in &self.notes {
            if let Some(kind) = sideband_kind(&note.kind) {
                let thread = Thread { pid: note.pid, tid: note.tid };
                events.push(((note.time, rank(&note.kind)), event(note.time, thread, kind)));
            }
        }
        for (&ThreadKey { pid, tid, .. }, records) in &self.threads {
            let thread = Thread { pid, tid };
            let start = records.first().map_or(0, |record| record.start);
            let end = records.last().map_or(0, |record| record.end);
            let exit = (!self.running.contains(&(pid, tid))).then_some((end, Rank::Exit, SidebandKind::Exit));
            let life = [
                (start, Rank::TraceStart, SidebandKind::TraceStart),
                (start, Rank::SwitchIn, SidebandKind::SwitchIn),
                (end, Rank::SwitchOut, SidebandKind::SwitchOut { preempted: false, next: None }),
            ];
            for (time, rank, kind) in life.into_iter().chain(exit) {
                events.push(((time, rank), event(time, thread, kind)));
            }
        }
        events.sort_by_key(|&(key, _)| key);
        events.into_iter().map(|(_, event)| event).collect()
    }

    fn hodoscope(&self) -> HodoscopeSection {
        let mut encoded = self.encoded.iter();
        let threads = self.threads.iter().map(|(&ThreadKey { pid, tid, .. }, records)| {
            let hidden: u64 = encoded.by_ref().take(records.len()).map(|trace| trace.hidden).sum();
            let sum = |count: fn(&ThreadRecord) -> u64| records.iter().map(count).sum();
            Truth {
                thread: Thread { pid, tid },
                instructions: sum(|record| record.instructions),
                calls: sum(|record| record.calls),
                traced_instructions: sum(|record| record.traced_instructions).saturating_sub(hidden),
                traced_calls: sum(|record| record.traced_calls),
            }
        });
        let code = self.notes.iter().filter_map(|note| match note.kind {
            NoteKind::Code { address, length, found, .. } => {
                let (time_ns, found_ns) = (note.time, Some(found));
                Some(CodeEntry { pid: note.pid, guest: None, time_ns, found_ns, address, length })
            }
            _ => None,
        });
        let notes = RecorderNotes {
            engine: self.engine.clone(),
            frequency: self.frequency,
            threads: threads.collect(),
            untraced: self.untraced(),
            ..RecorderNotes::default()
        };
        HodoscopeSection { notes, code: code.collect(), kallsyms: 0 }
    }
}

/// Puts the times of threads and notes on the clock of their trace.
fn place(threads: &mut BTreeMap<ThreadKey, Vec<ThreadRecord>>, notes: &mut [Note], clock: Clock<'_>) {
    for record in threads.values_mut().flatten() {
        (record.start, record.end) = (clock.nanos(record.start), clock.nanos(record.end));
    }
    if let Clock::Counter(_) = clock {
        // What a slave runs is known before it starts; its trace begins when it does.
        let start = threads.values().flatten().map(|record| record.start).min().unwrap_or(0);
        notes.iter_mut().for_each(|note| note.time = start);
    }
}

/// Reads the bytes of each code note of a process from its code file. Drops notes whose bytes are missing, and adds a
/// message to `unreadable`.
fn with_code(
    notes: Vec<Note>,
    code: &Path,
    unreadable: &mut Vec<String>,
) -> impl Iterator<Item = (Note, Option<Vec<u8>>)> {
    let bytes = std::fs::read(code).unwrap_or_default();
    let mut missing = 0u64;
    let with_code = notes.into_iter().filter_map(|note| {
        let NoteKind::Code { offset, length, .. } = note.kind else { return Some((note, None)) };
        let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let bytes = range.and_then(|(offset, length)| bytes.get(offset..)?.get(..length));
        missing += u64::from(bytes.is_none());
        Some((note, Some(bytes?.to_vec())))
    });
    let with_code: Vec<_> = with_code.collect();
    if missing > 0 {
        let name = code.file_name().unwrap_or_default().to_string_lossy();
        unreadable.push(format!("{missing} pieces of code are missing from {name}"));
    }
    with_code.into_iter()
}

/// Returns messages about the missing parts of a thread's trace; `goes_on`: the thread still runs.
fn missing(record: &ThreadRecord, goes_on: bool) -> Option<String> {
    let who = format!("thread {}", record.tid);
    match record {
        ThreadRecord { stopped: true, .. } => Some(format!("{who}: the disk is full; its trace ends early")),
        ThreadRecord { cut: true, .. } => {
            Some(format!("{who} was killed while its trace was written; the trace ends slightly early"))
        }
        ThreadRecord { flow_losses: 1.., .. } => Some(format!(
            "{who}: the emulator lost the flow {} times; the trace has gaps there",
            record.flow_losses
        )),
        _ if goes_on => Some(format!("{who} was still running when the recording ended")),
        _ => None,
    }
}

/// The files of each thread; threads in the order in which they began.
fn by_thread(mut records: Vec<ThreadRecord>) -> BTreeMap<ThreadKey, Vec<ThreadRecord>> {
    records.sort_by_key(|record| (record.pid, record.tid, record.start, record.sequence));
    let mut threads: BTreeMap<ThreadKey, Vec<ThreadRecord>> = BTreeMap::new();
    let mut key = ThreadKey::default();
    for record in records {
        if (key.pid, key.tid) != (record.pid, record.tid) {
            key = ThreadKey { start: record.start, pid: record.pid, tid: record.tid };
        }
        threads.entry(key).or_default().push(record);
    }
    threads
}

/// Order among records with the same time: a thread exists before it acts, and code that no file contains comes after
/// the mapping that it overlays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Fork,
    Comm,
    Map,
    Code,
    TraceStart,
    SwitchIn,
    SwitchOut,
    Exit,
}

fn rank(kind: &NoteKind) -> Rank {
    match kind {
        NoteKind::Fork { .. } => Rank::Fork,
        NoteKind::Comm { .. } => Rank::Comm,
        NoteKind::Map(_) => Rank::Map,
        NoteKind::Code { .. } | NoteKind::Untraced { .. } => Rank::Code,
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
