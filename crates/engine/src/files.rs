//! The files of an experiment, each mapped once for the experiment's life.

use std::{
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use hodo_bytes::Map;

/// Files that were opened. Grows only, so that what was borrowed from it stays.
#[derive(Debug, Default)]
pub struct Files {
    first: OnceLock<Box<Opened>>,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    map: Map,
    next: OnceLock<Box<Opened>>,
}

impl Files {
    /// The bytes of a file; it is opened and mapped the first time.
    ///
    /// # Errors
    /// Whatever the system says when the file can't be opened or mapped.
    pub fn bytes(&self, path: &Path) -> io::Result<&[u8]> {
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
}
