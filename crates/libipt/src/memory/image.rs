//! Images: which section is at which address, in which address space.

use std::{
    ffi::{CStr, CString},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Content, Section, Space};
use crate::{Error, abi};

/// An image. Decoders share it with the caller.
#[derive(Debug, Default)]
pub(crate) struct Image {
    name: Option<CString>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The one that was used last comes first. Those of matching address spaces do not overlap.
    sections: Vec<Located>,
    reader: Option<Reader>,
}

/// The caller's function that reads memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub(crate) read: abi::ReadMemory,
    pub(crate) context: usize,
}

/// A part of a section at an address.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) section: Arc<Section>,
    pub(crate) space: Space,
    pub(crate) begin: u64,
    pub(crate) size: u64,
    /// Offset in the section.
    offset: u64,
    /// The section's number in its cache; 0 if it has none.
    pub(crate) isid: i32,
}

impl Located {
    /// Returns whether an address is within.
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.begin) < self.size && address >= self.begin
    }

    fn end(&self) -> u64 {
        self.begin.wrapping_add(self.size)
    }

    /// Returns the offset of an address in the section.
    pub(crate) fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.begin).wrapping_add(self.offset)
    }

    /// Returns the bytes from an address on, at most `size`.
    pub(crate) fn read<'c>(
        &self,
        content: &'c Content,
        address: u64,
        size: usize,
    ) -> Result<&'c [u8], Error> {
        if !self.contains(address) {
            return Err(Error::NO_MAP);
        }
        let left = usize::try_from(self.size - (address - self.begin)).unwrap_or(usize::MAX);
        content.read(self.offset_of(address), size.min(left))
    }

    /// Returns the part between two addresses.
    fn part(&self, begin: u64, end: u64) -> Located {
        let offset = self.offset_of(begin);
        Located { begin, size: end - begin, offset, ..self.clone() }
    }

    /// Whether both are the same mapping.
    pub(crate) fn is(&self, other: &Located) -> bool {
        Arc::ptr_eq(&self.section, &other.section)
            && (self.space, self.begin, self.size, self.offset, self.isid)
                == (other.space, other.begin, other.size, other.offset, other.isid)
    }
}

impl Image {
    pub(crate) fn new(name: Option<&CStr>) -> Image {
        Image { name: name.map(CStr::to_owned), state: Mutex::default() }
    }

    pub(crate) fn name(&self) -> Option<&CStr> {
        self.name.as_deref()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a section; sections that it overlaps are cut.
    pub(crate) fn add(&self, section: Arc<Section>, space: Space, begin: u64, isid: i32) {
        let new = Located { size: section.size, section, space, begin, offset: 0, isid };
        let end = new.end();
        let mut state = self.state();
        let mut pieces = Vec::new();
        state.sections.retain(|old| {
            let apart = end <= old.begin || old.end() <= begin || !old.space.matches(&space);
            if apart {
                return true;
            }
            if old.begin < begin {
                pieces.push(old.part(old.begin, begin));
            }
            if end < old.end() {
                pieces.push(old.part(end, old.end()));
            }
            false
        });
        state.sections.extend(pieces.into_iter().rev());
        state.sections.push(new);
    }

    /// Adds the sections of another image.
    pub(crate) fn copy(&self, other: &Image) {
        if std::ptr::eq(self, other) {
            return;
        }
        let sections = other.state().sections.clone();
        for located in sections {
            self.add(located.section, located.space, located.begin, located.isid);
        }
    }

    /// Removes the sections that `matches` selects in an address space. Returns their number.
    pub(crate) fn remove(&self, space: Space, matches: impl Fn(&Section) -> bool) -> usize {
        let mut state = self.state();
        let before = state.sections.len();
        state.sections.retain(|located| !located.space.matches(&space) || !matches(&located.section));
        before - state.sections.len()
    }

    pub(crate) fn set_reader(&self, reader: Option<Reader>) {
        self.state().reader = reader;
    }

    /// Finds the section at an address.
    pub(crate) fn find(&self, space: &Space, address: u64) -> Result<Located, Error> {
        let mut state = self.state();
        let found = |located: &Located| located.contains(address) && located.space.matches(space);
        let index = state.sections.iter().position(found).ok_or(Error::NO_MAP)?;
        state.sections[..=index].rotate_right(1);
        Ok(state.sections[0].clone())
    }

    /// Returns whether a section is the one that was used last, so that no search is needed.
    pub(crate) fn is_first(&self, located: &Located) -> bool {
        self.state().sections.first().is_some_and(|first| first.is(located))
    }

    /// Reads memory, up to the end of a section or of the buffer. Returns the number of bytes and the section's number.
    pub(crate) fn read(&self, space: &Space, address: u64, buffer: &mut [u8]) -> Result<(usize, i32), Error> {
        match self.find(space, address) {
            Ok(located) => {
                let content = located.section.map()?;
                let bytes = located.read(&content, address, buffer.len());
                match bytes {
                    Ok(bytes) => {
                        buffer[..bytes.len()].copy_from_slice(bytes);
                        return Ok((bytes.len(), located.isid));
                    }
                    Err(Error::NO_MAP) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(Error::NO_MAP) => {}
            Err(error) => return Err(error),
        }
        // Not under the lock: the caller's function may use the image.
        let reader = self.state().reader.ok_or(Error::NO_MAP)?;
        Ok((reader.call(space, address, buffer)?, 0))
    }
}
