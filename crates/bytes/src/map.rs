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
