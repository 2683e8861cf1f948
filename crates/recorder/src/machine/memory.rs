//! The memory of the machine, which outlives QEMU: the recorder reads from it what the guest ended too early to write.
//!
//! ```text
//! memory (memfd) ◄── QEMU: the guest's physical memory
//!       └─ frames of the kernel's rings (`rings` in the spool) ──► the records that were not read
//! ```

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::{FdFlags, fcntl_setfd},
};

/// The size of the guest's memory, which also contains the files that it writes. All of it lies below the devices'
/// addresses, so that it is in one piece.
const SIZE: u64 = 2 << 30;
const PAGE: usize = 4096;
/// The offset of `data_head` in a `perf_event_mmap_page`, the first page of a ring: the bytes written to the ring so far.
const DATA_HEAD: usize = 1024;

/// The memory.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    /// The physical address of its first byte.
    base: u64,
}

impl Memory {
    /// Creates the memory, which QEMU inherits; `base` is the physical address of its first byte.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn new(base: u64) -> io::Result<Memory> {
        let file: OwnedFd = memfd_create("hodo-machine", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, SIZE)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(Memory { file: file.into(), base })
    }

    /// The size in bytes, and the path by which a process that inherited the file opens it.
    pub(super) fn arguments(&self) -> (u64, String) {
        (SIZE, format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Writes to the memory, as QEMU does.
    #[cfg(test)]
    pub(super) fn put(&self, address: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, address - self.base).unwrap();
    }

    /// Returns what a ring contains after the first `emptied` bytes of the recording. `frames` are the page numbers of
    /// the ring, its first page included.
    ///
    /// # Errors
    /// The system's error, or the frames are not those of a ring.
    pub(super) fn rest_of_ring(&self, frames: &[u64], emptied: u64) -> io::Result<Vec<u8>> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "these pages hold no ring");
        let (&first, pages) = frames.split_first().ok_or_else(wrong)?;
        let mut head = [0; 8];
        let read = |bytes: &mut [u8], page: u64, offset: usize| {
            let at = page.saturating_mul(PAGE as u64).checked_sub(self.base).ok_or_else(wrong)?;
            self.file.read_exact_at(bytes, at.saturating_add(offset as u64))
        };
        read(&mut head, first, DATA_HEAD)?;
        let head = u64::from_le_bytes(head);
        let size = (pages.len() * PAGE) as u64;
        let length = head.checked_sub(emptied).filter(|&length| length <= size).ok_or_else(wrong)?;
        let mut bytes = Vec::with_capacity(length as usize);
        while (bytes.len() as u64) < length {
            let position = (emptied + bytes.len() as u64) % size;
            let (page, offset) = (position as usize / PAGE, position as usize % PAGE);
            let mut piece = vec![0; (PAGE - offset).min(length as usize - bytes.len())];
            read(&mut piece, pages[page], offset)?;
            bytes.extend(piece);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_read_from_its_frames() {
        let memory = Memory::new(0).unwrap();
        // A ring of two pages, in the wrong order, of which 9000 bytes were written.
        let frames = [7, 9, 8];
        memory.put(7 * 4096 + 1024, &9000u64.to_le_bytes());
        memory.put(9 * 4096, &[1; 4096]);
        memory.put(8 * 4096, &[2; 4096]);
        let read = memory.rest_of_ring(&frames, 4000).unwrap();
        assert_eq!(read, [vec![1; 96], vec![2; 4096], vec![1; 808]].concat());
        assert!(memory.rest_of_ring(&frames, 9000).unwrap().is_empty());
        // More than the ring holds; and more than there is.
        assert!(memory.rest_of_ring(&frames, 1).is_err());
        assert!(memory.rest_of_ring(&frames, 9001).is_err());
        assert!(memory.rest_of_ring(&[], 0).is_err());
    }
}
