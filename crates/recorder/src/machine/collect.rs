//! Converts a machine's spool to a perf.data.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek, Write},
    path::Path,
};

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_emulator::machine::spool::{self, Cpu, Machine, StackNote};
use hodo_formats::{
    perf::{
        layout::{CodeEntry, HodoscopeSection},
        ring::{RingRecord, ring_records},
        write::{Setup, Source, Writer},
    },
    recording::{CpuTruth, EmulatedNotes, KeptCode, Mapping, Sideband, SidebandKind, Thread},
};
use hodo_intel_pt::encoder::TSC_TICKS_PER_CTC;

use super::{
    code::{self, Piece},
    tracers::{self, Written},
};
use crate::{Error, Tracer, event::Event};

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
    /// The kernel's symbols of code.
    kallsyms: Vec<u8>,
    modules: String,
}

impl Collected {
    pub(super) fn read(spool: &Path, engine: String) -> Result<Collected, Error> {
        let text = |name: &str| fs::read_to_string(spool.join(name)).map_err(Error::file(&spool.join(name)));
        let machine = Machine::load(spool).map_err(Error::file(spool))?;
        let mut rings = Vec::new();
        while let Ok(ring) = fs::read(spool.join(format!("sideband-{}", rings.len()))) {
            rings.push(ring);
        }
        let clock = text("clock")?;
        let clock = clock_of(&clock).ok_or_else(|| {
            Error::Missing(format!("the guest's kernel has no stable clock (it says `{}`)", clock.trim()))
        })?;
        let threads = fs::read(spool.join("threads")).unwrap_or_default();
        let kallsyms = text_symbols(&spool.join("kallsyms")).unwrap_or_default();
        let modules = text("modules").unwrap_or_default();
        Ok(Collected { engine, clock, machine, rings, threads: threads_of(&threads), kallsyms, modules })
    }

    pub(super) fn instructions(&self) -> u64 {
        self.machine.cpus.iter().map(|cpu| cpu.traced.instructions).sum()
    }

    pub(super) fn cpus(&self) -> usize {
        self.machine.cpus.len()
    }

