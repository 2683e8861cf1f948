//! Gives a recording times that count instructions, in place of real ones.
//!
//! ```text
//! logs ──gains: instructions before each recorded time──► Timeline: counter → time ──► the same blocks with these times
//! ```
//!
//! The time is the number of instructions that all threads together had run at their last recorded times. A program that does
//! the same twice has the same times twice, and whatever was in order by the time-stamp counter still is.

use std::io::{self, Write};

use hodo_native_runtime::{
    pack::{WORK, bound, pack},
    wire::escape,
};

use crate::{
    entries::{DecodedBlock, Entry},
    file::{Block, BlockHeader, BlockKind, FileError, Writer, blocks, empty},
    items::Item,
    recording::Recording,
    table::Table,
};

/// The time before the first instruction, in nanoseconds: perf takes a time of 0 for none.
const BEGIN: u64 = 1_000_000_000;

/// Writes a copy of a recording in which an instruction takes a nanosecond, a system call two, and a change of mapped or
/// generated code one. Returns its length in bytes.
///
/// # Errors
/// The recording is damaged, or the output failed.
pub fn count_time<W: Write>(file: &[u8], out: W) -> io::Result<u64> {
    let timeline = Timeline::new(gains(file).map_err(io::Error::other)?);
    let (blocks, damage) = blocks(file).map_err(io::Error::other)?;
    if let Some(damage) = damage {
        return Err(io::Error::other(damage));
    }
    let mut writer = Writer::new(out)?;
    writer.block(empty(BlockKind::CountedTime), &[])?;
    for time in [BEGIN, timeline.end()] {
        // One of the counter, one of the monotonic clock: they are equal.
        let pair = [time, time].map(u64::to_le_bytes);
        writer.block(BlockHeader { length: 16, ..empty(BlockKind::Clock) }, pair.as_flattened())?;
    }
    for block in blocks.iter().filter(|block| block.header.kind != BlockKind::Clock) {
        let [first_tsc, last_tsc] =
            [block.header.first_tsc, block.header.last_tsc].map(|tsc| timeline.time(tsc));
        let header = BlockHeader { first_tsc, last_tsc, ..block.header };
        writer.block(header, &with_times(block, &timeline).map_err(io::Error::other)?)?;
    }
    writer.finish()
}

/// Nanoseconds that pass at an instant.
struct Gain {
    tsc: u64,
    nanos: u64,
}

/// What makes time pass in a recording.
fn gains(file: &[u8]) -> Result<Vec<Gain>, FileError> {
    let recording = Recording::read(file)?;
    let mut gains = Vec::new();
    for thread in recording.threads() {
        let Some(table) = recording.table(thread) else { continue };
        let mut next = thread.blocks.first().map(DecodedBlock::read).transpose()?;
        for next_index in 1..=thread.blocks.len() {
            let Some(block) = next else { break };
            next = thread.blocks.get(next_index).map(DecodedBlock::read).transpose()?;
            let retracts = next.as_ref().is_some_and(DecodedBlock::retracts);
            gains_of_log(table, &block, retracts, &mut gains);
        }
    }
    for (_, table) in recording.tables() {
        let maps = table.maps.iter().map(|map| map.tsc);
        let unmaps = table.unmaps.iter().map(|unmap| unmap.tsc);
        let code = table.code.iter().map(|code| code.tsc);
        gains.extend(maps.chain(unmaps).chain(code).map(|tsc| Gain { tsc, nanos: 1 }));
    }
    Ok(gains)
}

fn gains_of_log(table: &Table, block: &DecodedBlock, retracts: bool, gains: &mut Vec<Gain>) {
    let length = |exit: u32| table.summary(exit).map_or(0, |summary| summary.instructions);
    let mut instructions = 0;
    for entry in block.entries(retracts) {
        match entry {
            Entry::Exit(exit) => instructions += length(exit),
            Entry::Retracted(exit) => instructions += length(exit).saturating_sub(1),
            Entry::Partial { count, .. } => instructions += u64::from(count),
            Entry::Item(Item::Time(tsc)) => {
                gains.push(Gain { tsc, nanos: std::mem::take(&mut instructions) });
            }
            Entry::Item(Item::Call(_, tsc) | Item::CallEnd(tsc)) => {
                gains.push(Gain { tsc, nanos: std::mem::take(&mut instructions) + 1 });
            }
            Entry::Item(_) => {}
        }
    }
    gains.push(Gain { tsc: block.times.end, nanos: instructions });
}

/// The counted time after each change.
struct Timeline {
    changes: Vec<Change>,
}

struct Change {
    tsc: u64,
    time: u64,
}

impl Timeline {
    fn new(mut gains: Vec<Gain>) -> Timeline {
        gains.sort_unstable_by_key(|gain| gain.tsc);
        let mut time = BEGIN;
        let mut changes: Vec<Change> = Vec::new();
        for gain in gains {
            time += gain.nanos;
            match changes.last_mut() {
                Some(last) if last.tsc == gain.tsc => last.time = time,
                _ => changes.push(Change { tsc: gain.tsc, time }),
            }
        }
        Timeline { changes }
    }

    /// The counted time at a time of the counter; 0, which stands for none, stays.
    fn time(&self, tsc: u64) -> u64 {
        let after = self.changes.partition_point(|change| change.tsc <= tsc);
        match after.checked_sub(1) {
            _ if tsc == 0 => 0,
            Some(index) => self.changes[index].time,
            None => BEGIN,
        }
    }

    fn end(&self) -> u64 {
        self.changes.last().map_or(BEGIN, |change| change.time).max(BEGIN + 1)
    }
}

/// The stored bytes of a block, with counted times.
fn with_times(block: &Block<'_>, timeline: &Timeline) -> Result<Vec<u8>, FileError> {
    match block.header.kind {
        BlockKind::Log => {
            let mut words = block.words()?;
            set_times_of_log(&mut words, timeline);
            if block.header.codec.packed {
                let mut bytes = vec![0; bound(words.len())];
                let length = pack(&words, &mut bytes, &mut vec![0; WORK]);
                bytes.truncate(length);
                return Ok(bytes);
            }
            Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
        }
        BlockKind::Table => {
            let mut bytes = block.content()?;
            set_times_of_table(&mut bytes, timeline);
            Ok(bytes)
        }
        _ => block.content(),
    }
}

fn set_times_of_log(words: &mut [u32], timeline: &Timeline) {
    let mut position = 0;
    while let Some(&word) = words.get(position) {
        position += 1;
        let count = escape::words(word).unwrap_or(0);
        // The time is the last two of the words.
        if matches!(word, escape::TIME | escape::CALL | escape::CALL_END)
            && let Some([low, high]) = words.get_mut(position + count - 2..position + count)
        {
            let time = timeline.time(u64::from(*low) | u64::from(*high) << 32);
            (*low, *high) = (time as u32, (time >> 32) as u32);
        }
        position += count;
    }
}

/// Each record begins with its length and its time.
fn set_times_of_table(bytes: &mut [u8], timeline: &Timeline) {
    let mut rest = bytes;
    while let Some((head, _)) = rest.split_first_chunk::<16>() {
        let (head, time) = head.split_at(8);
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let tsc = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte: usize| time[byte]));
        if length < 16 || length > rest.len() {
            break;
        }
        rest[8..16].copy_from_slice(&timeline.time(tsc).to_le_bytes());
        rest = &mut rest[length..];
    }
}
