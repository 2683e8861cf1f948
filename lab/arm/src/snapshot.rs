//! OpenCSD: a snapshot folder as its program `trc_pkt_lister` reads it, and what it decodes.
//!
//! Source: "ARM Trace and Debug Snapshot file format", version 0.2.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    account::{Code, Ran},
    configurations::Configuration,
    ours::contiguous,
    traced::TRACE_ID,
};

/// Bytes between instructions that are stored as one file: the program searches its files one after another.
const NEAR: u64 = 1 << 16;

/// Code of a snapshot.
pub(crate) struct Dump {
    pub(crate) file: PathBuf,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

/// Writes the folder. Returns its dumps of code.
pub(crate) fn write(
    folder: &Path,
    code: &Code,
    trace: &[u8],
    configuration: &Configuration,
) -> Outcome<Vec<Dump>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("trace.bin"), trace)?;
    fs::write(
        folder.join("snapshot.ini"),
        "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\n[trace]\nmetadata=trace.ini\n",
    )?;
    let format = if configuration.frames { "coresight" } else { "source_data" };
    let buffers =
        format!("[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB_0\nfile=trace.bin\nformat={format}\n");
    let sources = "[source_buffers]\nETM_0=ETB_0\n[core_trace_sources]\ncpu_0=ETM_0\n";
    fs::write(folder.join("trace.ini"), buffers + sources)?;
    fs::write(folder.join("etm.ini"), unit(configuration))?;
    let kind = if configuration.settings.is_m_profile { "Cortex-M3" } else { "Cortex-A53" };
    let mut core = format!(
        "[device]\nname=cpu_0\nclass=core\ntype={kind}\n[regs]\nPC(size:64)=0\nSP(size:64)=0\n\
         SCTLR_EL1=0x1007\nCPSR=0x1C5\n"
    );
    let mut dumps = Vec::new();
    // Version 1.3.3 misreads several ranges of one file, so each has its own.
    for (number, (address, mut bytes)) in near(contiguous(code)).into_iter().enumerate() {
        // It reads four bytes of T32 instructions that have two.
        bytes.extend([0; 2]);
        let (name, length) = (format!("mem{number}.bin"), bytes.len() as u64);
        writeln!(core, "[dump{number}]\nfile={name}\naddress={address:#x}\nlength={length:#x}")?;
        let file = folder.join(name);
        fs::write(&file, bytes)?;
        dumps.push(Dump { file, address, length });
    }
    fs::write(folder.join("cpu.ini"), core)?;
    Ok(dumps)
}

/// Joins ranges that are near each other; zeros fill the places between.
fn near(ranges: Vec<(u64, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
    let mut joined: Vec<(u64, Vec<u8>)> = Vec::new();
    for (address, bytes) in ranges {
        match joined.last_mut() {
            Some((start, before)) if address - (*start + before.len() as u64) < NEAR => {
                before.resize((address - *start) as usize, 0);
                before.extend(bytes);
            }
            _ => joined.push((address, bytes)),
        }
    }
    joined
}

/// The registers of the trace unit.
fn unit(configuration: &Configuration) -> String {
    let registers = configuration.settings.registers();
    let kind = if configuration.settings.is_ete { "ETE" } else { "ETM4" };
    let mut text = format!("[device]\nname=ETM_0\nclass=trace_source\ntype={kind}\n[regs]\n");
    let named = [
        ("TRCCONFIGR(0x004)", registers.config),
        ("TRCTRACEIDR(0x010)", TRACE_ID.into()),
        ("TRCAUTHSTATUS(0x3EE)", 0xcc),
        ("TRCIDR0(0x078)", registers.id0),
        ("TRCIDR1(0x079)", registers.id1),
        ("TRCIDR2(0x07A)", registers.id2),
        ("TRCIDR8(0x060)", registers.id8),
        ("TRCIDR9(0x061)", 0),
        ("TRCIDR10(0x062)", 0),
        ("TRCIDR11(0x063)", 0),
        ("TRCIDR12(0x064)", 0),
        ("TRCIDR13(0x065)", 0),
    ];
    for (name, value) in named {
        text += &format!("{name}={value:#x}\n");
    }
    if configuration.settings.is_ete {
        text += &format!("TRCDEVARCH(0x3EF)={:#x}\n", registers.device_architecture);
    }
    text
}

/// Runs the program, and compares each address that it decodes.
pub(crate) fn compare(folder: &Path, expected: Ran<'_>) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = Command::new("trc_pkt_lister")
        .args(["-decode_only", "-no_time_print", "-logstdout", "-ss_dir", "."])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(text)?;
    let output = child.stdout.take().ok_or("trc_pkt_lister has no output")?;
    let mut at = 0;
    let mut problem = None;
    let mut lines = BufReader::with_capacity(1 << 20, output);
    let mut line = Vec::new();
    while problem.is_none() && lines.read_until(b'\n', &mut line).map_err(text)? > 0 {
        match range(&line) {
            Some(range) => {
                let mut address = range.start;
                while address < range.end {
                    match expected.get(at) {
                        Some(instruction) if instruction.address == address => address = instruction.after(),
                        _ => {
                            let expected = expected.address(at);
                            problem = Some(format!("instruction {at}: {address:x}, expected {expected:x}"));
                            break;
                        }
                    }
                    at += 1;
                }
            }
            None => {
                let line = String::from_utf8_lossy(&line);
                if line.contains("ADDR_NACC") || line.contains("rror") {
                    problem = Some(format!("after {at} instructions: {line}"));
                }
            }
        }
        line.clear();
    }
    drop(lines);
    child.wait().map_err(text)?;
    match problem {
        Some(problem) => Err(problem),
        None if at != expected.len() => Err(format!("{at} of {} instructions", expected.len())),
        None => Ok(()),
    }
}

/// Reads the addresses of `… OCSD_GEN_TRC_ELEM_INSTR_RANGE(exec range=0x400640:[0x400650] …`; `None` in other lines.
fn range(line: &[u8]) -> Option<Range<u64>> {
    const BEGIN: &[u8] = b"INSTR_RANGE(exec range=0x";
    let line = &line[memchr::memmem::find(line, BEGIN)? + BEGIN.len()..];
    let middle = memchr::memchr(b':', line)?;
    let (begin, rest) = (&line[..middle], line[middle..].strip_prefix(b":[0x")?);
    let end = &rest[..memchr::memchr(b']', rest)?];
    Some(hexadecimal(begin)?..hexadecimal(end)?)
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}
