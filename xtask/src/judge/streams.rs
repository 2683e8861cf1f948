//! The instruction streams that two decoders print, digested so that they can be compared thread by
//! thread in little memory, however each of them interleaves the threads.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use crate::{Outcome, command};

/// Instructions that share one hash: what has to be read again to find a difference.
pub(super) const BLOCK: u64 = 1 << 16;

/// What one decoder says.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By thread id.
    pub(super) threads: BTreeMap<u32, Digest>,
    /// The first lines that are no instructions: gaps, errors.
    pub(super) notices: Vec<String>,
    /// How many such lines there are.
    pub(super) notice_count: u64,
}

/// The instructions of one thread.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    /// How many.
    pub(super) instructions: u64,
    /// A hash of the addresses of each block; the last one may be shorter.
    pub(super) blocks: Vec<u64>,
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

    /// The first block that is not the same in both, if any.
    pub(super) fn first_different(&self, other: &Digest) -> Option<u64> {
        let both = self.blocks.len().max(other.blocks.len());
        (0..both).find(|&at| self.blocks.get(at) != other.blocks.get(at)).map(|at| at as u64)
    }
}

/// Our own decoder's streams; of one thread, if it is named.
pub(super) fn read_hodo(recording: &Path, tid: Option<u32>) -> Outcome<Streams> {
    let mut streams = Streams::default();
    each_line(hodo(recording, tid), |line| streams.add(line))?;
    Ok(streams)
}

/// The streams of perf's decoder.
pub(super) fn read_perf(recording: &Path, tid: Option<u32>) -> Outcome<Streams> {
    let mut streams = Streams::default();
    each_line(perf(recording, tid), |line| streams.add(line))?;
    Ok(streams)
}

/// The addresses of one thread's block, and up to `BLOCK` more.
pub(super) fn block(command: Command, tid: u32, block: u64) -> Outcome<Vec<u64>> {
    let (mut index, mut addresses) = (0, Vec::new());
    each_line(command, |line| {
        if let Some((_, address)) = instruction(line).filter(|(found, _)| *found == tid) {
            if index >= block * BLOCK && index < (block + 2) * BLOCK {
                addresses.push(address);
            }
            index += 1;
        }
    })?;
    Ok(addresses)
}

/// The command whose lines are our instructions.
pub(super) fn hodo(recording: &Path, tid: Option<u32>) -> Command {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["script", "--insns", "--fields", "tid,ip"]).arg(recording);
    if let Some(tid) = tid {
        hodo.arg("--tid").arg(tid.to_string());
    }
    hodo
}

/// The command whose lines are perf's instructions: a sample each.
pub(super) fn perf(recording: &Path, tid: Option<u32>) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=i0ns", "-F", "tid,ip", "-i"]).arg(recording);
    if let Some(tid) = tid {
        perf.arg("--tid").arg(tid.to_string());
    }
    perf
}

impl Streams {
    fn add(&mut self, line: &[u8]) {
        if let Some((tid, address)) = instruction(line) {
            self.threads.entry(tid).or_default().add(address);
        } else if !line.trim_ascii().is_empty() {
            self.notice_count += 1;
            if self.notices.len() < 3 {
                self.notices.push(String::from_utf8_lossy(line.trim_ascii()).into_owned());
            }
        }
    }
}

/// A line of thread id and address in hex; `None` for any other.
fn instruction(line: &[u8]) -> Option<(u32, u64)> {
    let (tid, rest) = number(line, 10)?;
    let (address, rest) = number(rest, 16)?;
    rest.trim_ascii().is_empty().then_some((u32::try_from(tid).ok()?, address))
}

/// The number that the text begins with, after spaces, and what follows it. There are billions of them
/// to read, so no detour is made through text.
fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let mut value = 0u64;
    for (at, &byte) in text.iter().enumerate() {
        match char::from(byte).to_digit(base) {
            Some(digit) => value = value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?,
            None if at > 0 && byte.is_ascii_whitespace() => return Some((value, &text[at..])),
            None => return None,
        }
    }
    (!text.is_empty()).then_some((value, &[]))
}

/// Runs the command and hands over its output, line by line.
pub(super) fn each_line(mut command: Command, mut take: impl FnMut(&[u8])) -> Outcome {
    let name = command::line(&command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("can't start `{name}`: {error}"))?;
    let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().ok_or("the output is not piped")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        take(&line);
        line.clear();
    }
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` failed: {status}").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(addresses: impl IntoIterator<Item = u64>) -> Digest {
        let mut digest = Digest::default();
        addresses.into_iter().for_each(|address| digest.add(address));
        digest
    }

    #[test]
    fn threads_are_told_apart_however_they_interleave() {
        let (mut a, mut b) = (Streams::default(), Streams::default());
        ["1 a0", "2 b0", "1 a1", "# gap overflow"].into_iter().for_each(|line| a.add(line.as_bytes()));
        ["    1   a0\n", " 1 a1\n", " 2 b0\n", " instruction trace error type 1\n"]
            .iter()
            .for_each(|line| b.add(line.as_bytes()));
        assert_eq!(a.threads, b.threads);
        assert_eq!(a.threads[&1].instructions, 2);
        assert_eq!((a.notice_count, b.notice_count), (1, 1));
        assert_eq!(a.notices, ["# gap overflow"]);
    }

    #[test]
    fn the_first_difference_is_placed() {
        let same = digest(0..3 * BLOCK);
        assert_eq!(same.first_different(&digest(0..3 * BLOCK)), None);
        let one_off = (0..3 * BLOCK).map(|at| at + u64::from(at == 2 * BLOCK - 1));
        assert_eq!(same.first_different(&digest(one_off)), Some(1));
        assert_eq!(same.first_different(&digest(0..3 * BLOCK - 1)), Some(2));
        let swapped = (0..3 * BLOCK).map(|at| if at < 2 { 1 - at } else { at });
        assert_eq!(same.first_different(&digest(swapped)), Some(0));
    }
}
