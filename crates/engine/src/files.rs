//! The files of an experiment, each mapped once and for the experiment's lifetime.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use hodo_bytes::Map;
use hodo_formats::{
    Input, OtherFile, Unpacked,
    coresight::{FIRST_FILE, referenced},
};
use hodo_model::{Cause, Loss};

/// Opened files. Files are only added, so borrows of their bytes stay valid.
#[derive(Debug, Default)]
pub struct Files {
    maps: Maps,
    unpacked: Unpacked,
}

/// Mapped files.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    first: OnceLock<Box<Opened>>,
}

/// The path that means standard input.
const STANDARD_INPUT: &str = "-";
/// The first file of a perf recording in a folder; the other names add a dot and a number.
const FIRST_OF_FOLDER: &str = "data";
/// The hardware trace of a board's slave, in the folder of its events.
pub(crate) const HARDWARE: &str = "hardware/trace.data";

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    map: Map,
    next: OnceLock<Box<Opened>>,
}

impl Files {
    /// Opens the files of a recording: a file, the files of a folder, or standard input if the path is `-`.
    ///
    /// # Errors
    /// The system's error if a file can't be opened or mapped.
    pub fn recording(&self, path: &Path) -> io::Result<Input<'_>> {
        if path.file_name().is_some_and(|name| name == FIRST_FILE) && path.is_file() {
            return self.snapshot(path.parent().unwrap_or(path));
        }
        if !path.is_dir() {
            return Ok(Input::file(self.bytes(path)?, &self.unpacked));
        }
        if path.join(FIRST_FILE).exists() {
            return self.snapshot(path);
        }
        let hardware = path.join(HARDWARE);
        if hardware.exists() {
            return Ok(Input::file(self.bytes(&hardware)?, &self.unpacked));
        }
        let first = path.join(FIRST_OF_FOLDER);
        if !first.exists() {
            let reason = "is a folder without a trace: no `metadata` in it or below it (CTF: LTTng, barectf), no \
                          `data` (perf record --threads), and no `snapshot.ini` (OpenCSD)";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, reason));
        }
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(FIRST_OF_FOLDER)?.strip_prefix('.'));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        let mut others = Vec::new();
        for number in numbers {
            let name = format!("{FIRST_OF_FOLDER}.{number}");
            others.push(OtherFile { bytes: self.bytes(&path.join(&name))?, name });
        }
        Ok(Input { others, ..Input::file(self.bytes(&first)?, &self.unpacked) })
    }

    /// Opens the files of a snapshot of OpenCSD. Those that are missing are left out.
    fn snapshot(&self, folder: &Path) -> io::Result<Input<'_>> {
        let first = self.bytes(&folder.join(FIRST_FILE))?;
        let mut others: Vec<OtherFile<'_>> = Vec::new();
        // Text files refer to other files; buffers and dumps of memory are no text.
        let mut names = referenced(first);
        while let Some(name) = names.pop() {
            let is_known = others.iter().any(|other| other.name == name);
            let Some(bytes) =
                Some(&name).filter(|_| !is_known).and_then(|name| self.bytes(&folder.join(name)).ok())
            else {
                continue;
            };
            if name.ends_with(".ini") {
                names.extend(referenced(bytes));
            }
            others.push(OtherFile { name, bytes });
        }
        let path = self.unpacked.keep(folder.to_string_lossy().into_owned().into_bytes());
        let folder = std::str::from_utf8(path).unwrap_or_default();
        Ok(Input { others, folder, ..Input::file(first, &self.unpacked) })
    }

    /// Returns the store for unpacked bytes.
    pub(crate) fn unpacked(&self) -> &Unpacked {
        &self.unpacked
    }

    /// Returns the bytes of a file, or of standard input if the path is `-`. Maps the file on first use.
    ///
    /// # Errors
    /// The system's error if the file can't be opened or mapped.
    pub fn bytes(&self, path: &Path) -> io::Result<&[u8]> {
        if path == Path::new(STANDARD_INPUT) {
            return standard_input();
        }
        self.maps.bytes(path)
    }

    /// Returns the mapped files.
    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }
}

impl Maps {
    fn bytes(&self, path: &Path) -> io::Result<&[u8]> {
        let mut slot = &self.first;
        while let Some(opened) = slot.get() {
            if opened.path == path {
                return Ok(&opened.map);
            }
            slot = &opened.next;
        }
        let map = Map::open(path)?;
        let opened =
            slot.get_or_init(|| Box::new(Opened { path: path.to_owned(), map, next: OnceLock::new() }));
        Ok(&opened.map)
    }

    /// Returns the losses of files that could not be read to their end: they shrank while they were read, or their disk
    /// failed. The bytes there were read as zeros.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        let mut slot = &self.first;
        while let Some(opened) = slot.get() {
            losses.extend(opened.map.unreadable().map(|unreadable| Loss {
                stream: unreadable.path.display().to_string(),
                cause: Cause::CutShort,
                bytes: unreadable.offset..opened.map.len() as u64,
                time: None,
                count: 1,
                detail: "the file shrank while it was read, or its disk failed".to_owned(),
            }));
            slot = &opened.next;
        }
        losses
    }

    /// Returns the memory of these bytes to the system, which loads them again on the next access.
    pub(crate) fn release(&self, bytes: &[u8]) {
        let mut slot = &self.first;
        while let Some(opened) = slot.get() {
            opened.map.release(bytes);
            slot = &opened.next;
        }
    }
}

/// Returns all of standard input, which is read on first use.
fn standard_input() -> io::Result<&'static [u8]> {
    static INPUT: OnceLock<Map> = OnceLock::new();
    match INPUT.get() {
        Some(map) => Ok(map),
        None => {
            let map = Map::pipe(io::stdin())?;
            Ok(INPUT.get_or_init(|| map))
        }
    }
}
