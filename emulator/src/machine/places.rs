//! Where processes map parts of files.
//!
//! A vCPU shows addresses and bytes, and no names of files. A page of code belongs to a file if all its bytes are those
//! of a page of that file; so a copy of the file counts as the file.

use std::{
    collections::HashMap,
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

pub(crate) const PAGE: u64 = 4096;

/// A page of code.
pub(crate) type PageBytes = [u8; PAGE as usize];

/// A part of a file in an address space: its number, and the address of the file's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    part: usize,
    base: u64,
}

/// Parts of files, and where they are mapped.
pub(crate) struct Places {
    parts: Vec<Range<u64>>,
    hasher: RandomState,
    /// The parts that a page belongs to, and its offset in the file, by the hash of its bytes.
    pages: HashMap<u64, Vec<(usize, u64)>>,
    /// The mapped parts by address space.
    spaces: Mutex<HashMap<u64, Vec<Placed>>>,
    /// Changes when a part is found or lost.
    version: AtomicU64,
}

impl Places {
    /// Reads the pages of these parts.
    pub(crate) fn new<'a>(parts: impl Iterator<Item = (&'a Path, Range<u64>)>) -> io::Result<Places> {
        let mut places = Places {
            parts: Vec::new(),
            hasher: RandomState::new(),
            pages: HashMap::new(),
            spaces: Mutex::default(),
            version: AtomicU64::new(0),
        };
        for (path, range) in parts {
            let with_name =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            places.add(File::open(path).map_err(with_name)?, range).map_err(with_name)?;
        }
        Ok(places)
    }

    fn add(&mut self, mut file: File, range: Range<u64>) -> io::Result<()> {
        let part = self.parts.len();
        for page in (range.start / PAGE..range.end.div_ceil(PAGE)).map(|index| index * PAGE) {
            let mut bytes = [0; PAGE as usize];
            file.seek(SeekFrom::Start(page))?;
            let mut filled = 0;
            // The rest of the last page is zero in memory too.
            while let count @ 1.. = file.read(&mut bytes[filled..])? {
                filled += count;
            }
            if filled == 0 {
                break;
            }
            self.pages.entry(self.hasher.hash_one(bytes)).or_default().push((part, page));
        }
        self.parts.push(range);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Placed>>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    #[inline(always)]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The addresses of each mapped part of a space, with the number of the part.
    pub(crate) fn of_space(&self, space: u64) -> Vec<(usize, Range<u64>)> {
        let placed = self.lock().get(&space).cloned().unwrap_or_default();
        let addresses = |placed: Placed| {
            let Range { start, end } = self.parts[placed.part];
            (placed.part, placed.base.wrapping_add(start)..placed.base.wrapping_add(end))
        };
        placed.into_iter().map(addresses).collect()
    }

    /// Whether code at these addresses may belong to a part, by the offset in its page.
    fn may_hold(&self, code: &Range<u64>) -> bool {
        self.parts.iter().any(|part| {
            let length = part.end - part.start;
            // The distances from the part's begin to the code's, and back, around a page.
            let ahead = code.start.wrapping_sub(part.start) % PAGE;
            length >= PAGE || ahead < length || PAGE - ahead < code.end - code.start
        })
    }

    /// Code of a space is about to run for the first time, or again at another place. `page` reads the page at an
    /// address.
    pub(crate) fn look(&self, space: u64, code: Range<u64>, page: impl Fn(u64) -> Option<PageBytes>) {
        if self.is_empty() || !self.may_hold(&code) {
            return;
        }
        for address in (code.start / PAGE..=(code.end - 1) / PAGE).map(|index| index * PAGE) {
            let Some(bytes) = page(address) else { continue };
            let pages = self.pages.get(&self.hasher.hash_one(bytes)).map_or(&[][..], Vec::as_slice);
            let placed =
                pages.iter().map(|&(part, offset)| Placed { part, base: address.wrapping_sub(offset) });
            self.set(space, address, &placed.collect::<Vec<_>>());
        }
    }

    /// The page at `address` belongs to these parts, and to no others.
    fn set(&self, space: u64, address: u64, now: &[Placed]) {
        let mut spaces = self.lock();
        let placed = spaces.entry(space).or_default();
        let covers = |placed: &Placed| {
            let Range { start, end } = self.parts[placed.part];
            let offset = address.wrapping_sub(placed.base);
            (start / PAGE * PAGE..end).contains(&offset)
        };
        let before = placed.len();
        placed.retain(|one| !covers(one) || now.contains(one));
        let lost = placed.len() != before;
        let fresh: Vec<_> = now.iter().filter(|one| !placed.contains(one)).copied().collect();
        let changed = lost || !fresh.is_empty();
        placed.extend(fresh);
        if changed {
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of which no two pages are equal.
    fn content() -> Vec<u8> {
        (0..3 * PAGE + 100).map(|index| (index / PAGE * 7 + index % 251) as u8).collect()
    }

    fn places(folder: &Path, range: Range<u64>) -> Places {
        let path = folder.join("file");
        std::fs::write(&path, content()).unwrap();
        Places::new([(&*path, range)].into_iter()).unwrap()
    }

    /// The file's page at this offset.
    fn page(offset: u64) -> Option<PageBytes> {
        let mut bytes = content();
        bytes.resize(4 * PAGE as usize, 0);
        bytes[offset as usize..][..PAGE as usize].try_into().ok()
    }

    #[test]
    fn a_part_is_found_by_its_pages() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path(), PAGE + 10..PAGE + 20);
        let base = 0x7000_0000;
        // Another page, and the part's page at other bytes of it.
        places.look(1, base + 10..base + 12, |_| page(0));
        places.look(1, base + PAGE + 50..base + PAGE + 60, |_| page(PAGE));
        assert_eq!((places.of_space(1), places.version()), (Vec::new(), 0));
        let code = base + PAGE + 8..base + PAGE + 12;
        places.look(1, code.clone(), |_| page(PAGE));
        assert_eq!(places.of_space(1), [(0, base + PAGE + 10..base + PAGE + 20)]);
        assert_eq!((places.of_space(2), places.version()), (Vec::new(), 1));
        // Another program at the same addresses.
        places.look(1, code, |_| page(0));
        assert_eq!((places.of_space(1), places.version()), (Vec::new(), 2));
    }

    #[test]
    fn the_last_page_of_a_file_ends_in_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path(), 0..3 * PAGE + 100);
        places.look(1, 3 * PAGE..3 * PAGE + 1, |_| page(3 * PAGE));
        assert_eq!(places.of_space(1), [(0, 0..3 * PAGE + 100)]);
    }
}
