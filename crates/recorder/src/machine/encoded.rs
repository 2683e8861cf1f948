//! The traces of Arm and RISC-V machines: ETM or E-Trace, made of the plugin's packets.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, Write},
    path::PathBuf,
};

use hodo_clock::{PerfClock, Tsc};
use hodo_emulator::{
    Target,
    machine::spool::{self, Cpu, TracePiece},
};

use super::{collect::Spool, disk, switches::ThreadSwitch};
use crate::units::{self, Clock, Code, Ran};

/// The trace of a processor.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) path: PathBuf,
    /// The pieces of the file: their bytes, and the tick at which each was complete.
    pub(super) pieces: Vec<(u64, u64)>,
    /// Instructions that ran, but that the trace does not show.
    pub(super) hidden: u64,
    /// What is missing, for people.
    pub(super) missing: Option<String>,
}

/// Makes the traces of the processors of a spool, in files of the spool.
///
/// # Errors
/// The system's error.
pub(super) fn encode(
    spool: Spool<'_>,
    target: Target,
    cpus: &[Cpu],
    clock: &PerfClock,
    switches: &[ThreadSwitch],
) -> io::Result<Vec<Encoded>> {
    let (folder, is_full) = (spool.folder, spool.is_full());
    let nanos = |ticks| clock.nanos(Tsc(ticks)).0;
    let notes = spool::read_code(folder)?;
    let mut code = Code::of_machine(target.isa(), &notes, nanos);
    let mut encode = |cpu: &Cpu| {
        let mut file = disk::open(&spool::trace_path(folder, cpu.cpu), is_full)?;
        let threads = threads(switches, cpu.cpu);
        let ran = Ran { number: cpu.cpu, threads: &threads };
        let path = folder.join(format!("cpu-{}.unit", cpu.cpu));
        let mut out = BufWriter::new(File::create(&path)?);
        let mut encoded = Encoded { path, pieces: Vec::new(), hidden: 0, missing: None };
        let mut pieces = cpu.pieces.as_slice();
        while !pieces.is_empty() {
            let (run, rest) = pieces.split_at(run_of(pieces));
            let closing = if rest.is_empty() { &cpu.closing[..] } else { &[] };
            let packets = Joined { file: &mut file, pieces: run, read: 0 }.chain(closing);
            let clock = Clock::Counter(&nanos);
            let before = out.stream_position()?;
            let last = units::encode_processor(target, ran, packets, &mut code, clock, &mut out)?;
            out.write_all(&last.bytes)?;
            let end = run.last().map_or(0, |last| last.end);
            encoded.pieces.push((out.stream_position()? - before, end));
            encoded.hidden += last.hidden;
            encoded.missing = encoded.missing.or(last.missing);
            pieces = rest;
        }
        out.flush()?;
        Ok(encoded)
    };
    cpus.iter().map(&mut encode).collect()
}

/// The number of pieces that follow each other without a gap.
fn run_of(pieces: &[TracePiece]) -> usize {
    let follows = |pair: &[TracePiece]| pair[1].begin <= pair[0].begin + pair[0].length;
    1 + pieces.windows(2).take_while(|pair| follows(pair)).count()
}

/// Reads pieces that follow each other, without what they repeat.
struct Joined<'r, R> {
    file: &'r mut R,
    pieces: &'r [TracePiece],
    /// Bytes of the first piece that were read.
    read: u64,
}

impl<R: Read> Read for Joined<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let [piece, rest @ ..] = self.pieces {
            let count = self.file.by_ref().take(piece.length - self.read).read(into)?;
            self.read += count as u64;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            if self.read < piece.length {
                break;
            }
            (self.pieces, self.read) = (rest, 0);
            if let [next, ..] = rest {
                self.read = (piece.begin + piece.length - next.begin).min(next.length);
                io::copy(&mut self.file.by_ref().take(self.read), &mut io::sink())?;
            }
        }
        Ok(0)
    }
}

/// The threads that a processor ran: since when, and their IDs. Its first switch leaves the first one.
fn threads(switches: &[ThreadSwitch], cpu: u32) -> Vec<(u64, u32)> {
    let of_cpu: Vec<_> = switches.iter().filter(|switch| switch.cpu == cpu).collect();
    let first = of_cpu.first().map(|switch| (0, switch.from.tid));
    first.into_iter().chain(of_cpu.iter().map(|switch| (switch.time.0, switch.to.tid))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_that_repeat_bytes_are_joined() {
        let piece = |begin, length| TracePiece { begin, length, end: 0 };
        // The bytes are 0 to 7 and 9, and some are there two or three times.
        let pieces = [piece(0, 4), piece(2, 4), piece(3, 3), piece(6, 2), piece(9, 1)];
        let run = run_of(&pieces);
        assert_eq!((run, run_of(&pieces[run..])), (4, 1));
        let mut file = &b"0123234534567"[..];
        let mut read = Vec::new();
        Joined { file: &mut file, pieces: &pieces[..run], read: 0 }.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"01234567");
    }
}
