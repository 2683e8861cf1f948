//! The instruction streams that two decoders print, as digests, which are compared thread by thread in little memory,
//! however each decoder interleaves the threads.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    ops::Range,
    path::Path,
    process::Command,
};

use crate::{
    Outcome,
    command::{self, each_line},
};

/// Instructions per hash: the amount to read again to find a difference.
pub(super) const BLOCK: u64 = 1 << 16;

/// The output of one decoder.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By thread id.
    pub(super) threads: BTreeMap<u32, Digest>,
    /// The first lines that are not instructions: gaps, errors.
    pub(super) notices: Vec<String>,
    /// The number of these lines.
    pub(super) notice_count: u64,
}

/// The instructions of one thread.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    /// The number of instructions.
    pub(super) instructions: u64,
    /// A hash of the addresses of each block; the last block may be shorter.
    pub(super) blocks: Vec<u64>,
    /// The times, in order.
    pub(super) times: Vec<Time>,
}

/// A time that consecutive instructions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    /// The number of the first of them.
    pub(super) first: u64,
    pub(super) nanoseconds: u64,
}

/// An instruction of a stream.
pub(super) struct Instruction {
    pub(super) tid: u32,
    pub(super) address: u64,
    /// In nanoseconds.
    pub(super) time: u64,
}

