//! The hardware traces of a board's slaves: what each ran, as E-Trace or ETMv4, with times of the slave's own clock.
//!
//! ```text
//! QEMU, plugin ──► SPOOL/trace-N ──units──► FOLDER/slave-N/hardware/trace.data
//! RAM: the oscillator, the slave's start ──► SlaveClock ──▲
//! ```

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::{self, BufWriter},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use hodo_emulator::{
    Settings, Target,
    seal::seal,
    spool::{MapNote, Note, NoteKind},
};
use object::{Object, ObjectSegment, SegmentFlags};

use super::{files::Kind, settings};
use crate::{Error, collect::Collected, emulate::find_plugin, units};

/// The folder of a slave's hardware trace in that of its events, and the trace.
const FOLDER: &str = "hardware";
const FILE: &str = "trace.data";
/// Bytes of packets between two synchronizations.
const PSB_PERIOD: u64 = 16 << 10;

/// Makes the spool of a slave, and returns QEMU's option that records into it.
pub(super) fn prepare(spool: &Path, slave: u32) -> Result<OsString, Error> {
    let plugin = find_plugin()?;
    let folder = spool_of(spool, slave);
    let settings = Settings {
        plugin: plugin.as_os_str().as_bytes().to_vec(),
        sysroot: None,
        psb_period: PSB_PERIOD,
        tsc: true,
        mtc_period: None,
        cyc_threshold: None,
        return_compression: false,
        snapshot: None,
        filter: Vec::new(),
        overflow: None,
    };
    fs::create_dir(&folder).and_then(|()| settings.save(&folder)).map_err(Error::file(&folder))?;
    let mut option = plugin.into_os_string();
    option.push(",spool=");
    option.push(&folder);
    // Thread 0 would be the idle one.
    option.push(format!(",slave={}", slave + 1));
    Ok(option)
}

fn spool_of(spool: &Path, slave: u32) -> PathBuf {
    spool.join(format!("trace-{slave}"))
}

/// Writes the trace of a slave that has ended. Returns messages for the user.
pub(super) fn write(
    spool: &Path,
    (slave, kind): (u32, Kind),
    programs: &Path,
    out: &Path,
) -> Result<Vec<String>, Error> {
    let folder = spool_of(spool, slave);
    let program = programs.join(kind.program());
    let clock = SlaveClock::read(&settings::ram(spool, slave), kind)?;
    note_code(&folder, slave, &program)?;
    let sealed = folder.with_extension("sealed");
    let may_run = false;
    let threads = seal(&folder, &sealed, may_run).map_err(Error::file(&folder))?;
    let engine = format!("{}, slave {slave}", kind.emulator());
    let target = match kind {
        Kind::Riscv64 => Target::Riscv64,
        Kind::CortexM3 => Target::CortexM,
    };
    let convert = |counter| clock.nanos(counter);
    let times = units::Clock::Counter(&convert);
    let collected = Collected::read(&sealed, engine, target, &threads, &BTreeSet::new(), times)?;
    let folder = out.join(format!("slave-{slave}")).join(FOLDER);
    let file = folder.join(FILE);
    let filter = "";
    fs::create_dir_all(&folder)
        .and_then(|()| fs::File::create(&file))
        .and_then(|out| collected.write(BufWriter::new(out), &units::event(target), filter, &[]))
        .map_err(Error::file(&file))?;
    Ok(collected.warnings())
}

/// Writes the notes that say which code the slave has: its program's segments, at their addresses.
fn note_code(folder: &Path, slave: u32, program: &Path) -> Result<(), Error> {
    let bytes = fs::read(program).map_err(Error::file(program))?;
    let number = slave + 1;
    let note = |kind| Note { time: 1, pid: number, tid: number, kind };
    let name = format!("slave-{slave}").into_bytes();
    let mut notes = vec![note(NoteKind::Comm { name, exec: true })];
    let wrong = |error: object::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let file = object::File::parse(&*bytes).map_err(wrong).map_err(Error::file(program))?;
    for segment in file.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        if p_flags & object::elf::PF_X == object::elf::ProgramFlags(0) {
            continue;
        }
        let (file_offset, length) = segment.file_range();
        notes.push(note(NoteKind::Map(MapNote {
            address: segment.address(),
            length,
            file_offset,
            device: (0, 0),
            inode: 0,
            name: program.as_os_str().as_bytes().to_vec(),
            build_id: Vec::new(),
        })));
    }
    let lines: Result<Vec<String>, _> = notes.iter().map(serde_json::to_string).collect();
    let path = folder.join(format!("process-{number}-0.notes"));
    let text = lines.map_err(io::Error::from).map_err(Error::file(&path))?.join("\n") + "\n";
    fs::write(&path, text).map_err(Error::file(&path))
}

/// Offset in a slave's RAM of the memory that it shares with the master, as in `embedded/board/shared.h`.
const SHARED: usize = 8 << 20;
/// Offsets in that memory: when the slave began, and its oscillator.
const STARTED: usize = 24;
const OSCILLATOR: usize = 32;
/// Nanoseconds of a tick of the oscillator: 10 MHz.
const TICK: u64 = 100;
const STEPS: usize = 4;

