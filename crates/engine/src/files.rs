//! The files of an experiment, each mapped once for the experiment's life.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use hodo_bytes::Map;
use hodo_formats::{Input, Part, Unpacked};

/// Files that were opened. Grows only, so that what was borrowed from it stays.
#[derive(Debug, Default)]
pub struct Files {
    maps: Maps,
    unpacked: Unpacked,
}

/// Those of them that are mapped.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    first: OnceLock<Box<Opened>>,
}

/// What stands for standard input in the place of a file.
const STANDARD_INPUT: &str = "-";
/// The first file of a folder that perf recorded into; the others have a dot and a number behind it.
const FIRST_OF_FOLDER: &str = "data";

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    map: Map,
    next: OnceLock<Box<Opened>>,
}

impl Files {
    /// The files of a recording: a file, a folder's, or standard input where the path is `-`.
    ///
    /// # Errors
    /// Whatever the system says when one of them can't be opened or mapped.
    pub fn recording(&self, path: &Path) -> io::Result<Input<'_>> {
        if !path.is_dir() {
            return Ok(Input::file(self.bytes(path)?, &self.unpacked));
        }
        let first = path.join(FIRST_OF_FOLDER);
        if !first.exists() {
            let reason = "is a folder without a trace: no `metadata` in it or below it (CTF: LTTng, barectf), and no \
                          `data` (perf record --threads)";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, reason));
        }
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(FIRST_OF_FOLDER)?.strip_prefix('.'));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        let mut parts = Vec::new();
        for number in numbers {
            let name = format!("{FIRST_OF_FOLDER}.{number}");
            parts.push(Part { bytes: self.bytes(&path.join(&name))?, name });
        }
        Ok(Input { parts, ..Input::file(self.bytes(&first)?, &self.unpacked) })
    }

    /// The bytes of a file, or of standard input where the path is `-`; mapped the first time.
    ///
    /// # Errors
    /// Whatever the system says when the file can't be opened or mapped.
    pub fn bytes(&self, path: &Path) -> io::Result<&[u8]> {
        if path == Path::new(STANDARD_INPUT) {
            return standard_input();
        }
        self.maps.bytes(path)
    }

    /// What is mapped.
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

    /// Gives the memory of these bytes back to the system until somebody looks at them again.
    pub(crate) fn release(&self, bytes: &[u8]) {
        let mut slot = &self.first;
        while let Some(opened) = slot.get() {
            opened.map.release(bytes);
            slot = &opened.next;
        }
    }
}

/// All of standard input. It can be read only once, whoever asks first.
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
