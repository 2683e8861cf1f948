//! A file mapped into memory for its life.

use std::{
    fs::{self, File},
    io,
    ops::Deref,
    path::Path,
};

/// The bytes of a file or a pipe, mapped read-only.
#[derive(Debug)]
pub struct Map(Option<memmap2::Mmap>);

impl Map {
    /// Maps a whole file. An empty file gives an empty slice.
    ///
    /// # Errors
    /// Whatever the system says when the file can't be opened or mapped.
    pub fn open(path: &Path) -> io::Result<Map> {
        // Before opening it, which would wait for a pipe's writer.
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
        }
        if !metadata.is_file() {
            let reason = "is a pipe or a device, but can only be read as a file; write it to one first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Map::of(&File::open(path)?)
    }

    /// Maps what a pipe gives, all of it, by way of a file without a name.
    ///
    /// # Errors
    /// Whatever the system says when the pipe can't be read or the file not be written.
    pub fn pipe(mut input: impl io::Read) -> io::Result<Map> {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut input, &mut file)?;
        Map::of(&file)
    }

    /// Gives the memory of pages that these bytes of it lie in back to the system, which fills it again when
    /// somebody looks at them again. What is given back as soon as it was read is not given back all at once at
    /// the end, by one thread. Nothing is done for bytes that are not of this map.
    ///
    /// The system maps large pages where it can, and would split one of which a part is given back. So one that the
    /// bytes end in stays for the bytes behind, and one that they begin in goes.
    #[allow(unsafe_code)]
    pub fn release(&self, bytes: &[u8]) {
        const LARGE: usize = 2 << 20;
        let Some(map) = self.0.as_ref().filter(|map| map.as_ptr_range().contains(&bytes.as_ptr())) else {
            return;
        };
        let base = map.as_ptr() as usize;
        let within = |address: usize| (address / LARGE * LARGE).saturating_sub(base);
        let begin = bytes.as_ptr() as usize;
        let start = within(begin);
        let end = (begin - base).saturating_add(bytes.len());
        let end = if end < map.len() { within(base + end) } else { map.len() };
        if end > start {
            // SAFETY: pages of a shared mapping of a file that is not written to are the same when they come back.
            // Advice that is not taken changes nothing.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    #[allow(unsafe_code)]
    fn of(file: &File) -> io::Result<Map> {
        if file.metadata()?.len() == 0 {
            return Ok(Map(None));
        }
        // SAFETY: the mapping is private to this process and read-only. A file that another process
        // truncates meanwhile raises SIGBUS, the one hazard that mapped input has; recordings are
        // written once and then read.
        let map = unsafe { memmap2::Mmap::map(file)? };
        Ok(Map(Some(map)))
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

/// Tells the processor that the byte at an index, if there is one, will be read soon. That changes nothing but when it
/// is there: processors fetch what lies behind by themselves, but not over the end of a page, where that costs most.
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
    fn what_was_given_back_comes_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = Map::open(file.path()).unwrap();
        for part in [0..5_000_000, 1..2, 5_000..4_999_999, 3_000_000..4_500_000, 4_999_999..5_000_000, 7..7] {
            map.release(&map[part]);
            assert_eq!(*map, *bytes);
        }
        // Memory of others keeps what it has.
        map.release(&bytes);
        assert_eq!(*map, *bytes);
    }
}
