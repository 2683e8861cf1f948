//! Maps of files.

use std::{fs::File, io};

use memmap2::{Mmap, MmapOptions};

/// Maps a part of a file. As with libipt, a file that shrinks later faults when it is read.
pub(crate) fn read_only(file: &File, offset: u64, length: usize) -> io::Result<Mmap> {
    // SAFETY: the map is only read. That the file does not change while it is mapped is the caller's part, by the header's
    // documentation of images: a change of size or time is refused where the file is opened.
    unsafe { MmapOptions::new().offset(offset).len(length).map(file) }
}
