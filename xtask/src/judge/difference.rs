//! The first place where two streams part, with what is needed to understand it.

use std::{fmt::Write, path::Path, process::Command};

use super::streams::{self, BLOCK, Digest};
use crate::{Outcome, command};

/// Instructions shown before and after the difference.
const CONTEXT: usize = 8;

/// Says where a thread's streams part: the instruction's number, both addresses, the instructions and
/// our packets around them, and the code.
pub(super) fn explain(
    recording: &Path,
    tid: u32,
    ours: Option<&Digest>,
    theirs: Option<&Digest>,
) -> Outcome<String> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        let (who, digest) = if ours.is_some() { ("hodo", ours) } else { ("perf", theirs) };
        let count = digest.map_or(0, |digest| digest.instructions);
        return Ok(format!("  thread {tid}: only {who} has it, {count} instructions"));
    };
    let Some(block) = ours.first_different(theirs) else {
        return Ok(format!("  thread {tid}: no difference"));
    };
    let our = streams::block(streams::hodo(recording, Some(tid)), tid, block)?;
    let their = streams::block(streams::perf(recording, Some(tid)), tid, block)?;
    let longest = our.len().max(their.len());
    let at = (0..longest).find(|&at| our.get(at) != their.get(at)).unwrap_or(0);
    let mut text = format!(
        "  thread {tid}: {} instructions by hodo, {} by perf; they part at instruction {}\n{:>14} {:>18} {:>18}\n",
        ours.instructions,
        theirs.instructions,
        block * BLOCK + at as u64,
        "instruction",
        "hodo",
        "perf",
    );
    for index in at.saturating_sub(CONTEXT)..(at + CONTEXT).min(longest) {
        let mark = if index == at { '>' } else { ' ' };
        let number = block * BLOCK + index as u64;
        writeln!(text, "{mark} {number:12} {:>18} {:>18}", shown(our.get(index)), shown(their.get(index)))?;
    }
    text += &packets(recording, tid, block * BLOCK + at as u64);
    let maps = maps(recording)?;
    for address in [at.checked_sub(1).and_then(|before| our.get(before)), our.get(at), their.get(at)] {
        text += &address.map_or_else(String::new, |&address| code(&maps, address));
    }
    Ok(text)
}

fn shown(address: Option<&u64>) -> String {
    address.map_or("–".to_owned(), |address| format!("{address:x}"))
}

/// Our packets around the time of this instruction.
fn packets(recording: &Path, tid: u32, instruction: u64) -> String {
    // One instruction is one nanosecond of the thread's virtual clock, so its number is a good guess
    // of how far into the trace it lies.
    let window =
        format!("+{:.9}s,+{:.9}s", seconds(instruction.saturating_sub(50)), seconds(instruction + 50));
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--packets", "--time", &window, "--tid", &tid.to_string()]).arg(recording);
    let output = command::capture(&mut hodo).unwrap_or_else(|error| format!("{error}\n"));
    let lines: Vec<&str> = output.lines().take(60).collect();
    format!("  packets, {}:\n    {}\n", command::line(&hodo), lines.join("\n    "))
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A file mapped for execution, as perf shows it.
struct Map {
    begin: u64,
    length: u64,
    offset: u64,
    path: String,
}

fn maps(recording: &Path) -> Outcome<Vec<Map>> {
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-itrace", "--show-mmap-events", "-i"]).arg(recording);
    Ok(command::capture(&mut perf)?.lines().filter_map(map).collect())
}

/// A line such as `… PERF_RECORD_MMAP2 1/1: [0x401000(0x1000) @ 0x1000 08:01 5 0]: r-xp /bin/true`.
fn map(line: &str) -> Option<Map> {
    let (_, rest) = line.split_once(": [0x")?;
    let (begin, rest) = rest.split_once("(0x")?;
    let (length, rest) = rest.split_once(") @ ")?;
    let (offset, rest) = rest.split_once([' ', ']'])?;
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let path = rest.rsplit_once(' ')?.1.to_owned();
    Some(Map { begin: hex(begin)?, length: hex(length)?, offset: hex(offset)?, path })
}

/// The code at an address, disassembled.
fn code(maps: &[Map], address: u64) -> String {
    let Some(map) = maps.iter().rev().find(|map| (map.begin..map.begin + map.length).contains(&address))
    else {
        return format!("  {address:x} is in no mapping\n");
    };
    let mut objdump = Command::new("objdump");
    objdump.args(["-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn"]);
    objdump.arg(format!("--adjust-vma={}", map.begin.wrapping_sub(map.offset) as i64));
    objdump.arg(format!("--start-address={address}")).arg(format!("--stop-address={}", address + 24));
    let output = command::capture(objdump.arg(&map.path)).unwrap_or_else(|error| error.to_string());
    let lines: Vec<&str> = output.lines().filter(|line| line.contains(":\t")).take(4).collect();
    format!("  code at {address:x}, {}:\n{}\n", map.path, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn a_mapping_is_read_from_perfs_line() {
        let line =
            "true 7 [000] 0.1: PERF_RECORD_MMAP2 7/7: [0x401000(0x2000) @ 0x1000 08:01 5 0]: r-xp /bin/true";
        let map = map(line).expect("a mapping");
        assert_eq!((map.begin, map.length, map.offset), (0x40_1000, 0x2000, 0x1000));
        assert_eq!(map.path, "/bin/true");
    }
}
