//! Converts a machine's spool to a perf.data.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_emulator::{
    FilterRange,
    machine::{
        Part, Settings,
        spool::{self, Cpu, Loaded, Machine, StackNote},
        trigger::{MOST_SNAPSHOTS, Trigger},
    },
};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        ring::{RingRecord, ring_records},
        write::{Setup, Source, TraceUnit, Writer},
    },
    recording::{
        Checkpoint, CpuCheckpoints, CpuTruth, Cut, KeptCode, Mapping, RecorderNotes, Sideband, SidebandKind,
        Snapshot, Thread,
    },
};
use hodo_intel_pt::encoder::TSC_TICKS_PER_CTC;

use super::{
    code::{self, Piece},
    disk::{self, Consumed},
    kallsyms,
    memory::Memory,
    modules,
    tracers::{self, Written},
};
use crate::{Error, Request, Tracer, event::Event, filter};

/// The ratio of the TSC frequency to the bus frequency in the trace's CBR packets: a cycle is a tick.
const MAX_NONTURBO_RATIO: u8 = 10;
/// perf's name of the kernel's own mapping; the symbol in the name determines the kernel's address.
const IMAGE: &[u8] = b"[kernel.kallsyms]_text";

/// The content of a spool except the trace itself.
pub(super) struct Collected {
    engine: String,
    clock: PerfClock,
    machine: Machine,
    /// The rings of the guest's kernel, by CPU.
    rings: Vec<Vec<u8>>,
    threads: Vec<(Thread, Vec<u8>)>,
    /// The file of the guest's first process.
    init: PathBuf,
    /// Where that process maps its code.
    init_maps: Vec<CodeMap>,
    /// The kernel's symbols of code, and those of the modules that it loaded.
    kallsyms: Vec<u8>,
    /// The modules when recording began.
    modules: String,
    /// The modules that were loaded later.
    loaded: Vec<Loaded>,
    /// Why the recording ends before the command did.
    ended: Option<String>,
}

impl Collected {
    /// Reads a spool. `is_ring`: only the last part of the trace was kept.
    pub(super) fn read(
        spool: &Path,
        engine: String,
        init: PathBuf,
        memory: &Memory,
        is_ring: bool,
    ) -> Result<Collected, Error> {
        let text = |name: &str| fs::read_to_string(spool.join(name)).map_err(Error::file(&spool.join(name)));
        let mut machine = Machine::load(spool).map_err(Error::file(spool))?;
        if !is_ring {
            machine.cpus = machine.cpus.into_iter().map(Cpu::in_one_piece).collect();
        }
        let rings = rings(spool, memory).map_err(Error::file(spool))?;
        let clock = text("clock")?;
        let clock = clock_of(&clock).ok_or_else(|| {
            Error::Missing(format!("the guest's kernel has no stable clock (it says `{}`)", clock.trim()))
        })?;
        let threads = fs::read(spool.join("threads")).unwrap_or_default();
        let loaded = spool::read_loaded(spool).map_err(Error::file(spool))?;
        let mut kallsyms = kallsyms::text_symbols(&spool.join(spool::SYMBOLS)).unwrap_or_default();
        modules::add_symbols(&mut kallsyms, &loaded);
        let modules = text("modules").unwrap_or_default();
        let init_maps = code_of(&text("maps").unwrap_or_default(), "/init");
        Ok(Collected {
            engine,
            clock,
            machine,
            rings,
            threads: threads_of(&threads),
            init,
            init_maps,
            kallsyms,
            modules,
            loaded,
            ended: None,
        })
    }

    /// Why the plugin could not write all of the recording, if it could not.
    pub(super) fn failed(&self) -> Option<&str> {
        let of_cpus = self.machine.cpus.iter().find_map(|cpu| cpu.counters.failed.as_deref());
        of_cpus.or(self.machine.failed.as_deref())
    }

    /// Whether QEMU ended properly.
    pub(super) fn is_complete(&self) -> bool {
        self.machine.complete
    }

