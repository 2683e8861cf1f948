//! The first difference between two streams, with its context.

use std::{fmt::Write, path::Path, process::Command};

use super::{
    maps::Map,
    perf,
    streams::{self, BLOCK, Digest},
};
use crate::{Outcome, command};

/// Instructions shown before and after the difference.
const CONTEXT: usize = 8;

/// Packets shown before and after it.
const PACKETS: usize = 20;

/// Describes where a thread's streams diverge: the instruction's number, both addresses, the instructions and our
/// packets around them, and the code.
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
    let numbers = block * BLOCK..(block + 2) * BLOCK;
    let our = streams::addresses(streams::hodo(recording, "tid,ip", Some(tid)), tid, numbers.clone())?;
    let their = streams::addresses(perf::instruction_command(recording, tid), tid, numbers.clone())?;
    let longest = our.len().max(their.len());
    let parting = (0..longest).find(|&index| our.get(index) != their.get(index)).unwrap_or(0);
    let number = |index: usize| numbers.start + index as u64;
    let mut text = format!(
        "  thread {tid}: {} instructions by hodo, {} by perf; they part at instruction {}\n{:>14} {:>18} {:>18}\n",
        ours.instructions,
        theirs.instructions,
        number(parting),
        "instruction",
        "hodo",
        "perf",
    );
    for index in parting.saturating_sub(CONTEXT)..(parting + CONTEXT).min(longest) {
        let mark = if index == parting { '>' } else { ' ' };
        writeln!(
            text,
            "{mark} {:12} {:>18} {:>18}",
            number(index),
            shown(our.get(index)),
            shown(their.get(index))
        )?;
    }
    text += &packets(recording, tid, number(parting))?;
    let maps = maps(recording)?;
    let before = parting.checked_sub(1).and_then(|before| our.get(before));
    for address in [before, our.get(parting), their.get(parting)] {
        text += &address.map_or_else(String::new, |&address| code(&maps, address));
    }
    Ok(text)
}

fn shown(address: Option<&u64>) -> String {
    address.map_or("–".to_owned(), |address| format!("{address:x}"))
}

/// Our packets around this instruction.
fn packets(recording: &Path, tid: u32, instruction: u64) -> Outcome<String> {
    let time = time(recording, tid, instruction)?;
    let mut hodo = Command::new(command::hodo());
    let output =
        command::capture(hodo.args(["script", "--packets", "--tid", &tid.to_string()]).arg(recording))?;
    let lines: Vec<&str> = output.lines().collect();
    let line = line_at(&lines, time);
    let around = &lines[line.saturating_sub(PACKETS)..(line + PACKETS).min(lines.len())];
    Ok(format!("  packets around there:\n    {}\n", around.join("\n    ")))
}

/// The time of the last timing packet before an instruction, in nanoseconds; if there are fewer instructions, before
/// the last one.
fn time(recording: &Path, tid: u32, instruction: u64) -> Outcome<u64> {
    let hodo = streams::hodo(recording, "time", Some(tid));
    let (mut index, mut time) = (0, 0);
    command::each_line(hodo, |line| {
        if index <= instruction {
            time = streams::nanoseconds(line).unwrap_or(time);
        }
        index += u64::from(!line.starts_with(b"#"));
    })?;
    Ok(time)
}

/// The line of a TSC packet.
struct Stamp {
    line: usize,
    tsc: u64,
}

/// The packet at about this time. Only TSC packets contain the full time (the emulated clock ticks once per
/// nanosecond); between two of them, MTC packets have equal distances.
fn line_at(lines: &[&str], time: u64) -> usize {
    let stamp = |(line, text): (usize, &&str)| {
        let (_, tsc) = text.split_once(" TSC ")?;
        Some(Stamp { line, tsc: u64::from_str_radix(tsc.trim(), 16).ok()? })
    };
    let stamps: Vec<Stamp> = lines.iter().enumerate().filter_map(stamp).collect();
    let next = stamps.partition_point(|stamp| stamp.tsc <= time);
    let Some(before) = next.checked_sub(1).and_then(|before| stamps.get(before)) else {
        return 0;
    };
    let Some(after) = stamps.get(next) else {
        return before.line;
    };
    let is_tick = |line: &usize| *line == before.line || lines[*line].contains(" MTC ");
    let ticks: Vec<usize> = (before.line..after.line).filter(is_tick).collect();
    let share = (time - before.tsc) as f64 / (after.tsc - before.tsc) as f64;
    ticks[(ticks.len() as f64 * share) as usize]
}

fn maps(recording: &Path) -> Outcome<Vec<Map>> {
    Ok(perf::sideband(recording)?.lines().filter_map(Map::parse).collect())
}

/// The disassembled code at an address.
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
    use super::line_at;

    #[test]
    fn a_packet_is_found_by_time() {
        let lines =
            ["PSB", "19 TSC a", "TNT", "59 MTC 1", "TNT", "59 MTC 2", "TNT", "59 MTC 3", "19 TSC 1a", "TNT"];
        assert_eq!([0, 10, 14, 18, 25, 26].map(|time| line_at(&lines, time)), [0, 1, 3, 5, 7, 8]);
    }
}
