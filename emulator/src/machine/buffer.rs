//! Buffers trace bytes before they are written to a file.

use std::{
    fs::File,
    io::{self, Write},
};

use hodo_intel_pt::encoder::Sink;

use super::{
    ring::Ring,
    spool::{Checkpoint, Piece},
    truth::Account,
};

/// Bytes per write.
const SIZE: usize = 1 << 20;
/// The most bytes between two checks of the fill level.
const SLACK: usize = 16 << 10;

/// The trace bytes of a vCPU.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// At this fill level a PSB or a write is due.
    limit: usize,
    /// Bytes written to the file.
    written: u64,
    pub(crate) psb_period: u64,
    file: File,
    /// Keeps the last bytes instead of writing all.
    ring: Option<Ring>,
    /// What was traced before each PSB, if all bytes are written.
    checkpoints: Vec<Checkpoint>,
    failed: Option<String>,
}

impl Sink for Buffer {
    #[inline(always)]
    fn put(&mut self, word: u64, length: usize) {
        let Some(place) = self.bytes.get_mut(self.filled..self.filled + 8) else {
            // More bytes at once than the end of a block makes; the loss shows as a difference to the account.
            self.failed.get_or_insert_with(|| "too many packets at once".to_owned());
            return;
        };
        place.copy_from_slice(&word.to_le_bytes());
        self.filled += length;
    }
}

impl Buffer {
    pub(crate) fn new(file: File, psb_period: u64, ring: Option<u64>) -> Buffer {
        let bytes = vec![0; SIZE + SLACK].into_boxed_slice();
        Buffer {
            bytes,
            filled: 0,
            limit: 0,
            written: 0,
            psb_period,
            file,
            ring: ring.map(Ring::new),
            checkpoints: Vec::new(),
            failed: None,
        }
    }

    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.filled >= self.limit
    }

    /// Bytes so far.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Writes the bytes if the buffer is nearly full. The next check is due at the PSB at `next_psb`, or when it is
    /// full.
    pub(crate) fn spill(&mut self, next_psb: u64) {
        if self.filled >= SIZE - SLACK {
            self.finish();
        }
        let psb = usize::try_from(next_psb.saturating_sub(self.written)).unwrap_or(usize::MAX);
        self.limit = psb.min(SIZE - SLACK);
    }

    /// Writes all bytes, or moves them to the ring.
    pub(crate) fn finish(&mut self) {
        let bytes = &self.bytes[..self.filled];
        let done = match &mut self.ring {
            Some(ring) => {
                ring.push(bytes);
                Ok(())
            }
            None => self.file.write_all(bytes),
        };
        self.check(done);
        self.written += self.filled as u64;
        self.filled = 0;
        self.limit = 0;
    }

    fn check(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// A PSB comes next; `before` is what was traced until then.
    pub(crate) fn psb(&mut self, before: Account) {
        let position = self.position();
        match &mut self.ring {
            Some(ring) => ring.psb(position, before),
            None => self.checkpoints.push(Checkpoint::new(position, before)),
        }
    }

    /// What was traced before each PSB and before the end; nothing if older bytes were overwritten.
    pub(crate) fn checkpoints(&self, traced: Account) -> Vec<Checkpoint> {
        let mut checkpoints = self.checkpoints.clone();
        checkpoints.extend(self.ring.is_none().then(|| Checkpoint::new(self.position(), traced)));
        checkpoints
    }

    /// Writes the last bytes, if only these are kept. `traced` is what was traced until now, at `time`.
    pub(crate) fn snapshot(&mut self, traced: Account, time: u64) {
        self.finish();
        if let Some(ring) = &mut self.ring {
            let done = ring.write(&mut self.file, traced, time);
            self.check(done);
        }
    }

    /// The pieces of the file, if the trace ended at `end`.
    pub(crate) fn pieces(&self, end: u64) -> Vec<Piece> {
        match &self.ring {
            Some(ring) => ring.pieces.clone(),
            None => vec![Piece { length: self.position(), end }],
        }
    }

    /// Returns what the bytes in the file cover: all that was `traced`, or less if older bytes were overwritten.
    pub(crate) fn covered(&self, traced: Account) -> Account {
        self.ring.as_ref().map_or(traced, |ring| ring.covered)
    }

    /// Why bytes are missing, if any are.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.clone()
    }
}