    /// Notes why the recording ends before the command did.
    pub(super) fn set_end(&mut self, reason: String) {
        self.ended = Some(reason);
    }

    /// The number of PAUSE instructions of all processors, recorded or not.
    pub(super) fn pauses(&self) -> u64 {
        self.machine.cpus.iter().map(|cpu| cpu.counters.pauses).sum()
    }

    /// The number of instructions of all processors, recorded or not.
    pub(super) fn all_instructions(&self) -> u64 {
        self.machine.cpus.iter().map(|cpu| cpu.account.instructions).sum()
    }

    /// The number of recorded instructions.
    pub(super) fn instructions(&self) -> u64 {
        self.machine.cpus.iter().map(|cpu| cpu.traced.instructions).sum()
    }

    /// The number of snapshots that triggers asked for.
    pub(super) fn snapshots(&self) -> usize {
        self.machine.snapshots.len()
    }

    pub(super) fn cpus(&self) -> usize {
        self.machine.cpus.len()
    }

    /// Messages for the user.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for Cpu { cpu, counters, account, witness, .. } in &self.machine.cpus {
            if counters.flow_losses > 0 {
                let count = counters.flow_losses;
                warnings.push(format!(
                    "cpu {cpu}: the emulator lost the flow {count} times; the trace is wrong there"
                ));
            }
            if witness.is_some_and(|witness| witness != *account) {
                warnings.push(format!(
                    "cpu {cpu}: the instructions counted one by one differ from those of the trace"
                ));
            }
        }
        warnings.extend(self.ended.as_ref().map(|why| format!("{why}; the recording ends there")));
        if self.snapshots() >= MOST_SNAPSHOTS {
            warnings.push(format!(
                "only the first {MOST_SNAPSHOTS} snapshots were taken; raise the limit of --trigger"
            ));
        }
        if self.machine.unmeasured > 0 {
            let count = self.machine.unmeasured;
            warnings.push(format!(
                "{count} latencies were not measured: their functions did not return for too long"
            ));
        }
        if self.kallsyms.is_empty() {
            warnings.push(
                "the guest did not write its kernel's symbols; kernel functions have no names".to_owned(),
            );
        }
        warnings
    }

    /// Writes the recording of a tracer beside that of Intel PT.
    pub(super) fn beside(&self, tracer: Tracer, request: &Request, spool: &Path) -> Result<Written, Error> {
        tracers::write(tracer, request, spool, &self.clock, &self.kallsyms)
    }

    /// Writes the recording.
    pub(super) fn write(
        &self,
        spool: Spool<'_>,
        out: impl Write + Seek,
        event: &Event,
        settings: &Settings,
        host: &str,
        command: &[Vec<u8>],
    ) -> io::Result<()> {
        let filter = self.filter(&settings.filter);
        let setup = Setup {
            unit: TraceUnit::IntelPt,
            config: event.config(),
            clock: self.clock,
            tsc_ctc_ratio: (TSC_TICKS_PER_CTC as u32, 1),
            max_nonturbo_ratio: MAX_NONTURBO_RATIO,
            snapshot: settings.ring.is_some(),
            filter: &filter,
            event: &event.text,
            command,
            version: concat!("hodo ", env!("CARGO_PKG_VERSION")),
            host,
        };
        let Spool { folder, is_kept } = spool;
        let records = self.records(&spool::read_stacks(folder)?)?;
        let beginning = self.beginning(&records);
        let pieces = code::pieces(
            spool::read_code(folder)?,
            &spool::read_spaces(folder)?,
            &beginning,
            &records,
            &self.clock,
            self.begin(),
        );
        let is_full = !is_kept && disk::free(folder).is_some_and(|free| free < 2 * disk::used(folder));
        if is_full {
            // The notes are in memory now.
            spool::remove_notes(folder);
        }
        let sources = self.machine.cpus.iter().map(|cpu| Source::Cpu(cpu.cpu)).collect();
        let mut writer = Writer::new(out, setup, sources)?;
        beginning.iter().try_for_each(|event| writer.sideband(event))?;
        self.write_records(&records, &mut writer)?;
        writer.finished_round()?;
        for (index, cpu) in self.machine.cpus.iter().enumerate() {
            let path = spool::trace_path(folder, cpu.cpu);
            let mut file: Box<dyn Read> = match is_full {
                true => Box::new(Consumed::open(&path)?),
                false => Box::new(File::open(&path)?),
            };
            for (index_of_piece, piece) in cpu.pieces.iter().enumerate() {
                let is_last = index_of_piece + 1 == cpu.pieces.len();
                let closing = if is_last { &cpu.closing[..] } else { &[] };
                let length = piece.length + closing.len() as u64;
                let mut bytes = file.by_ref().take(piece.length).chain(closing);
                writer.trace(index, self.clock.nanos(Tsc(piece.end)), length, &mut bytes)?;
            }
        }
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| &piece.bytes).copied().collect();
        let snapshots = self.snapshot_notes(&settings.triggers, &records);
        writer.finish(
            &self.section(&pieces, snapshots, settings.counts_time),
            io::Cursor::new(bytes).chain(&self.kallsyms[..]),
        )?;
        Ok(())
    }

    /// Writes the kernel's records, and before those after its load each module that was loaded.
    fn write_records<W: Write + Seek>(
        &self,
        records: &[RingRecord<'_>],
        writer: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        let mut loaded =
            self.loaded.iter().map(|loaded| (self.clock.nanos(Tsc(loaded.time)), loaded)).peekable();
        let mut load = |writer: &mut Writer<'_, W>, until: Option<Nanos>| {
            while let Some((time, module)) =
                loaded.next_if(|(time, _)| until.is_none_or(|until| *time <= until))
            {
                modules::mappings(module, time).try_for_each(|event| writer.sideband(&event))?;
            }
            io::Result::Ok(())
        };
        for record in records {
            load(writer, Some(record.time.unwrap_or_default()))?;
            writer.copy(record)?;
        }
        load(writer, None)
    }

    /// The filter as perf writes it into a recording: functions as addresses, or as offsets in their files.
    fn filter(&self, parts: &[Part]) -> String {
        let no_file = Path::new("");
        let addresses = self.machine.filter.iter().map(|range| (range, no_file));
        let of_files = parts.iter().filter_map(|part| match part {
            Part::File { path, range } => Some((range, path.as_path())),
            _ => None,
        });
        let ranges = addresses.chain(of_files).map(|(range, path)| FilterRange {
            file: path.as_os_str().as_bytes().to_vec(),
            start: range.start,
            size: range.end - range.start,
        });
        filter::to_perf_syntax(&ranges.collect::<Vec<_>>())
    }

    /// The kernel's records of all CPUs, in order of time. The time of a switch is that at which the stack changes.
    fn records(&self, stacks: &[StackNote]) -> io::Result<Vec<RingRecord<'_>>> {
        let mut records = Vec::new();
        for (ring, cpu) in self.rings.iter().zip(0..) {
            // What follows a record that was written in part is lost.
            let whole = ring_records(ring).err().map_or(ring.len(), |error| error.at as usize);
            let mut of_cpu = ring_records(&ring[..whole])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let of_stack = stacks.iter().filter(|note| note.cpu == cpu);
            date_switches(
                &mut of_cpu,
                &of_stack.map(|note| self.clock.nanos(Tsc(note.time))).collect::<Vec<_>>(),
            );
            records.extend(of_cpu);
        }
        records.sort_by_key(|record| record.time);
        Ok(records)
    }

    /// When recording began.
    fn begin(&self) -> Nanos {
        let starts = self.machine.cpus.iter().map(|cpu| cpu.counters.start);
        self.clock.nanos(Tsc(starts.min().unwrap_or(0)))
    }

    /// Returns the state before the first record: the kernel, its modules, threads. A fork inherits what was mapped
    /// before it.
    fn beginning(&self, records: &[RingRecord<'_>]) -> Vec<Sideband<'_>> {
        let first = records.iter().find_map(|record| record.time);
        let begin = first.map_or(self.begin(), |first| first.min(self.begin()));
        let kernel = Thread { pid: KeptCode::KERNEL, tid: 0 };
        let mut events = Vec::new();
        let mut add = |thread, kind| {
            events.push(Sideband { time: Some(begin), cpu: None, thread, guest: None, kind });
        };
        if let Some(image) = self.image() {
            add(kernel, map(image.start, image.end - image.start, IMAGE));
        }
        for (name, range) in modules::listed(&self.modules) {
            add(kernel, map(range.start, range.end - range.start, modules::bracketed(name)));
        }
        let init = Thread { pid: 1, tid: 1 };
        for &CodeMap { address, length, file_offset } in &self.init_maps {
            let name = self.init.as_os_str().as_bytes();
            let mapping = Mapping { address, length, file_offset, name, build_id: &[], kernel: false };
            add(init, SidebandKind::Map(mapping));
        }
        for (thread, name) in &self.threads {
            add(*thread, SidebandKind::Comm { name, exec: false });
        }
        events
    }

    /// The address range of the kernel's own code.
    fn image(&self) -> Option<Range<u64>> {
        Some(kallsyms::address(&self.kallsyms, b"_text")?..kallsyms::address(&self.kallsyms, b"_etext")?)
    }

    /// Why each snapshot was taken, in order of time.
    fn snapshot_notes(&self, triggers: &[Trigger], records: &[RingRecord<'_>]) -> Vec<Snapshot> {
        let mut notes: Vec<Snapshot> = Vec::new();
        for taken in &self.machine.snapshots {
            let [begin, end] = [taken.time.start, taken.time.end].map(|ticks| self.clock.nanos(Tsc(ticks)));
            notes.push(Snapshot {
                trigger: triggers.get(taken.trigger).map_or_else(String::new, |trigger| trigger.text.clone()),
                time_ns: end.0,
                latency_ns: end.0.saturating_sub(begin.0),
                instructions: taken.instructions,
                cpu: Some(taken.cpu),
                thread: None,
            });
        }
        notes.sort_by_key(|note| note.time_ns);
        let mut running = HashMap::new();
        // The first thread of a CPU is the one that its first switch leaves.
        for switch in switches(records) {
            running.entry(switch.cpu).or_insert(switch.from);
        }
        let mut switches = switches(records).peekable();
        for note in &mut notes {
            while let Some(switch) = switches.next_if(|switch| switch.time.0 <= note.time_ns) {
                running.insert(switch.cpu, switch.to);
            }
            note.thread = note.cpu.and_then(|cpu| running.get(&cpu).copied());
        }
        notes
    }

    /// Where the trace of each processor ends, if its command did not.
    fn cut(&self) -> Vec<Cut> {
        let Some(reason) = &self.ended else { return Vec::new() };
        let cut = |cpu: &Cpu| {
            let end = cpu.pieces.last().map_or(cpu.counters.end, |last| last.end);
            Cut { cpu: cpu.cpu, time_ns: self.clock.nanos(Tsc(end)).0, reason: reason.clone() }
        };
        self.machine.cpus.iter().map(cut).collect()
    }

    fn section(&self, pieces: &[Piece], snapshots: Vec<Snapshot>, counts_time: bool) -> HodoscopeSection {
        let code = pieces.iter().map(|piece| CodeEntry {
            pid: piece.pid,
            guest: piece.guest,
            time_ns: piece.time.0,
            found_ns: None,
            address: piece.address,
            length: piece.bytes.len() as u64,
        });
        let cpus = self.machine.cpus.iter().map(|cpu| CpuTruth {
            cpu: cpu.cpu,
            instructions: cpu.traced.instructions,
            digest: cpu.traced.digest,
            witnessed: cpu.witness.map(|witness| witness == cpu.account),
        });
        let checkpoints = self.machine.cpus.iter().map(|cpu| CpuCheckpoints {
            cpu: cpu.cpu,
            places: cpu.all_checkpoints().iter().map(checkpoint).collect(),
        });
        let notes = RecorderNotes {
            engine: self.engine.clone(),
            frequency: self.clock.frequency(),
            counts_time,
            cpus: cpus.collect(),
            checkpoints: checkpoints.filter(|cpu| !cpu.places.is_empty()).collect(),
            snapshots,
            cut: self.cut(),
            ..RecorderNotes::default()
        };
        HodoscopeSection { notes, code: code.collect(), kallsyms: self.kallsyms.len() as u64 }
    }
}

fn checkpoint(&spool::Checkpoint { position, instructions, sum }: &spool::Checkpoint) -> Checkpoint {
    Checkpoint { position, instructions, sum }
}

/// Gives each switch of a CPU the time at which the stack changes: the first change after the kernel's record, if the next
/// record of a switch comes later. `stacks` are the times of the changes.
fn date_switches(records: &mut [RingRecord<'_>], stacks: &[Nanos]) {
    let mut next_switch = None;
    for record in records.iter_mut().rev() {
        let kind = record.sideband.as_ref().map(|sideband| &sideband.kind);
        if !matches!(kind, Some(SidebandKind::SwitchOut { .. })) {
            continue;
        }
        let recorded = record.time;
        let after = stacks.partition_point(|&change| Some(change) < recorded);
        let change =
            stacks.get(after).copied().filter(|&change| next_switch.is_none_or(|next| Some(change) < next));
        record.time = change.or(recorded);
        next_switch = Some(recorded);
    }
}

/// The folder of a spool.
#[derive(Clone, Copy)]
pub(super) struct Spool<'a> {
    pub(super) folder: &'a Path,
    /// Whether it stays as it is, even if the disk is full.
    pub(super) is_kept: bool,
}

/// A switch of threads on a CPU.
struct ThreadSwitch {
    cpu: u32,
    time: Nanos,
    from: Thread,
    to: Thread,
}

fn switches(records: &[RingRecord<'_>]) -> impl Iterator<Item = ThreadSwitch> {
    records.iter().filter_map(|record| {
        let said = record.sideband.as_ref()?;
        let SidebandKind::SwitchOut { next: Some(to), .. } = said.kind else { return None };
        let (cpu, time) = (record.cpu.unwrap_or(0), record.time.unwrap_or_default());
        Some(ThreadSwitch { cpu, time, from: said.thread, to })
    })
}

/// The rings of all CPUs: what the guest emptied into the spool, and what is still in its memory.
///
/// The file `rings` has the same number of words for each CPU: the bytes in the spool that are of earlier rings, and the
/// page numbers of its ring.
fn rings(spool: &Path, memory: &Memory) -> io::Result<Vec<Vec<u8>>> {
    let mut rings = Vec::new();
    while let Ok(ring) = fs::read(spool.join(format!("sideband-{}", rings.len()))) {
        rings.push(ring);
    }
    let words = fs::read(spool.join("rings"))?;
    let words: Vec<u64> = words
        .chunks_exact(size_of::<u64>())
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let words_of_ring = words.len() / rings.len().max(1);
    for (ring, words) in rings.iter_mut().zip(words.chunks_exact(words_of_ring.max(1))) {
        let (of_earlier_rings, frames) = (words[0], &words[1..]);
        let emptied = (ring.len() as u64).saturating_sub(of_earlier_rings);
        ring.extend(memory.rest_of_ring(frames, emptied)?);
    }
    Ok(rings)
}

pub(super) fn map(address: u64, length: u64, name: &[u8]) -> SidebandKind<'_> {
    let mapping = Mapping { address, length, file_offset: address, name, build_id: &[], kernel: true };
    SidebandKind::Map(mapping)
}

/// Parses `shift multiplier zero valid`.
fn clock_of(text: &str) -> Option<PerfClock> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    let mut next = || -> Option<u64> { words.next().flatten() };
    let clock = PerfClock::new(next()?, next()?, next()?);
    let is_valid = next()? != 0;
    clock.filter(|_| is_valid)
}

/// Parses lines of `pid tid name`.
fn threads_of(text: &[u8]) -> Vec<(Thread, Vec<u8>)> {
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let thread = |line: &[u8]| {
        let mut words = line.splitn(3, |&byte| byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
        let thread = Thread { pid: number()?, tid: number()? };
        Some((thread, words.next()?.to_vec()))
    };
    lines.filter_map(thread).collect()
}

/// An executable mapping of a file.
#[derive(Debug, PartialEq, Eq)]
struct CodeMap {
    address: u64,
    length: u64,
    file_offset: u64,
}

/// The executable mappings of a file, from the text of /proc/PID/maps.
fn code_of(maps: &str, file: &str) -> Vec<CodeMap> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let code = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[range, access, offset, _, _, name] = words.as_slice() else { return None };
        let (begin, end) = range.split_once('-')?;
        let address = number(begin)?;
        let (length, file_offset) = (number(end)?.checked_sub(address)?, number(offset)?);
        (name == file && access.contains('x')).then_some(CodeMap { address, length, file_offset })
    };
    maps.lines().filter_map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_each_ring_is_in_memory() {
        let (spool, memory) = (tempfile::tempdir().unwrap(), Memory::new().unwrap());
        let write = |name: &str, bytes: &[u8]| fs::write(spool.path().join(name), bytes).unwrap();
        // The second processor was offline for a while and has used two rings: its first 100 bytes are of the first ring.
        write("sideband-0", &[1; 4000]);
        write("sideband-1", &[2; 150]);
        let words: [u64; 6] = [0, 7, 9, 100, 8, 6];
        write("rings", &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        memory.put(7 * 4096 + 1024, &4004u64.to_le_bytes());
        memory.put(9 * 4096, &[3; 4096]);
        memory.put(8 * 4096 + 1024, &60u64.to_le_bytes());
        memory.put(6 * 4096, &[4; 4096]);
        let rings = rings(spool.path(), &memory).unwrap();
        assert_eq!(rings, [[vec![1; 4000], vec![3; 4]].concat(), [vec![2; 150], vec![4; 10]].concat()]);
    }

    #[test]
    fn code_of_a_file_is_what_it_maps_executable() {
        let maps = "00200000-00207000 r--p 00000000 00:02 12  /init\n00207000-0021c000 r-xp 00006000 00:02 12  /init\n\
                    7f00-7f01 r-xp 0 00:00 0  [vdso]\n7f02-7f03 rw-p 0 00:00 0\n";
        assert_eq!(
            code_of(maps, "/init"),
            [CodeMap { address: 0x20_7000, length: 0x1_5000, file_offset: 0x6000 }]
        );
    }

    #[test]
    fn a_switch_has_the_time_at_which_the_stack_changes() {
        // SWITCH_CPU_WIDE, out: next_prev_pid 7, next_prev_tid 8; trailer of thread 5/6, the time, CPU 1.
        let record = |time: u32| [15, 48 << 16 | 1 << 13, 7, 8, 5, 6, time, 0, 1, 0, 3, 0];
        let words: Vec<u32> = [10, 20, 30, 40].into_iter().flat_map(record).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut records = ring_records(&bytes).unwrap();
        // No change is known of the second switch, and none of the last.
        date_switches(&mut records, &[Nanos(5), Nanos(12), Nanos(33)]);
        let times: Vec<_> = records.iter().map(|record| record.time).collect();
        assert_eq!(times, [12, 20, 33, 40].map(|time| Some(Nanos(time))));
    }
}
