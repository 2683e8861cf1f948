//! perf: a perf.data of `cs_etm`, and the branches and instructions that `perf script` decodes of it, with OpenCSD's library.
//!
//! It is given the snapshot's dumps as mapped files, so that it knows code that is in no program's file.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Stdio},
};

use hodo_clock::{Nanos, PerfClock};
use hodo_code::Terminator;
use hodo_formats::{
    perf::{
        layout::HodoscopeSection,
        write::{Setup, Source, TraceUnit, Writer},
    },
    recording::{Mapping, Sideband, SidebandKind, Thread},
};

use crate::{
    Outcome,
    account::{Ran, Stop},
    configurations::Configuration,
    snapshot::Dump,
    traced::PROCESS,
};

/// The thread of a recording: perf takes it from the traced context, if there is one.
const THREAD: Thread = Thread { pid: PROCESS, tid: PROCESS };

/// Writes a recording of one thread, whose trace is in frames.
pub(crate) fn write(file: &Path, dumps: &[Dump], trace: &[u8], configuration: &Configuration) -> Outcome {
    let setup = Setup {
        unit: TraceUnit::CoreSight(configuration.settings.registers()),
        config: 0,
        clock: PerfClock::new(0, 1, 0).ok_or("no clock")?,
        tsc_ctc_ratio: (1, 1),
        max_nonturbo_ratio: 0,
        snapshot: false,
        filter: "",
        event: "cs_etm//u",
        command: &[],
        version: "judge",
        host: "",
    };
    let mut writer = Writer::new(BufWriter::new(File::create(file)?), setup, vec![Source::Thread(THREAD)])?;
    let mut sideband = |kind: SidebandKind<'_>| {
        writer.sideband(&Sideband { time: Some(Nanos(0)), cpu: None, thread: THREAD, guest: None, kind })
    };
    sideband(SidebandKind::Comm { name: b"judged", exec: true })?;
    for Dump { file, address, length } in dumps {
        let name = file.canonicalize()?;
        sideband(SidebandKind::Map(Mapping {
            address: *address,
            length: *length,
            file_offset: 0,
            name: name.as_os_str().as_bytes(),
            build_id: &[],
            kernel: false,
        }))?;
    }
    sideband(SidebandKind::TraceStart)?;
    writer.finished_round()?;
    writer.trace(0, Nanos(1), trace.len() as u64, trace)?;
    writer.finish(&HodoscopeSection::default(), &[][..])?;
    Ok(())
}

/// Compares each taken branch; a stop is a branch to address 0, and one from there.
pub(crate) fn compare_branches(file: &Path, ran: Ran<'_>, stops: &[(usize, Stop)]) -> Result<(), String> {
    let mut expected = Branches { ran, stops, at: 0, is_stopped: true };
    let mut count = 0u64;
    script(file, &["--itrace=b", "-F", "ip,addr"], |line| {
        let (from, to) = line.split_once("=>").ok_or_else(|| format!("no branch in {line}"))?;
        let branch = (hexadecimal(from)?, hexadecimal(to)?);
        let next = expected.next();
        count += 1;
        match next {
            Some(next) if next == branch => Ok(()),
            _ => Err(format!("branch {count}: {branch:x?}, expected {next:x?}")),
        }
    })?;
    match expected.find(|&(_, to)| to != 0) {
        None => Ok(()),
        Some(next) => {
            let rest = expected.filter(|&(_, to)| to != 0).count();
            Err(format!("{count} branches, {next:x?} is missing, and {rest} after it"))
        }
    }
}

/// Compares each instruction.
pub(crate) fn compare_instructions(file: &Path, ran: Ran<'_>) -> Result<(), String> {
    let mut at = 0;
    script(file, &["--itrace=i1i", "-F", "ip"], |line| {
        let (address, expected) = (hexadecimal(line)?, ran.address(at));
        at += 1;
        match address == expected {
            true => Ok(()),
            false => Err(format!("instruction {}: {address:x}, expected {expected:x}", at - 1)),
        }
    })?;
    match at == ran.len() {
        true => Ok(()),
        false => Err(format!("{at} of {} instructions", ran.len())),
    }
}

/// The taken branches of a thread, in order.
struct Branches<'a> {
    ran: Ran<'a>,
    stops: &'a [(usize, Stop)],
    at: usize,
    is_stopped: bool,
}

impl Iterator for Branches<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if std::mem::take(&mut self.is_stopped) {
            return Some((0, self.ran.get(self.at)?.address));
        }
        loop {
            let last = self.ran.get(self.at)?;
            self.at += 1;
            let before = self.stops.iter().take_while(|(after, _)| *after <= self.at).count();
            let is_stop = before.checked_sub(1).is_some_and(|stop| self.stops[stop].0 == self.at);
            self.stops = &self.stops[before..];
            if is_stop {
                self.is_stopped = true;
                return Some((last.address, 0));
            }
            let next = self.ran.get(self.at)?.address;
            let is_taken = match last.step.terminator {
                Terminator::None | Terminator::Trap | Terminator::Wait | Terminator::Barrier => false,
                Terminator::Conditional => next == last.step.target,
                _ => true,
            };
            if is_taken {
                return Some((last.address, next));
            }
        }
    }
}

/// Runs `perf script`, and passes on each line.
fn script(
    file: &Path,
    options: &[&str],
    mut take: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = Command::new("perf")
        .args(["script", "-i"])
        .arg(file)
        .args(options)
        .env("PERF_BUILDID_DIR", file.parent().unwrap_or(Path::new(".")))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(text)?;
    let output = child.stdout.take().ok_or("perf has no output")?;
    let mut lines = BufReader::with_capacity(1 << 20, output);
    let (mut line, mut result) = (String::new(), Ok(()));
    while result.is_ok() && lines.read_line(&mut line).map_err(text)? > 0 {
        result = take(line.trim());
        line.clear();
    }
    drop(lines);
    let status = child.wait().map_err(text)?;
    // After a difference nobody reads on, which ends it.
    if result.is_ok() && !status.success() {
        return Err(format!("perf ended: {status}"));
    }
    result
}

fn hexadecimal(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text.trim(), 16).map_err(|_| format!("no address: {text}"))
}
