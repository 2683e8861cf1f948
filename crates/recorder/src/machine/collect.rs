//! Converts a machine's spool to a perf.data.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read, Seek, Write},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_emulator::{
    FilterRange, Target,
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
        write::{Setup, Source, Writer},
    },
    recording::{
        Checkpoint, CpuCheckpoints, CpuTruth, Cut, KeptCode, Mapping, RecorderNotes, Sideband, SidebandKind,
        Snapshot, Thread,
    },
};
use hodo_intel_pt::encoder::TSC_TICKS_PER_CTC;

use super::{
    code::{self, Piece},
    disk,
    encoded::{self, Encoded},
    kallsyms,
    maps::{CodeMap, code_of},
    memory::Memory,
    modules,
    switches::{date_switches, switches},
    sysroot,
    tracers::{self, Written},
};
use crate::{Error, Request, Tracer, event::Event, filter, units};

/// The ratio of the TSC frequency to the bus frequency in the trace's CBR packets: a cycle is a tick.
const MAX_NONTURBO_RATIO: u8 = 10;
/// Nanoseconds per second.
const NANOSECONDS: u64 = 1_000_000_000;
/// perf's names of the kernel's own mapping; the symbol in the name determines the kernel's address.
const IMAGES: [(&str, &str); 2] =
    [("_text", "[kernel.kallsyms]_text"), ("_stext", "[kernel.kallsyms]_stext")];

/// The system that was recorded.
#[derive(Debug)]
pub(super) struct System {
    pub(super) target: Target,
    /// The file of the guest's first process.
    pub(super) init: PathBuf,
    /// The folder whose files hide those of this system in the guest.
    pub(super) sysroot: Option<PathBuf>,
}

/// The content of a spool except the trace itself.
pub(super) struct Collected {
    engine: String,
    system: System,
    clock: PerfClock,
    machine: Machine,
    /// The rings of the guest's kernel, by CPU.
    rings: Vec<Vec<u8>>,
    threads: Vec<(Thread, Vec<u8>)>,
    /// Where the guest's first process maps its code.
    init_maps: Vec<CodeMap>,
    /// The kernel's symbols of code, and those of the modules that it loaded.
    kallsyms: Vec<u8>,
    /// The modules when recording began.
    modules: String,
    /// The modules that were loaded later.
    loaded: Vec<Loaded>,
    /// Why the recording ends before the command did.
    ended: Option<String>,
    /// The traces of another unit than Intel PT, by processor.
    encoded: Vec<Encoded>,
}