impl Digest {
    fn add(&mut self, address: u64) {
        if self.instructions.is_multiple_of(BLOCK) {
            self.blocks.push(0);
        }
        self.instructions += 1;
        if let Some(hash) = self.blocks.last_mut() {
            *hash = (hash.rotate_left(5) ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn set_time(&mut self, nanoseconds: u64) {
        if self.times.last().is_none_or(|last| last.nanoseconds != nanoseconds) {
            self.times.push(Time { first: self.instructions, nanoseconds });
        }
    }

    /// Whether the instructions are the same.
    pub(super) fn agrees(&self, other: &Digest) -> bool {
        self.instructions == other.instructions && self.blocks == other.blocks
    }

    /// The first block that differs, if any.
    pub(super) fn first_different(&self, other: &Digest) -> Option<u64> {
        let longest = self.blocks.len().max(other.blocks.len());
        (0..longest)
            .find(|&block| self.blocks.get(block) != other.blocks.get(block))
            .map(|block| block as u64)
    }
}

/// Our own decoder's streams; each instruction also goes to `take`.
pub(super) fn read_hodo(recording: &Path, mut take: impl FnMut(Instruction) -> Outcome) -> Outcome<Streams> {
    let mut streams = Streams::default();
    let mut before = Prefix::default();
    let mut taken = Ok(());
    each_line(hodo(recording, "tid,time,ip", None), |line| {
        if let Some(address) = streams.add(line, &mut before)
            && taken.is_ok()
        {
            taken = take(Instruction { tid: before.tid, address, time: before.time });
        }
    })?;
    taken.map(|()| streams)
}

/// The addresses of a thread's instructions with these numbers, from lines of thread id and address.
pub(super) fn addresses(command: Command, tid: u32, numbers: Range<u64>) -> Outcome<Vec<u64>> {
    let (mut index, mut addresses) = (0, Vec::new());
    each_line(command, |line| {
        if let Some((_, address)) = instruction(line).filter(|(of_line, _)| *of_line == tid) {
            if numbers.contains(&index) {
                addresses.push(address);
            }
            index += 1;
        }
    })?;
    Ok(addresses)
}

/// The command that prints our instructions; only of one thread if `tid` is given.
pub(super) fn hodo(recording: &Path, fields: &str, tid: Option<u32>) -> Command {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--insns", "-q", "--fields", fields]).arg(recording);
    if let Some(tid) = tid {
        hodo.arg("--tid").arg(tid.to_string());
    }
    hodo
}

/// The beginning of a line and its parsed content, which are the same for many lines.
#[derive(Default)]
struct Prefix {
    text: Vec<u8>,
    tid: u32,
    /// In nanoseconds; zero if the line has no time.
    time: u64,
}

impl Streams {
    /// Adds a line of thread id, time and address; returns the address, or `None` for another line. There are billions
    /// of lines, so a beginning shared with the line before is not parsed again.
    fn add(&mut self, line: &[u8], before: &mut Prefix) -> Option<u64> {
        let address = self.instruction(line, before);
        if address.is_none() {
            self.notice(line);
        }
        address
    }

    fn instruction(&mut self, line: &[u8], before: &mut Prefix) -> Option<u64> {
        let (prefix, address) = line.split_at(line.iter().rposition(|&byte| byte == b' ')?);
        let (address, _) = number(address, 16)?;
        if prefix != before.text {
            let (tid, time) = number(prefix, 10)?;
            let (tid, time) = (u32::try_from(tid).ok()?, nanoseconds(time));
            *before = Prefix { text: prefix.to_vec(), tid, time: time.unwrap_or(0) };
            if let Some(time) = time {
                self.threads.entry(tid).or_default().set_time(time);
            }
        }
        self.threads.entry(before.tid).or_default().add(address);
        Some(address)
    }

    /// Adds a line that is not an instruction.
    pub(super) fn notice(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.notice_count += 1;
        if self.notices.len() < 3 {
            self.notices.push(String::from_utf8_lossy(line.trim_ascii()).into_owned());
        }
    }

    /// Adds a record of a digest, in the format of `lab/judges/digest.h`.
    pub(super) fn record(&mut self, record: [u64; 3]) -> Outcome {
        let [id, instruction, value] = record;
        let thread = self.threads.entry(u32::try_from(id >> 2)?).or_default();
        match id & 3 {
            0 => thread.times.push(Time { first: instruction, nanoseconds: value }),
            1 => thread.blocks.push(value),
            2 => thread.instructions = instruction,
            other => return Err(format!("a digest with a record of kind {other}").into()),
        }
        Ok(())
    }

    /// Reads a file of digest records.
    pub(super) fn read(&mut self, digest: &Path) -> Outcome {
        let mut file = BufReader::with_capacity(1 << 20, File::open(digest)?);
        let mut record = [0; 24];
        while !file.fill_buf()?.is_empty() {
            file.read_exact(&mut record)?;
            let word =
                |index: usize| record[8 * index..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            self.record([word(0), word(1), word(2)])?;
        }
        Ok(())
    }
}

/// Parses a line of thread id and address in hex; `None` for any other line.
fn instruction(line: &[u8]) -> Option<(u32, u64)> {
    let (tid, rest) = number(line, 10)?;
    let (address, rest) = number(rest, 16)?;
    rest.trim_ascii().is_empty().then_some((u32::try_from(tid).ok()?, address))
}

/// Parses seconds with nine decimals.
pub(super) fn nanoseconds(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().replace('.', "").parse().ok()
}

/// Parses the number that the text begins with, after spaces, and returns the rest. There are billions of numbers, so
/// the bytes are parsed directly.
fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let mut value = 0u64;
    for (index, &byte) in text.iter().enumerate() {
        match char::from(byte).to_digit(base) {
            Some(digit) => value = value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?,
            None if index > 0 && byte.is_ascii_whitespace() => return Some((value, &text[index..])),
            None => return None,
        }
    }
    (!text.is_empty()).then_some((value, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(addresses: impl IntoIterator<Item = u64>) -> Digest {
        let mut digest = Digest::default();
        addresses.into_iter().for_each(|address| digest.add(address));
        digest
    }

    fn times(streams: &Streams, tid: u32) -> Vec<(u64, u64)> {
        streams.threads[&tid].times.iter().map(|time| (time.first, time.nanoseconds)).collect()
    }

    fn streams(lines: &[&str]) -> Streams {
        let (mut streams, mut before) = (Streams::default(), Prefix::default());
        for line in lines {
            streams.add(line.as_bytes(), &mut before);
        }
        streams
    }

    #[test]
    fn threads_are_told_apart_however_they_interleave() {
        let a = streams(&["1 - a0\n", "2 - b0\n", "1 - a1\n", "# gap overflow\n"]);
        let b = streams(&["1 - a0", "# gap", "1 - a1", "2 - b0"]);
        assert_eq!(a.threads, b.threads);
        assert_eq!(a.threads[&1].instructions, 2);
        assert_eq!((a.notice_count, b.notice_count), (1, 1));
        assert_eq!(a.notices, ["# gap overflow"]);
    }

    #[test]
    fn a_time_is_kept_where_it_changes() {
        let streams = streams(&["1 1.000000005 a", "1 1.000000005 b", "2 0.000000007 a", "1 1.000000006 c"]);
        assert_eq!(times(&streams, 1), [(0, 1_000_000_005), (2, 1_000_000_006)]);
        assert_eq!(times(&streams, 2), [(0, 7)]);
        assert_eq!(streams.threads[&1].blocks, digest([10, 11, 12]).blocks);
    }

    #[test]
    fn a_digest_is_read_as_the_judges_write_it() {
        let mut read = Streams::default();
        for record in [[7 << 2, 0, 5], [7 << 2 | 1, 0, 99], [7 << 2 | 2, 3, 0]] {
            read.record(record).expect("a record");
        }
        let times = vec![Time { first: 0, nanoseconds: 5 }];
        assert_eq!(read.threads[&7], Digest { instructions: 3, blocks: vec![99], times });
        assert!(read.record([3, 0, 0]).is_err());
    }

    #[test]
    fn the_first_difference_is_placed() {
        let same = digest(0..3 * BLOCK);
        assert_eq!(same.first_different(&digest(0..3 * BLOCK)), None);
        let one_off = (0..3 * BLOCK).map(|number| number + u64::from(number == 2 * BLOCK - 1));
        assert_eq!(same.first_different(&digest(one_off)), Some(1));
        assert_eq!(same.first_different(&digest(0..3 * BLOCK - 1)), Some(2));
        let swapped = (0..3 * BLOCK).map(|number| if number < 2 { 1 - number } else { number });
        assert_eq!(same.first_different(&digest(swapped)), Some(0));
    }
}
