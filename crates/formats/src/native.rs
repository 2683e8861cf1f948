//! Recordings of the native recorder, which translates a program and logs its control flow (`crates/native`).
//!
//! ```text
//! file ──hodo_native_log──┬─ tables ──► sideband in order of time, code that is in no file, what was not recorded
//!                         └─ threads ─► streams: a log each, of which a block is a piece
//! ```

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    sync::Arc,
};

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_intel_pt::Config;
use hodo_model::{Cause, Loss};
use hodo_native_log::{Clocks, Code, FileError, MAGIC, Recording as Logs, Table, Thread as LogThread, note};

use crate::{
    ClockIdentity, ClockKind, Contents, Format, Input, Unpacked,
    error::{Error, ErrorKind},
    recording::{
        KeptCode, Mapping, Piece, RecorderData, RecorderNotes, Recording, Sideband, SidebandKind, Snapshot,
        Stream, StreamKind, Thread, Untraced,
    },
};

/// The format of native recordings.
pub const FORMAT: Format = Format {
    name: "native recording",
    recognise,
    contents: |_| Contents::FLOW,
    flow: Some(read),
    events: None,
};

/// The mark without the version, which is its last byte.
const MARK: &[u8] = MAGIC.split_last().expect("a mark").1;

/// Whether the bytes begin a native recording of any version.
pub fn recognise(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK)
}

/// Reads a native recording.
///
/// # Errors
/// It is of another version, or a table is damaged.
pub fn read<'a>(input: &Input<'a>) -> Result<Recording<'a>, Error> {
    let logs = Logs::read(input.bytes).map_err(|error| unreadable(input.bytes, &error))?;
    let clock = clock(&logs.clocks);
    let reader = Reader { logs: &logs, unpacked: input.unpacked, clock };
    let sideband = reader.sideband();
    let mut code = reader.code();
    code.sort_by_key(|code| code.time);
    let facts = serde_json::from_slice::<BTreeMap<String, String>>(&logs.facts).unwrap_or_default();
    let host = facts.get("host").cloned();
    let notes = RecorderNotes {
        engine: "native".to_owned(),
        frequency: clock.map_or(0, |clock| clock.frequency()),
        slowed: true,
        counts_time: logs.counts_time,
        untraced: reader.untraced(),
        snapshots: reader.snapshots(),
        ..RecorderNotes::default()
    };
    Ok(Recording {
        config: Config { tsc: clock.is_some(), clock, ..Config::default() },
        streams: streams(&logs),
        sideband,
        recorder: Some(RecorderData { notes, code, kallsyms: &[] }),
        facts: reader.facts(&facts),
        loss: reader.losses(),
        clock_identity: ClockIdentity { kind: ClockKind::Posix(1), host, ..ClockIdentity::default() },
        ..Recording::default()
    })
}

fn unreadable(bytes: &[u8], error: &FileError) -> Error {
    let version = bytes.get(MARK.len()).copied().unwrap_or_default();
    match *error {
        FileError::Magic(_) => Error::invalid(
            MARK.len() as u64,
            "version of the native recording",
            version.into(),
            "the version that this hodo writes; record again, or use the hodo that recorded it",
        ),
        FileError::Cut(at) | FileError::NoBlock(at) | FileError::Damaged(at) => {
            let reason = "the block can't be read, and without this table no log can".to_owned();
            Error { at: at as u64, kind: ErrorKind::Text { what: "native recording", reason } }
        }
    }
}

/// The conversion of ticks to the monotonic clock, from the first and the last pair of both.
fn clock(pairs: &[Clocks]) -> Option<PerfClock> {
    /// The most precise that fits, for processors of 1 GHz or more.
    const SHIFT: u32 = 32;
    let (first, last) = (pairs.first()?, pairs.last()?);
    let (ticks, nanos) = (last.tsc.checked_sub(first.tsc)?, last.nanos.checked_sub(first.nanos)?);
    let multiplier = (u128::from(nanos) << SHIFT).checked_div(ticks.into())?;
    let shift = if multiplier > u32::MAX.into() { SHIFT - 8 } else { SHIFT };
    let multiplier = (multiplier >> (SHIFT - shift)) as u64;
    let nanos_of_first = (u128::from(first.tsc) * u128::from(multiplier)) >> shift;
    PerfClock::new(shift.into(), multiplier, first.nanos.wrapping_sub(nanos_of_first as u64))
}

