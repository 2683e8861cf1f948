//! Buffers trace bytes before they are written to a file.

use std::{
    fs::File,
    io::{self, Write},
};

use hodo_intel_pt::encoder::Sink;

use super::{
    ring::Ring,
    spool::{Checkpoint, TracePiece},
    truth::Account,
};

/// Bytes per write: what is lost at most if QEMU is killed.
const SIZE: usize = 1 << 17;
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
    /// How much of the file [`Buffer::new_pieces`] has returned: pieces of a ring, or bytes.
    returned: u64,
    pub(crate) psb_period: u64,
    file: File,
    /// Keeps the last bytes instead of writing all.
    ring: Option<Ring>,
    /// What was traced before each PSB since [`Buffer::new_checkpoints`], if all bytes are written.
    checkpoints: Vec<Checkpoint>,
    failed: Option<String>,
}

impl Sink for Buffer {
    #[inline(always)]
    fn put(&mut self, word: u64, length: usize) {
        let Some(slot) = self.bytes.get_mut(self.filled..self.filled + 8) else {
            // More bytes at once than the end of a block makes; the loss shows as a difference to the account.
            self.failed.get_or_insert_with(|| "too many packets at once".to_owned());
            return;
        };
        slot.copy_from_slice(&word.to_le_bytes());
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
            returned: 0,
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

    /// Whether the bytes must be written.
    pub(crate) fn is_full(&self) -> bool {
        self.filled >= SIZE - SLACK
    }

    /// The next check is due at the PSB at `next_psb`, or when the buffer is nearly full.
    pub(crate) fn wait(&mut self, next_psb: u64) {
        let psb = usize::try_from(next_psb.saturating_sub(self.written)).unwrap_or(usize::MAX);
        self.limit = psb.min(SIZE - SLACK);
    }

    /// Writes all bytes, or moves them to the ring. After a failure nothing more is written, because there
    /// would be a gap.
    pub(crate) fn finish(&mut self) {
        let bytes = &self.bytes[..self.filled];
        let done = match &mut self.ring {
            Some(ring) => {
                ring.push(bytes);
                Ok(())
            }
            None if self.failed.is_some() => Ok(()),
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

    /// What was traced before each PSB since the last call; nothing if older bytes are overwritten.
    pub(crate) fn new_checkpoints(&mut self) -> Vec<Checkpoint> {
        std::mem::take(&mut self.checkpoints)
    }

    /// Writes the last bytes, if only these are kept. `traced` is what was traced until now, at `time`.
    pub(crate) fn snapshot(&mut self, traced: Account, time: u64) {
        self.finish();
        if let Some(ring) = &mut self.ring
            && self.failed.is_none()
        {
            let done = ring.write(&mut self.file, traced, time);
            self.check(done);
        }
    }

    /// Whether only the last bytes are kept.
    pub(crate) fn is_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// The pieces of the file since the last call, if what was written ends at `end`.
    pub(crate) fn new_pieces(&mut self, end: u64) -> Vec<TracePiece> {
        let before = self.returned;
        match &self.ring {
            Some(ring) => {
                self.returned = ring.pieces.len() as u64;
                ring.pieces[before as usize..].to_vec()
            }
            None => {
                self.returned = self.written;
                vec![TracePiece { begin: before, length: self.written - before, end }]
            }
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
