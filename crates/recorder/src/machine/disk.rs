//! Space on the disk: a recording ends before the disk is full, and its files in the spool free their space while they are
//! copied.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::Path,
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The most space to keep: enough for what is written after the last trace bytes.
const RESERVE: u64 = 32 << 20;
/// Bytes before the reading position that are not freed, because their copy may not be written yet.
const LAG: u64 = 2 << 20;
/// The bytes that are freed at once, at least.
const STEP: u64 = 1 << 20;

/// The free bytes of a folder's file system; `None` if the system does not say.
pub(super) fn free(folder: &Path) -> Option<u64> {
    let system = statvfs(folder).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// The space to keep: a quarter of a small disk.
pub(super) fn reserve(folder: &Path) -> u64 {
    free(folder).map_or(0, |free| (free / 4).min(RESERVE))
}

/// The bytes in a folder's files.
pub(super) fn used(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

/// Opens a file that is read once; `is_full`: it frees its space meanwhile.
pub(super) fn open(path: &Path, is_full: bool) -> io::Result<Box<dyn Read>> {
    Ok(match is_full {
        true => Box::new(Consumed::open(path)?),
        false => Box::new(File::open(path)?),
    })
}

/// A file that frees its space while it is read.
struct Consumed {
    file: File,
    read: u64,
    freed: u64,
}

impl Consumed {
    fn open(path: &Path) -> io::Result<Consumed> {
        Ok(Consumed { file: OpenOptions::new().read(true).write(true).open(path)?, read: 0, freed: 0 })
    }
}

impl Read for Consumed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.read += count as u64;
        if self.read >= self.freed + LAG + STEP {
            let length = self.read - LAG - self.freed;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Some file systems have no holes: the disk may then become full.
            _ = fallocate(&self.file, hole, self.freed, length);
            self.freed += length;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_consumed_file_frees_its_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let bytes: Vec<u8> = (0..8u32 << 20).map(|index| (index >> 12) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let before = fs::metadata(&path).unwrap().blocks();
        let mut read = Vec::new();
        Consumed::open(&path).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        let after = fs::metadata(&path).unwrap().blocks();
        assert!(after <= before / 2, "{after} of {before} blocks");
        assert_eq!(used(folder.path()), 8 << 20);
    }
}
