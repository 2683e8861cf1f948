//! Files mapped into memory.

use std::{
    fs::{self, File},
    io,
    ops::Deref,
    path::Path,
};

use crate::guard::{Guarded, Unreadable};

/// The bytes of a file or a pipe, mapped read-only. Where the file shrinks while it is mapped, or its disk fails, the
/// bytes are zeros from there on, and [`Map::unreadable`] returns their offset.
#[derive(Debug)]
pub struct Map(Option<Mapped>);

/// Fields are dropped in this order: the guard before the map.
#[derive(Debug)]
struct Mapped {
    guard: Guarded,
    map: memmap2::Mmap,
}

impl Map {
    /// Maps a whole file. An empty file gives an empty slice.
    ///
    /// # Errors
    /// The system's error if the file can't be opened or mapped.
    pub fn open(path: &Path) -> io::Result<Map> {
        // Opening a pipe would wait for its writer, so check first.
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
        }
        if !metadata.is_file() {
            let reason = "is a pipe or a device, but can only be read as a file; write it to one first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Map::of(&File::open(path)?, path)
    }

    /// Maps the whole content of a pipe, by way of an unnamed temporary file.
    ///
    /// # Errors
    /// The system's error if the pipe can't be read or the file can't be written.
    pub fn pipe(mut input: impl io::Read) -> io::Result<Map> {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut input, &mut file)?;
        Map::of(&file, Path::new(""))
    }

    /// Returns the memory of the pages with `bytes` to the system, which loads them again on the next access.
    /// Releasing pages right after use avoids releasing all of them at the end in one thread. Bytes that are not from
    /// this map are ignored.
    ///
    /// The system uses large pages if it can, and would split one that is released in part. So the large page at the
    /// end of `bytes` is kept, and the one at the start is released whole.
    #[allow(unsafe_code)]
    pub fn release(&self, bytes: &[u8]) {
        /// Bytes of a large page.
        const LARGE: usize = 2 << 20;
        let Some(map) = self.0.as_ref().map(|mapped| &mapped.map) else { return };
        if !map.as_ptr_range().contains(&bytes.as_ptr()) {
            return;
        }
        let base = map.as_ptr() as usize;
        let large_page = |address: usize| (address / LARGE * LARGE).saturating_sub(base);
        let begin = bytes.as_ptr() as usize;
        let start = large_page(begin);
        let end = (begin - base).saturating_add(bytes.len());
        let end = if end < map.len() { large_page(base + end) } else { map.len() };
        if end > start {
            // SAFETY: the file is mapped shared and not written to, so its pages are the same when loaded again.
            // Advice that the system ignores has no effect.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    /// Returns the offset from which on the file could not be read, if there is one.
    pub fn unreadable(&self) -> Option<Unreadable> {
        self.0.as_ref()?.guard.unreadable()
    }

    #[allow(unsafe_code)]
    fn of(file: &File, path: &Path) -> io::Result<Map> {
        if file.metadata()?.len() == 0 {
            return Ok(Map(None));
        }
        // SAFETY: the mapping is read-only, and recordings are written once and then read. If another process truncates
        // the file meanwhile, an access raises SIGBUS, which the guard handles.
        let map = unsafe { memmap2::Mmap::map(file)? };
        let guard = Guarded::new(path, map.as_ptr() as usize, map.len());
        Ok(Map(Some(Mapped { guard, map })))
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |mapped| &mapped.map)
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Announces a read of the byte at an index, if there is one, to the processor. This affects the speed only:
/// processors prefetch sequentially, but not across the end of a page, where a miss costs most.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch(bytes: &[u8], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn released_pages_are_read_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = Map::open(file.path()).unwrap();
        for part in [0..5_000_000, 1..2, 5_000..4_999_999, 3_000_000..4_500_000, 4_999_999..5_000_000, 7..7] {
            map.release(&map[part]);
            assert_eq!(*map, *bytes);
        }
        // Memory outside the map is not affected.
        map.release(&bytes);
        assert_eq!(*map, *bytes);
    }

    #[test]
    fn bytes_that_were_cut_off_are_zeros_and_their_offset_is_known() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let whole = Map::open(file.path()).unwrap();
        let other = Map::open(file.path()).unwrap();
        assert_eq!(whole.iter().filter(|&&byte| byte == 7).count(), 1 << 20);
        whole.release(&whole);
        file.as_file().set_len(5_000).unwrap();
        // The rest of the last page is zeros too, as the kernel has it.
        let sum = std::thread::scope(|scope| {
            let sum = |part: &[u8]| part.iter().map(|&byte| u64::from(byte)).sum::<u64>();
            let threads: Vec<_> = whole.chunks(1 << 18).map(|part| scope.spawn(move || sum(part))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        assert_eq!(sum, 5_000 * 7);
        let cut = Unreadable { path: file.path().to_owned(), offset: 8192 };
        assert_eq!(whole.unreadable(), Some(cut.clone()));
        assert_eq!(other.unreadable(), None);
        drop((whole, other));
        assert!(crate::unreadable().contains(&cut));
        // A new map must not reuse the guard that keeps this offset.
        let again = Map::open(file.path()).unwrap();
        assert_eq!((again.len(), again.unreadable()), (5_000, None));
        assert!(crate::unreadable().contains(&cut));
    }
}
