//! The last part of a vCPU's trace, which is written on request.

use std::{collections::VecDeque, io, io::Write};

use hodo_intel_pt::packet::PSB;

use super::{spool::TracePiece, truth::Account};

/// A position in a trace, of a PSB or of the end, and the account of the trace before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TracePosition {
    position: u64,
    before: Account,
}

/// The last bytes of a trace.
pub(crate) struct Ring {
    bytes: Box<[u8]>,
    /// Bytes so far.
    position: u64,
    /// The PSBs among the kept bytes.
    psbs: VecDeque<TracePosition>,
    /// The end of what was written.
    written: TracePosition,
    /// What was traced in the written parts.
    pub(crate) covered: Account,
    /// The written pieces.
    pub(crate) pieces: Vec<TracePiece>,
}

impl Ring {
    pub(crate) fn new(size: u64) -> Ring {
        Ring {
            bytes: vec![0; size as usize].into_boxed_slice(),
            position: 0,
            psbs: VecDeque::new(),
            written: TracePosition::default(),
            covered: Account::default(),
            pieces: Vec::new(),
        }
    }

    /// A PSB begins at this position.
    pub(crate) fn psb(&mut self, position: u64, before: Account) {
        self.psbs.push_back(TracePosition { position, before });
    }

    /// Keeps more bytes of the trace.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(self.bytes.len())..];
        let begin = self.index_of(self.position - kept.len() as u64);
        let (head, tail) = kept.split_at(kept.len().min(self.bytes.len() - begin));
        self.bytes[begin..begin + head.len()].copy_from_slice(head);
        self.bytes[..tail.len()].copy_from_slice(tail);
        let oldest = self.position.saturating_sub(self.bytes.len() as u64);
        while self.psbs.front().is_some_and(|psb| psb.position < oldest) {
            self.psbs.pop_front();
        }
    }

    fn index_of(&self, position: u64) -> usize {
        (position % self.bytes.len() as u64) as usize
    }

    /// Writes the kept bytes, from a PSB on. `traced` is what was traced until now, at `time`.
    ///
    /// A reader joins two pieces if the second begins with a PSB of the first (see `from_snapshots` of `hodo-formats`;
    /// perf does the same). So of what an earlier piece contains, only its last PSB and what follows are written again.
    pub(crate) fn write(&mut self, mut out: impl Write, traced: Account, time: u64) -> io::Result<()> {
        let is_in = |psb: &&TracePosition| psb.position + PSB.len() as u64 <= self.written.position;
        let again = self.psbs.iter().rev().find(is_in).copied();
        let Some(first) = again.or_else(|| self.psbs.front().copied()) else { return Ok(()) };
        let now = TracePosition { position: self.position, before: traced };
        if now.position == self.written.position {
            return Ok(());
        }
        let (begin, end) = (self.index_of(first.position), self.index_of(now.position));
        let length = now.position - first.position;
        if begin < end {
            out.write_all(&self.bytes[begin..end])?
        } else {
            out.write_all(&self.bytes[begin..])?;
            out.write_all(&self.bytes[..end])?;
        }
        let since = if again.is_some() { self.written.before } else { first.before };
        self.covered.append(traced.since(since));
        self.written = now;
        self.pieces.push(TracePiece { begin: first.position, length, end: time });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace whose instructions are its bytes.
    struct Trace {
        ring: Ring,
        all: Vec<u8>,
        traced: Account,
        file: Vec<u8>,
    }

    impl Trace {
        fn run(&mut self, count: u8) {
            let position = self.all.len() as u64;
            self.ring.psb(position, self.traced);
            self.ring.push(&PSB);
            self.all.extend(PSB);
            let bytes: Vec<u8> = (0..count).map(|index| index ^ position as u8).collect();
            self.ring.push(&bytes);
            bytes.iter().for_each(|&byte| self.traced.retire(byte.into()));
            self.all.extend(bytes);
        }

        fn write(&mut self) -> Vec<u8> {
            self.file.clear();
            self.ring.write(&mut self.file, self.traced, self.all.len() as u64).unwrap();
            self.file.clone()
        }
    }

    fn trace(size: u64) -> Trace {
        Trace { ring: Ring::new(size), all: Vec::new(), traced: Account::default(), file: Vec::new() }
    }

    fn account(bytes: &[u8]) -> Account {
        let mut account = Account::default();
        bytes.iter().for_each(|&byte| account.retire(byte.into()));
        account
    }

    #[test]
    fn the_last_bytes_are_written_from_a_psb_on() {
        let mut trace = trace(64);
        assert!(trace.write().is_empty());
        [30, 20, 10].into_iter().for_each(|count| trace.run(count));
        // Of 108 bytes the last 64 are kept: the second PSB, at 46, is among them.
        assert_eq!(trace.write(), trace.all[46..]);
        let expected = [&trace.all[62..82], &trace.all[98..]].concat();
        assert_eq!(trace.ring.covered, account(&expected));
        assert!(trace.write().is_empty());
    }

    #[test]
    fn a_second_piece_begins_with_a_psb_of_the_first() {
        let mut trace = trace(64);
        trace.run(30);
        assert_eq!(trace.write(), trace.all);
        trace.run(2);
        assert_eq!(trace.write(), trace.all);
        trace.run(5);
        assert_eq!(trace.write(), trace.all[46..]);
        assert_eq!(trace.ring.covered, trace.traced);
        // What follows is more than the ring keeps.
        [40, 3].into_iter().for_each(|count| trace.run(count));
        let begin = trace.all.len() - 19;
        assert_eq!(trace.write(), trace.all[begin..]);
        assert_eq!(trace.ring.covered.instructions, 30 + 2 + 5 + 3);
        let lengths: Vec<_> = trace.ring.pieces.iter().map(|piece| piece.length).collect();
        assert_eq!(lengths, [46, 64, 39, 19]);
    }
}
