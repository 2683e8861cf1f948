//! Decodes a case with perf, which reports only instructions and errors, and only of user code.

use std::{fs, fs::File, io, path::Path, process::Command};

use hodo_cases::{Assembly, Case, Owner, Section, Trace};
use hodo_clock::{Nanos, PerfClock};
use hodo_formats::{
    perf::{
        layout::{HodoscopeSection, intel_pt_config},
        write::{Setup, Source, TraceUnit, Writer},
    },
    recording::{Mapping, Sideband, SidebandKind, Thread},
};

use crate::{Outcome, without_repetitions};

const THREAD: Thread = Thread { pid: 77, tid: 77 };

/// Offset of the code in its file.
const CODE: u64 = 0x1000;

/// Exit status of `timeout` when the time is over.
const TIMED_OUT: i32 = 124;

/// Whether perf can decode the case: for a kernel and for guests it needs more than code.
pub(crate) fn can_read(assembly: &Assembly) -> bool {
    assembly.sections.iter().all(|section| section.owner == Owner::Traced && section.range().end < 1 << 47)
}

/// The lines that perf decodes.
pub(crate) fn lines(case: &Case<'_>, assembly: &Assembly, trace: &Trace<'_>) -> Outcome<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let recording = folder.path().join("perf.data");
    write(case, assembly, trace, folder.path(), &recording)?;
    // perf may loop forever over code that needs no packet.
    let mut perf = Command::new("timeout");
    perf.args(["2", "perf", "script", "--itrace=i0nse", "-F", "ip", "-i"])
        .arg(recording)
        .env("HOME", folder.path());
    let output = perf.output()?;
    if output.status.code() == Some(TIMED_OUT) {
        return Ok(vec!["no end".to_owned()]);
    }
    if !output.status.success() {
        return Ok(vec!["refused".to_owned()]);
    }
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(without_repetitions(lines.map(|line| if line.contains("error") { "gap" } else { line })))
}

/// Writes a recording of the trace, and a file for each section of its code.
fn write(
    case: &Case<'_>,
    assembly: &Assembly,
    trace: &Trace<'_>,
    folder: &Path,
    recording: &Path,
) -> Outcome<()> {
    let setup = Setup {
        unit: TraceUnit::IntelPt,
        config: config(case),
        clock: PerfClock::new(0, 1, 0).ok_or("one tick a nanosecond is a clock")?,
        tsc_ctc_ratio: case.config.tsc_ctc_ratio.unwrap_or((0, 0)),
        max_nonturbo_ratio: case.config.max_nonturbo_ratio.unwrap_or(0),
        snapshot: false,
        filter: &case.config.filter,
        event: "intel_pt//u",
        command: &[],
        version: "1",
        host: "",
    };
    let mut writer = Writer::new(File::create(recording)?, setup, vec![Source::Thread(THREAD)])?;
    emit(&mut writer, SidebandKind::Comm { name: b"case", exec: true })?;
    for (index, section) in assembly.sections.iter().enumerate() {
        let path = folder.join(format!("code-{index}"));
        fs::write(&path, elf(section, is_64_bit(case)))?;
        let mapping = Mapping {
            address: section.address,
            length: section.bytes.len() as u64,
            file_offset: CODE,
            name: path.as_os_str().as_encoded_bytes(),
            build_id: &[],
            kernel: false,
        };
        emit(&mut writer, SidebandKind::Map(mapping))?;
    }
    writer.trace(0, Nanos(2), trace.bytes.len() as u64, &trace.bytes[..])?;
    writer.finish(&HodoscopeSection::default(), io::empty())?;
    Ok(())
}

fn emit(writer: &mut Writer<'_, File>, kind: SidebandKind<'_>) -> io::Result<()> {
    writer.sideband(&Sideband { time: Some(Nanos(1)), cpu: None, thread: THREAD, guest: None, kind })
}

/// The event's settings, as far as the packets show them.
fn config(case: &Case<'_>) -> u64 {
    let has = |name: &str| case.packets.iter().any(|line| line.text.starts_with(name));
    let settings = [
        (has("TSC "), intel_pt_config::TSC),
        (case.config.cyc, intel_pt_config::CYC),
        (case.config.mtc_frequency.is_some(), intel_pt_config::MTC),
        (case.config.no_return_compression, intel_pt_config::NORETCOMP),
    ];
    let bits =
        settings.iter().filter(|(on, _)| *on).fold(intel_pt_config::BRANCH, |bits, (_, bit)| bits | bit);
    bits | u64::from(case.config.mtc_frequency.unwrap_or(0)) << intel_pt_config::MTC_PERIOD.trailing_zeros()
}

/// perf takes the mode of code from its file, so the file has the mode of the first MODE.Exec.
fn is_64_bit(case: &Case<'_>) -> bool {
    let mode = case.packets.iter().find_map(|line| line.text.strip_prefix("MODE.Exec "));
    mode.is_none_or(|mode| mode.starts_with("64"))
}

/// An ELF file with one executable segment.
fn elf(section: &Section, is_64_bit: bool) -> Vec<u8> {
    let (address, size) = (section.address, section.bytes.len() as u64);
    let mut file = vec![0x7f, b'E', b'L', b'F', if is_64_bit { 2 } else { 1 }, 1, 1];
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, value: u16| file.extend(value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| match is_64_bit {
        true => file.extend(value.to_le_bytes()),
        false => file.extend((value as u32).to_le_bytes()),
    };
    let (machine, header, program) = if is_64_bit { (62, 64, 56) } else { (3, 52, 32) };
    // ET_EXEC, the machine, EV_CURRENT; entry, program headers, no section headers; flags; sizes and numbers of headers.
    half(&mut file, 2);
    half(&mut file, machine);
    word(&mut file, 1);
    for value in [address, u64::from(header), 0] {
        long(&mut file, value);
    }
    word(&mut file, 0);
    for value in [header, program, 1, 0, 0, 0] {
        half(&mut file, value);
    }
    // PT_LOAD; the flags, readable and executable, are before the addresses in 64-bit files, and behind them in others.
    word(&mut file, 1);
    if is_64_bit {
        word(&mut file, 5);
    }
    for value in [CODE, address, address, size, size] {
        long(&mut file, value);
    }
    if !is_64_bit {
        word(&mut file, 5);
    }
    long(&mut file, 0x1000);
    file.resize(CODE as usize, 0);
    file.extend_from_slice(&section.bytes);
    file
}