/// The clock of a slave: the same integer arithmetic as in `embedded/board/oscillator.c`.
struct SlaveClock {
    /// Whether readings of the counter are converted to nanoseconds of the master; else they are nanoseconds.
    is_converted: bool,
    raw_base: u64,
    base: u64,
    multiplier: u32,
    /// The master's time when the slave began.
    started: u64,
    offset: u64,
    drift: i64,
    wander_ppb: u64,
    wander_period_us: u64,
    /// Time since the slave began, and the ticks by which the clock jumps.
    steps: Vec<(u64, i64)>,
}

/// Multiplies by parts of 2^32.
fn scale(value: u64, parts: u32) -> u64 {
    let parts = u64::from(parts);
    (value >> 32).wrapping_mul(parts).wrapping_add((value & 0xffff_ffff).wrapping_mul(parts) >> 32)
}

impl SlaveClock {
    /// Reads the settings from the slave's memory.
    fn read(ram: &Path, kind: Kind) -> Result<SlaveClock, Error> {
        let bytes = fs::read(ram).map_err(Error::file(ram))?;
        let cut = || Error::file(ram)(io::ErrorKind::UnexpectedEof.into());
        let clock = SlaveClock::parse(bytes.get(SHARED..).ok_or_else(cut)?).ok_or_else(cut)?;
        Ok(SlaveClock { is_converted: kind == Kind::Riscv64, ..clock })
    }

    /// Reads `struct board_shared`.
    fn parse(shared: &[u8]) -> Option<SlaveClock> {
        let word = |at: usize| shared.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let at = |index: usize| word(OSCILLATOR + 8 * index);
        let counts = at(2)?;
        let steps = (0..STEPS.min((counts >> 32) as usize))
            .map(|step| Some((at(7 + 2 * step)?, at(8 + 2 * step)?.cast_signed())))
            .collect::<Option<_>>()?;
        Some(SlaveClock {
            is_converted: true,
            raw_base: at(0)?,
            base: at(1)?,
            multiplier: counts as u32,
            started: word(STARTED)?,
            offset: at(3)?,
            drift: at(4)?.cast_signed(),
            wander_ppb: at(5)?,
            wander_period_us: at(6)?,
            steps,
        })
    }

    /// What the clock showed at a reading of the time-stamp counter, in nanoseconds; before the slave began, what it showed
    /// then.
    fn nanos(&self, counter: u64) -> u64 {
        let truth = match self.is_converted {
            true => self.base.wrapping_add(scale(counter.saturating_sub(self.raw_base), self.multiplier)),
            false => counter,
        };
        TICK * self.ticks(truth.saturating_sub(self.started))
    }

    /// What the clock shows at a time since the slave began.
    fn ticks(&self, time: u64) -> u64 {
        let gained = scale(time, self.drift.unsigned_abs() as u32);
        let shown = if self.drift < 0 { time.wrapping_sub(gained) } else { time.wrapping_add(gained) };
        let shown = shown.wrapping_add_signed(self.wandered(time));
        let steps = self.steps.iter().filter(|(at, _)| *at <= time).map(|(_, ticks)| ticks);
        steps.fold(self.offset.wrapping_add(shown / TICK), |ticks, step| ticks.wrapping_add_signed(*step))
    }

    fn wandered(&self, time: u64) -> i64 {
        let half = self.wander_period_us / 2;
        if half == 0 || self.wander_ppb == 0 {
            return 0;
        }
        let since = time / 1000 % (2 * half);
        let gain = match since < half {
            true => since * (half - since) / half,
            false => (since - half) * (2 * half - since) / half,
        };
        let gain = (gain * self.wander_ppb / 1_000_000).cast_signed();
        if since < half { gain } else { -gain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: what `oscillator_ticks` of `embedded/board/oscillator.c` returns.
    #[test]
    fn a_clock_with_drift_wander_and_steps() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let drift = (37_000_i128 << 32) / 1_000_000_000;
        let mut shared = words(&[0, 0, 0, 5_000]);
        shared.extend(words(&[100, 5_000, 1 << 32 | 1 << 31, 123_456_789, drift as u64, 5_000, 20_000_000]));
        shared.extend(words(&[2_000_000_000, 10_000]));
        let clock = SlaveClock::parse(&shared).unwrap();
        // The counter has 2 GHz, and the slave began at its tick 100.
        assert_eq!(clock.nanos(100), 12_345_678_900);
        assert_eq!(clock.nanos(50), 12_345_678_900);
        // 1 s: 37 µs of drift, 4.5 µs of wander.
        assert_eq!(clock.nanos(2_000_000_100), 13_345_720_300);
        // 2 s: 74 and 8 µs, and 1 ms of the step.
        assert_eq!(clock.nanos(4_000_000_100), 14_346_760_800);
    }
}