    /// Messages for the user.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for Cpu { cpu, counters, account, witness, .. } in &self.machine.cpus {
            if counters.surprises > 0 {
                let count = counters.surprises;
                warnings.push(format!(
                    "cpu {cpu}: the emulator lost the flow {count} times; the trace has wrong places"
                ));
            }
            if witness.is_some_and(|witness| witness != *account) {
                warnings.push(format!(
                    "cpu {cpu}: instructions counted one by one are others than those of the trace"
                ));
            }
            warnings.extend(
                counters.failed.as_ref().map(|why| format!("cpu {cpu}: its trace ends early ({why})")),
            );
        }
        warnings.extend(
            self.machine.failed.as_ref().map(|why| format!("code is missing from the recording ({why})")),
        );
        if self.kallsyms.is_empty() {
            warnings.push(
                "the guest ended before it wrote its kernel's symbols; kernel functions have no names"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Writes the recording of a tracer beside `output`.
    pub(super) fn beside(&self, tracer: Tracer, spool: &Path, output: &Path) -> Result<Written, Error> {
        tracers::write(tracer, spool, output, &self.clock, &self.kallsyms)
    }

    pub(super) fn write(
        &self,
        spool: &Path,
        out: impl Write + Seek,
        event: &Event,
        host: &str,
        command: &[Vec<u8>],
    ) -> io::Result<()> {
        let setup = Setup {
            config: event.config(),
            clock: self.clock,
            tsc_ctc_ratio: (TSC_TICKS_PER_CTC as u32, 1),
            max_nonturbo_ratio: MAX_NONTURBO_RATIO,
            snapshot: false,
            filter: "",
            event: &event.text,
            command,
            version: concat!("hodo ", env!("CARGO_PKG_VERSION")),
            host,
        };
        let records = self.records(&spool::read_stacks(spool)?)?;
        let sources = self.machine.cpus.iter().map(|cpu| Source::Cpu(cpu.cpu)).collect();
        let mut writer = Writer::new(out, setup, sources)?;
        self.beginning().iter().try_for_each(|event| writer.sideband(event))?;
        records.iter().try_for_each(|record| writer.copy(record))?;
        writer.finished_round()?;
        for (index, cpu) in self.machine.cpus.iter().enumerate() {
            let path = spool::trace_path(spool, cpu.cpu);
            let end = self.clock.nanos(Tsc(cpu.counters.end));
            writer.trace(index, end, cpu.counters.bytes, File::open(path)?)?;
        }
        let pieces = code::pieces(
            spool::read_code(spool)?,
            &spool::read_spaces(spool)?,
            &records,
            &self.clock,
            self.begin(),
        );
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| &piece.bytes).copied().collect();
        writer.finish(&self.section(&pieces), io::Cursor::new(bytes).chain(&self.kallsyms[..]))?;
        Ok(())
    }

    /// The kernel's records of all CPUs, in order of time. The time of a switch is that at which the stack changes.
    fn records(&self, stacks: &[StackNote]) -> io::Result<Vec<RingRecord<'_>>> {
        let mut records = Vec::new();
        for (ring, cpu) in self.rings.iter().zip(0..) {
            let read = ring_records(ring);
            let mut of_cpu =
                read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
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

    /// Returns the state before the first record: the kernel, its modules, threads.
    fn beginning(&self) -> Vec<Sideband<'_>> {
        let begin = self.begin();
        let kernel = Thread { pid: KeptCode::KERNEL, tid: 0 };
        let mut events = Vec::new();
        let mut add = |thread, kind| {
            events.push(Sideband { time: Some(begin), cpu: None, thread, guest: None, kind });
        };
        if let Some((start, end)) = self.image() {
            add(kernel, map(start, end - start, IMAGE));
        }
        for line in self.modules.lines() {
            let mut words = line.split_whitespace();
            let (name, size) = (words.next(), words.next().and_then(|size| size.parse().ok()));
            let address =
                words.nth(3).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
            if let (Some(name), Some(size), Some(address)) = (name, size, address) {
                // Names must live as long as the recorder runs.
                let name: &'static [u8] = format!("[{name}]").into_bytes().leak();
                add(kernel, map(address, size, name));
            }
        }
        for (thread, name) in &self.threads {
            add(*thread, SidebandKind::Comm { name, exec: false });
        }
        events
    }

    /// The address range of the kernel's own code.
    fn image(&self) -> Option<(u64, u64)> {
        let symbol = |name: &[u8]| {
            let lines = self.kallsyms.split(|&byte| byte == b'\n');
            let mut found = lines.filter(|line| line.get(19..) == Some(name));
            let digits = found.next()?.get(..16)?;
            u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        Some((symbol(b"_text")?, symbol(b"_etext")?))
    }

    fn section(&self, pieces: &[Piece]) -> HodoscopeSection {
        let code = pieces.iter().map(|piece| CodeEntry {
            pid: piece.pid,
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
        let (shift, multiplier, _) = self.clock.words();
        let frequency = (1_000_000_000u128 << shift) / u128::from(multiplier);
        let notes = EmulatedNotes {
            engine: self.engine.clone(),
            frequency: frequency as u64,
            cpus: cpus.collect(),
            ..EmulatedNotes::default()
        };
        HodoscopeSection { notes, code: code.collect(), kallsyms: self.kallsyms.len() as u64 }
    }
}

/// Moves each switch of a CPU from the time of the kernel's record to the change of the stack that follows, which must
/// come before the next switch.
fn date_switches(records: &mut [RingRecord<'_>], stacks: &[Nanos]) {
    let is_switch = |record: &RingRecord<'_>| matches!(&record.said, Some(said) if matches!(said.kind, SidebandKind::SwitchOut { .. }));
    let mut next = None;
    for record in records.iter_mut().rev().filter(|record| is_switch(record)) {
        let since = record.time;
        let after = stacks.partition_point(|&at| Some(at) < since);
        let changed = stacks.get(after).copied().filter(|&at| next.is_none_or(|next| Some(at) < next));
        record.time = changed.or(since);
        next = Some(since);
    }
}

fn map(address: u64, length: u64, name: &[u8]) -> SidebandKind<'_> {
    let mapping = Mapping { address, length, file_offset: address, name, build_id: &[], kernel: true };
    SidebandKind::Map(mapping)
}

/// Parses `shift multiplier zero valid`.
fn clock_of(text: &str) -> Option<PerfClock> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    let mut next = || words.next().flatten();
    let (shift, multiplier, zero, valid): (u64, u64, u64, u64) = (next()?, next()?, next()?, next()?);
    PerfClock::new(shift, multiplier, zero).filter(|_| valid != 0)
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

/// The lines of kallsyms about code: types t and w.
fn text_symbols(path: &Path) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let line = line?;
        if line.get(17).is_some_and(|kind| b"tTwW".contains(kind)) {
            kept.extend(line);
            kept.push(b'\n');
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

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