impl Collected {
    /// Reads a spool. `is_ring`: only the last part of the trace was kept.
    pub(super) fn read(
        spool: &Path,
        engine: String,
        system: System,
        memory: &Memory,
        is_ring: bool,
    ) -> Result<Collected, Error> {
        let text = |name: &str| fs::read_to_string(spool.join(name)).map_err(Error::file(&spool.join(name)));
        let mut machine = Machine::load(spool).map_err(Error::file(spool))?;
        if !is_ring {
            machine.cpus = machine.cpus.into_iter().map(Cpu::in_one_piece).collect();
        }
        let mut rings = rings(spool, memory).map_err(Error::file(spool))?;
        if let Some(sysroot) = &system.sysroot {
            rings.iter_mut().for_each(|ring| *ring = sysroot::with_paths_here(ring, sysroot));
        }
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
            system,
            clock,
            machine,
            rings,
            threads: threads_of(&threads),
            init_maps,
            kallsyms,
            modules,
            loaded,
            ended: None,
            encoded: Vec::new(),
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

    /// Makes the traces of another unit than Intel PT, if the machine has one.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn encode(&mut self, spool: Spool<'_>) -> io::Result<()> {
        let target = self.system.target;
        if target != Target::X86_64 {
            let switches: Vec<_> = switches(&self.records(&spool::read_stacks(spool.folder)?)?).collect();
            self.encoded = encoded::encode(spool, target, &self.machine.cpus, &self.clock, &switches)?;
        }
        Ok(())
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
            if counters.hidden > 0 && self.system.target == Target::Aarch64 {
                let count = counters.hidden;
                warnings
                    .push(format!("cpu {cpu}: {count} instructions of 32-bit programs are not in the trace"));
            }
            if witness.is_some_and(|witness| witness != *account) {
                warnings.push(format!(
                    "cpu {cpu}: the instructions counted one by one differ from those of the trace"
                ));
            }
        }
        for (cpu, encoded) in self.machine.cpus.iter().zip(&self.encoded) {
            warnings.extend(encoded.missing.as_ref().map(|missing| format!("cpu {}: {missing}", cpu.cpu)));
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
        let clock = (self.system.target == Target::X86_64).then_some(&self.clock);
        tracers::write(tracer, request, spool, clock, &self.kallsyms)
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
        let unit = units::machine_unit(self.system.target);
        let setup = Setup {
            unit: unit.unwrap_or_default(),
            config: event.config(),
            // The times of another unit are nanoseconds.
            clock: if unit.is_some() { PerfClock::NANOSECONDS } else { self.clock },
            tsc_ctc_ratio: (TSC_TICKS_PER_CTC as u32, 1),
            max_nonturbo_ratio: MAX_NONTURBO_RATIO,
            snapshot: settings.ring.is_some(),
            filter: &filter,
            event: &event.text,
            command,
            version: concat!("hodo ", env!("CARGO_PKG_VERSION")),
            host,
        };
        let folder = spool.folder;
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
        let is_full = spool.is_full();
        if is_full {
            // The notes are in memory now.
            spool::remove_notes(folder);
        }
        let sources = self.machine.cpus.iter().map(|cpu| Source::Cpu(cpu.cpu)).collect();
        let mut writer = Writer::new(out, setup, sources)?;
        beginning.iter().try_for_each(|event| writer.sideband(event))?;
        self.write_records(&records, &mut writer)?;
        writer.finished_round()?;
        self.write_traces(folder, is_full, &mut writer)?;
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| &piece.bytes).copied().collect();
        let snapshots = self.snapshot_notes(&settings.triggers, &records);
        writer.finish(
            &self.section(&pieces, snapshots, settings.counts_time),
            io::Cursor::new(bytes).chain(&self.kallsyms[..]),
        )?;
        Ok(())
    }

    /// Writes the trace of each processor. `is_full`: the disk is, so that files free their space while they are read.
    fn write_traces<W: Write + Seek>(
        &self,
        folder: &Path,
        is_full: bool,
        writer: &mut Writer<'_, W>,
    ) -> io::Result<()> {
        for (index, cpu) in self.machine.cpus.iter().enumerate() {
            if let Some(Encoded { path, pieces, .. }) = self.encoded.get(index) {
                let mut file = disk::open(path, is_full)?;
                for &(length, end) in pieces {
                    writer.trace(
                        index,
                        self.clock.nanos(Tsc(end)),
                        length,
                        &mut file.by_ref().take(length),
                    )?;
                }
                continue;
            }
            let mut file = disk::open(&spool::trace_path(folder, cpu.cpu), is_full)?;
            for (index_of_piece, piece) in cpu.pieces.iter().enumerate() {
                let is_last = index_of_piece + 1 == cpu.pieces.len();
                let closing = if is_last { &cpu.closing[..] } else { &[] };
                let length = piece.length + closing.len() as u64;
                let mut bytes = file.by_ref().take(piece.length).chain(closing);
                writer.trace(index, self.clock.nanos(Tsc(piece.end)), length, &mut bytes)?;
            }
        }
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
        if let Some((name, image)) = self.image() {
            add(kernel, map(image.start, image.end - image.start, name));
        }
        for (name, range) in modules::listed(&self.modules) {
            add(kernel, map(range.start, range.end - range.start, modules::bracketed(name)));
        }
        let init = Thread { pid: 1, tid: 1 };
        for &CodeMap { address, length, file_offset } in &self.init_maps {
            let name = self.system.init.as_os_str().as_bytes();
            let mapping = Mapping { address, length, file_offset, name, build_id: &[], kernel: false };
            add(init, SidebandKind::Map(mapping));
        }
        for (thread, name) in &self.threads {
            add(*thread, SidebandKind::Comm { name, exec: false });
        }
        events
    }

    /// The address range of the kernel's own code, and perf's name of it.
    fn image(&self) -> Option<(&'static [u8], Range<u64>)> {
        let begin = |name| kallsyms::address(&self.kallsyms, name);
        let (name, start) =
            IMAGES.iter().find_map(|&(symbol, name)| Some((name, begin(symbol.as_bytes())?)))?;
        // On some processors, the symbol of the end is none of code.
        let end = begin(b"_etext").or_else(|| kallsyms::last(&self.kallsyms, start))?;
        Some((name.as_bytes(), start..end))
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
        let hidden = |index: usize| self.encoded.get(index).map_or(0, |encoded| encoded.hidden);
        let cpus = self.machine.cpus.iter().enumerate().map(|(index, cpu)| CpuTruth {
            cpu: cpu.cpu,
            instructions: cpu.traced.instructions.saturating_sub(hidden(index)),
            digest: cpu.traced.digest,
            witnessed: cpu.witness.map(|witness| witness == cpu.account),
        });
        // They are places in the packets of Intel PT.
        let with_places = if self.encoded.is_empty() { &self.machine.cpus[..] } else { &[] };
        let checkpoints = with_places.iter().map(|cpu| CpuCheckpoints {
            cpu: cpu.cpu,
            places: cpu.all_checkpoints().iter().map(checkpoint).collect(),
        });
        let notes = RecorderNotes {
            engine: self.engine.clone(),
            frequency: if self.encoded.is_empty() { self.clock.frequency() } else { NANOSECONDS },
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

/// The folder of a spool.
#[derive(Clone, Copy)]
pub(super) struct Spool<'a> {
    pub(super) folder: &'a Path,
    /// Whether it stays as it is, even if the disk is full.
    pub(super) is_kept: bool,
}

impl Spool<'_> {
    /// Whether the disk is too full for a copy.
    pub(super) fn is_full(self) -> bool {
        !self.is_kept && disk::free(self.folder).is_some_and(|free| free < 2 * disk::used(self.folder))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_each_ring_is_in_memory() {
        let (spool, memory) = (tempfile::tempdir().unwrap(), Memory::new(0).unwrap());
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
}
