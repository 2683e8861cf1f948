//! A part of a file.

use std::{
    ffi::{CStr, CString, OsStr},
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use memmap2::Mmap;

use super::cache::Kept;
use crate::{Error, block::BlockCache, c::map};

/// A part of a file. It is mapped while someone holds its [`Content`].
#[derive(Debug)]
pub(crate) struct Section {
    file: CString,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Size and time of the file when the section was made: later the file must be the same.
    size_of_file: u64,
    changed: i64,
    mapped: Mutex<Weak<Content>>,
    /// What the section's cache keeps mapped.
    keeper: OnceLock<Weak<Kept>>,
}

/// The bytes of a section.
#[derive(Debug)]
pub(crate) struct Content {
    map: Mmap,
    /// Bytes of the map before the section: maps begin at a page.
    skip: usize,
    size: usize,
    blocks: OnceLock<BlockCache>,
}

impl Content {
    /// Returns the bytes from an offset on, at most `size`.
    pub(crate) fn read(&self, offset: u64, size: usize) -> Result<&[u8], Error> {
        let bytes = &self.map[self.skip..][..self.size];
        let begin = usize::try_from(offset).ok().filter(|&begin| begin < bytes.len());
        let rest = &bytes[begin.ok_or(Error::NO_MAP)?..];
        Ok(&rest[..size.min(rest.len())])
    }

    /// Returns the cache of the section's blocks, which all decoders share while it is mapped.
    pub(crate) fn blocks(&self) -> &BlockCache {
        self.blocks.get_or_init(|| BlockCache::new(self.size as u64))
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }
}

/// Maps begin at multiples of this, whatever the size of a page.
const ALIGNMENT: u64 = 1 << 16;

impl Section {
    /// Creates a section of at most `size` bytes.
    pub(crate) fn new(file: &CStr, offset: u64, size: u64) -> Result<Section, Error> {
        let metadata = fs::metadata(path(file)).map_err(|_| Error::INVALID)?;
        let left = metadata.size().checked_sub(offset).filter(|&left| left > 0).ok_or(Error::INVALID)?;
        Ok(Section {
            file: file.to_owned(),
            offset,
            size: size.min(left),
            size_of_file: metadata.size(),
            changed: metadata.mtime(),
            mapped: Mutex::default(),
            keeper: OnceLock::new(),
        })
    }

    /// Returns the file's name.
    pub(crate) fn file(&self) -> &CStr {
        &self.file
    }

    /// Lets a cache keep the section mapped.
    pub(crate) fn set_keeper(&self, keeper: &Arc<Kept>) {
        self.keeper.get_or_init(|| Arc::downgrade(keeper));
    }

    /// Maps the section.
    pub(crate) fn map(&self) -> Result<Arc<Content>, Error> {
        let content = self.map_or_find()?;
        if let Some(keeper) = self.keeper.get().and_then(Weak::upgrade) {
            keeper.keep(&content);
        }
        Ok(content)
    }

    fn map_or_find(&self) -> Result<Arc<Content>, Error> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = mapped.upgrade() {
            return Ok(content);
        }
        let file = File::open(path(&self.file)).map_err(|_| Error::BAD_FILE)?;
        let metadata = file.metadata().map_err(|_| Error::BAD_FILE)?;
        if metadata.size() != self.size_of_file || metadata.mtime() != self.changed {
            return Err(Error::BAD_IMAGE);
        }
        let skip = self.offset % ALIGNMENT;
        let length = usize::try_from(skip + self.size).map_err(|_| Error::NO_MEMORY)?;
        let map = map::read_only(&file, self.offset - skip, length).map_err(|_| Error::NO_MEMORY)?;
        let (skip, size) = (skip as usize, self.size as usize);
        let content = Arc::new(Content { map, skip, size, blocks: OnceLock::new() });
        *mapped = Arc::downgrade(&content);
        Ok(content)
    }
}

fn path(file: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(file.to_bytes()))
}