/// A stream for each log; those of a thread, one for each program that it ran, follow each other.
fn streams<'a>(logs: &Logs<'a>) -> Vec<Stream<'a>> {
    let mut order: HashMap<Thread, usize> = HashMap::new();
    for thread in logs.threads() {
        let next = order.len();
        order.entry(thread_of(thread)).or_insert(next);
    }
    let mut streams: Vec<Stream<'a>> =
        logs.threads().iter().filter_map(|thread| stream(logs, thread)).collect();
    streams.sort_by_key(|stream| stream.thread.and_then(|thread| order.get(&thread)));
    streams
}

fn stream<'a>(logs: &Logs<'a>, thread: &LogThread<'a>) -> Option<Stream<'a>> {
    let log = logs.log(thread)?;
    let mut next = Some(0);
    let piece = |block: &hodo_native_log::Block<'a>| {
        let header = &block.header;
        let after_gap = Some(header.sequence) != mem::replace(&mut next, header.next_sequence());
        Piece { file_offset: block.offset as u64, bytes: block.whole(), after_gap }
    };
    let pieces = log.blocks.iter().map(piece).collect();
    Some(Stream { cpu: None, thread: Some(thread_of(thread)), pieces, kind: StreamKind::Log(Arc::new(log)) })
}

fn thread_of(thread: &LogThread<'_>) -> Thread {
    Thread { pid: thread.process as u32, tid: thread.thread as u32 }
}

/// Converts the tables of a recording.
struct Reader<'r, 'a> {
    logs: &'r Logs<'a>,
    unpacked: &'a Unpacked,
    clock: Option<PerfClock>,
}

/// The order of sideband records with the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Fork,
    Exec,
    Map,
    Name,
    TraceStart,
    SwitchIn,
    SwitchOut,
    Exit,
}

/// A sideband record, before it is in order.
struct TimedRecord<'a> {
    tsc: u64,
    rank: Rank,
    thread: Thread,
    kind: SidebandKind<'a>,
}

impl<'a> TimedRecord<'a> {
    fn new(tsc: u64, rank: Rank, thread: Thread, kind: SidebandKind<'a>) -> TimedRecord<'a> {
        TimedRecord { tsc, rank, thread, kind }
    }
}

impl<'a> Reader<'_, 'a> {
    fn time(&self, tsc: u64) -> Nanos {
        self.clock.map_or(Nanos(0), |clock| clock.nanos(Tsc(tsc)))
    }

