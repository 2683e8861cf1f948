//! Trace bytes on their way to a file.

use std::{fs::File, io::Write};

use hodo_intel_pt::encoder::Sink;

/// Bytes that are written at once.
const SIZE: usize = 1 << 20;
/// Bytes that may come between two looks at how full it is.
const SLACK: usize = 16 << 10;

/// The trace bytes of a virtual processor.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// When so much is filled, something is due: a PSB, or a write.
    limit: usize,
    /// Bytes that were written to the file.
    written: u64,
    pub(crate) psb_period: u64,
    file: File,
    failed: Option<String>,
}

impl Sink for Buffer {
    #[inline(always)]
    fn put(&mut self, word: u64, length: usize) {
        let Some(place) = self.bytes.get_mut(self.filled..self.filled + 8) else {
            // More came at once than a block's end makes; what is lost here shows as a difference to the count.
            self.failed.get_or_insert_with(|| "too many packets at once".to_owned());
            return;
        };
        place.copy_from_slice(&word.to_le_bytes());
        self.filled += length;
    }
}

impl Buffer {
    pub(crate) fn new(file: File, psb_period: u64) -> Buffer {
        let bytes = vec![0; SIZE + SLACK].into_boxed_slice();
        Buffer { bytes, filled: 0, limit: 0, written: 0, psb_period, file, failed: None }
    }

    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.filled >= self.limit
    }

    /// Bytes so far.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Writes what is there if it is much; the next look is due at the PSB at `next_psb`, or when it is full.
    pub(crate) fn spill(&mut self, next_psb: u64) {
        if self.filled >= SIZE - SLACK {
            self.finish();
        }
        let psb = usize::try_from(next_psb.saturating_sub(self.written)).unwrap_or(usize::MAX);
        self.limit = psb.min(SIZE - SLACK);
    }

    /// Writes what is there.
    pub(crate) fn finish(&mut self) {
        if let Err(error) = self.file.write_all(&self.bytes[..self.filled]) {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        self.written += self.filled as u64;
        self.filled = 0;
    }

    /// Why bytes are missing, if some are.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.clone()
    }
}
