//! Caches of sections: their numbers, and which stay mapped.

use std::{
    ffi::{CStr, CString},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Content, Section};
use crate::Error;

/// A cache of sections.
#[derive(Debug)]
pub(crate) struct SectionCache {
    name: Option<CString>,
    entries: Mutex<Vec<Entry>>,
    kept: Arc<Kept>,
}

/// The sections that a cache keeps mapped without use.
#[derive(Debug)]
pub(crate) struct Kept(Mutex<KeptState>);

#[derive(Debug)]
struct KeptState {
    /// Bytes to keep.
    limit: u64,
    /// The one used last comes first.
    contents: Vec<Arc<Content>>,
}

#[derive(Clone, Debug)]
struct Entry {
    section: Arc<Section>,
    address: u64,
}

/// libipt numbers sections with 16 bits.
const MOST_SECTIONS: usize = u16::MAX as usize;

impl SectionCache {
    pub(crate) fn new(name: Option<&CStr>) -> SectionCache {
        let kept = KeptState { limit: u64::MAX, contents: Vec::new() };
        let kept = Arc::new(Kept(Mutex::new(kept)));
        SectionCache { name: name.map(CStr::to_owned), entries: Mutex::default(), kept }
    }

    pub(crate) fn name(&self) -> Option<&CStr> {
        self.name.as_deref()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        let mut kept = self.kept.state();
        kept.limit = limit;
        kept.prune();
    }

    /// Adds a part of a file at an address. Returns its number; the same one for the same part and address.
    pub(crate) fn add_file(&self, file: &CStr, offset: u64, size: u64, address: u64) -> Result<i32, Error> {
        let mut entries = self.entries();
        // Sections are known by the size that was asked for, or by the one that is left of the file.
        let section = match find(&entries, file, offset, size, address) {
            Some(Known::Entry(isid)) => return Ok(isid),
            Some(Known::Section(section)) => section,
            None => {
                let new = Section::new(file, offset, size)?;
                match find(&entries, file, offset, new.size, address) {
                    Some(Known::Entry(isid)) => return Ok(isid),
                    Some(Known::Section(section)) => section,
                    None => Arc::new(new),
                }
            }
        };
        if entries.len() == MOST_SECTIONS {
            return Err(Error::NO_MEMORY);
        }
        section.set_keeper(&self.kept);
        entries.push(Entry { section, address });
        Ok(entries.len() as i32)
    }

    /// Returns a section and its address.
    pub(crate) fn section(&self, isid: i32) -> Result<(Arc<Section>, u64), Error> {
        let index =
            usize::try_from(isid).ok().and_then(|isid| isid.checked_sub(1)).ok_or(Error::BAD_IMAGE)?;
        let entries = self.entries();
        let entry = entries.get(index).ok_or(Error::BAD_IMAGE)?;
        Ok((Arc::clone(&entry.section), entry.address))
    }

    /// Reads from a section.
    pub(crate) fn read(&self, isid: i32, address: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let (section, begin) = self.section(isid)?;
        let offset = address.checked_sub(begin).ok_or(Error::NO_MAP)?;
        let content = section.map()?;
        let bytes = content.read(offset, buffer.len())?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

/// What the cache knows of a part of a file.
enum Known {
    /// It has a number at this address.
    Entry(i32),
    /// It is there, at other addresses.
    Section(Arc<Section>),
}

/// Looks for a part of a file.
fn find(entries: &[Entry], file: &CStr, offset: u64, size: u64, address: u64) -> Option<Known> {
    let mut section = None;
    for (isid, entry) in (1..).zip(entries) {
        let found = &entry.section;
        if found.file() != file || found.offset != offset || found.size != size {
            continue;
        }
        if entry.address == address {
            return Some(Known::Entry(isid));
        }
        section.get_or_insert(found);
    }
    section.map(|section| Known::Section(Arc::clone(section)))
}

impl Kept {
    fn state(&self) -> MutexGuard<'_, KeptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a section mapped, as far as the limit allows.
    pub(crate) fn keep(&self, content: &Arc<Content>) {
        let mut state = self.state();
        if state.contents.first().is_some_and(|first| Arc::ptr_eq(first, content)) {
            return;
        }
        state.contents.retain(|kept| !Arc::ptr_eq(kept, content));
        state.contents.insert(0, Arc::clone(content));
        state.prune();
    }
}

impl KeptState {
    fn prune(&mut self) {
        let mut used = 0u64;
        let limit = self.limit;
        self.contents.retain(|content| {
            used = used.saturating_add(content.size());
            used <= limit
        });
    }
}