    /// All sideband in order of time. Of records with the same time, the begin of a thread comes before what it does, and its
    /// end after that.
    fn sideband(&self) -> Vec<Sideband<'a>> {
        let mut records: Vec<TimedRecord<'a>> = Vec::new();
        let mut first: HashMap<u64, u64> = HashMap::new();
        let mut last: HashMap<Thread, u64> = HashMap::new();
        for thread in self.logs.threads() {
            let begin = thread.blocks.first().map_or(u64::MAX, |block| block.header.first_tsc);
            let earliest = first.entry(thread.table_key).or_insert(begin);
            *earliest = begin.min(*earliest);
            last.insert(thread_of(thread), thread.key);
        }
        for (key, table) in self.logs.tables() {
            // A thread's log begins before the table that says what it runs.
            let begin = first.get(&key).map_or(table.begin, |&first| first.min(table.begin));
            self.add_process(table, begin, &mut records);
        }
        // In the order in which they started.
        let mut known = HashSet::new();
        for thread in self.logs.threads() {
            let is_last = last.get(&thread_of(thread)) == Some(&thread.key);
            self.add_thread(thread, is_last, &mut known, &mut records);
        }
        records.sort_by_key(|record| (record.tsc, record.rank));
        let sideband = records.into_iter().map(|TimedRecord { tsc, thread, kind, .. }| Sideband {
            time: self.clock.map(|clock| clock.nanos(Tsc(tsc))),
            cpu: None,
            thread,
            guest: None,
            kind,
        });
        sideband.collect()
    }

    /// Adds the fork or the exec of a process, the names of its threads, and its mappings.
    fn add_process(&self, table: &Table, begin: u64, records: &mut Vec<TimedRecord<'a>>) {
        let pid = table.pid as u32;
        let main = Thread { pid, tid: pid };
        match &table.parent {
            Some(parent) => {
                let pid = parent.table.pid as u32;
                let kind = SidebandKind::Fork { parent: Thread { pid, tid: pid } };
                records.push(TimedRecord::new(begin, Rank::Fork, main, kind));
            }
            None => {
                let first = table.names.iter().find(|name| name.thread as u32 == pid);
                let name = self.unpacked.keep(first.map(|name| name.name.clone()).unwrap_or_default());
                let kind = SidebandKind::Comm { name, exec: true };
                records.push(TimedRecord::new(begin, Rank::Exec, main, kind));
            }
        }
        for name in &table.names {
            let thread = Thread { pid, tid: name.thread as u32 };
            let kind = SidebandKind::Comm { name: self.unpacked.keep(name.name.clone()), exec: false };
            records.push(TimedRecord::new(name.tsc.max(table.begin), Rank::Name, thread, kind));
        }
        for map in &table.maps {
            let name = if map.name.is_empty() { b"//anon".to_vec() } else { map.name.clone() };
            let mapping = Mapping {
                address: map.address,
                length: map.length,
                file_offset: map.offset,
                name: self.unpacked.keep(name),
                build_id: &[],
                kernel: false,
            };
            let tsc = if map.tsc == table.begin { begin } else { map.tsc };
            records.push(TimedRecord::new(tsc, Rank::Map, main, SidebandKind::Map(mapping)));
        }
    }

    /// Adds the begin and the end of a thread while it ran one program, its last one if `is_last`. The first thread of a
    /// process that is not in `known` is that process's begin: a child that borrows its parent's memory has no table until
    /// it executes a program.
    fn add_thread(
        &self,
        log: &LogThread<'a>,
        is_last: bool,
        known: &mut HashSet<u32>,
        records: &mut Vec<TimedRecord<'a>>,
    ) {
        let thread = thread_of(log);
        let Some((first, last)) = log.blocks.first().zip(log.blocks.last()) else { return };
        let (begin, end) = (first.header.first_tsc, last.header.last_tsc);
        let owner = self.logs.table(log).map(|table| table.pid as u32);
        let mut add = |tsc, rank, kind| records.push(TimedRecord::new(tsc, rank, thread, kind));
        if let Some(owner) = owner.filter(|_| thread.tid != thread.pid) {
            let parent = Thread { pid: owner, tid: owner };
            add(begin, Rank::Fork, SidebandKind::Fork { parent });
        } else if let Some(owner) = owner.filter(|&owner| known.insert(thread.pid) && owner != thread.pid) {
            let parent = Thread { pid: owner, tid: owner };
            add(begin, Rank::Fork, SidebandKind::Fork { parent });
        }
        add(begin, Rank::TraceStart, SidebandKind::TraceStart);
        add(begin, Rank::SwitchIn, SidebandKind::SwitchIn);
        add(end, Rank::SwitchOut, SidebandKind::SwitchOut { preempted: false, next: None });
        if is_last && !log.losses.contains(&note::CLOSED) {
            add(end, Rank::Exit, SidebandKind::Exit);
        }
    }

    /// Code that is in no file. Code that was translated again without a change is listed once.
    fn code(&self) -> Vec<KeptCode<'a>> {
        let mut kept = Vec::new();
        for (_, table) in self.logs.tables() {
            let pid = table.pid as u32;
            let mut latest: HashMap<u64, &Code> = HashMap::new();
            for code in &table.code {
                let before = latest.insert(code.address, code);
                if before.is_none_or(|before| before.bytes != code.bytes) {
                    let time = self.time(code.tsc);
                    kept.push(KeptCode {
                        pid,
                        guest: None,
                        time,
                        // Virtual time is not that of files.
                        found: (!self.logs.counts_time).then_some(time),
                        address: code.address,
                        bytes: self.unpacked.keep(code.bytes.clone()),
                    });
                }
            }
        }
        kept
    }

    /// Programs that were refused, and other code that ran unrecorded.
    fn untraced(&self) -> Vec<Untraced> {
        let of_table = |table: &Table| {
            let pid = table.pid as u32;
            let wanted = |note: &&hodo_native_log::Note| note.note != note::UNSELECTED;
            let notes: Vec<Untraced> = (table.notes.iter().filter(wanted))
                .map(|note| Untraced {
                    thread: Thread { pid, tid: pid },
                    time_ns: self.time(note.tsc).0,
                    reason: format!("{} ({:#x})", note::text(note.note), note.value),
                })
                .collect();
            notes
        };
        self.logs.tables().into_iter().flat_map(|(_, table)| of_table(table)).collect()
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        let snapshot = |snapshot: &hodo_native_log::Snapshot| {
            let [begin, end] = [snapshot.times.start, snapshot.times.end].map(|tsc| self.time(tsc).0);
            Snapshot {
                trigger: snapshot.condition.clone(),
                time_ns: end,
                latency_ns: end.saturating_sub(begin),
                instructions: Some(snapshot.instructions),
                cpu: None,
                thread: Some(Thread { pid: snapshot.process as u32, tid: snapshot.thread as u32 }),
            }
        };
        self.logs.snapshots.iter().map(snapshot).collect()
    }

    /// The losses in the logs, each at its position in the file.
    fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        for thread in self.logs.threads() {
            let stream = format!("tid {}", thread.thread);
            let ends = thread.blocks.first().zip(thread.blocks.last());
            for &lost in &thread.losses {
                let (lost, count) = note::counted(lost);
                if lost == note::FORGOTTEN {
                    losses.push(self.forgotten(count, ends.map(|(_, last)| last)));
                    continue;
                }
                // Blocks are overwritten before the first that is kept; other losses follow the last.
                let (position, tsc) = match (lost, ends) {
                    (note::OVERWRITTEN, Some((first, _))) => (first.offset, Some(first.header.first_tsc)),
                    (_, Some((_, last))) => (last.offset + last.whole().len(), Some(last.header.last_tsc)),
                    (_, None) => (0, None),
                };
                let time = self.clock.zip(tsc).map(|(clock, tsc)| clock.nanos(Tsc(tsc)));
                losses.push(Loss {
                    stream: stream.clone(),
                    cause: Cause::Untraced,
                    bytes: position as u64..position as u64,
                    time: time.map(|time| (time, time)),
                    count,
                    detail: note::text(lost).to_owned(),
                });
            }
            if self.logs.table(thread).is_none() {
                let detail = "the table of its process is missing, so its log can't be read".to_owned();
                let bytes: u64 = thread.blocks.iter().map(|block| block.whole().len() as u64).sum();
                let start = ends.map_or(0, |(first, _)| first.offset as u64);
                let bytes = start..start + bytes;
                losses.push(Loss { stream, cause: Cause::Corrupt, bytes, time: None, count: 1, detail });
            }
        }
        losses.extend(self.logs.damage.as_ref().map(|damage| {
            let (cause, at) = match *damage {
                FileError::NoBlock(at) | FileError::Damaged(at) => (Cause::Corrupt, at),
                FileError::Cut(at) => (Cause::CutShort, at),
                FileError::Magic(_) => (Cause::Corrupt, 0),
            };
            let detail = format!(
                "{damage}; what comes before it is read. The recorder was ended, or the disk was full"
            );
            let stream = String::new();
            Loss { stream, cause, bytes: at as u64..at as u64, time: None, count: 1, detail }
        }));
        losses
    }

    /// The loss of the threads that ended before `kept`, of which nothing is kept.
    fn forgotten(&self, count: u64, kept: Option<&hodo_native_log::Block<'a>>) -> Loss {
        let ends = self.logs.clocks.first().zip(kept);
        let time = ends.map(|(begin, kept)| (self.time(begin.tsc), self.time(kept.header.last_tsc)));
        let (stream, detail) = (String::new(), note::text(note::FORGOTTEN).to_owned());
        Loss { stream, cause: Cause::Untraced, bytes: 0..0, time, count, detail }
    }

    fn facts(&self, own: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
        const KNOWN: [&str; 6] =
            ["command line", "host", "recorder version", "kernel", "processor", "selection"];
        let mut facts = vec![("format", FORMAT.name.to_owned())];
        facts.extend(KNOWN.into_iter().filter_map(|name| Some((name, own.get(name)?.clone()))));
        facts
    }
}
