//! The input of a format: the bytes of one file or of a folder's files, and a store for unpacked bytes.

use std::fmt;

use elsa::sync::FrozenVec;

/// The files of a recording.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The bytes of the file, or of the folder's first file.
    pub bytes: &'a [u8],
    /// The folder's other files.
    pub others: Vec<OtherFile<'a>>,
    /// The folder's path; empty for a file.
    pub folder: &'a str,
    /// The store for unpacked bytes.
    pub unpacked: &'a Unpacked,
}

/// Another file of a folder.
#[derive(Clone, Debug)]
pub struct OtherFile<'a> {
    /// The file's name in the folder.
    pub name: String,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// A recording that is one file.
    pub fn file(bytes: &'a [u8], unpacked: &'a Unpacked) -> Input<'a> {
        Input { bytes, others: Vec::new(), folder: "", unpacked }
    }
}

/// Unpacked bytes, kept alive for the recordings that borrow from them.
#[derive(Default)]
pub struct Unpacked(FrozenVec<Vec<u8>>);

impl Unpacked {
    /// Stores bytes.
    pub fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.0.push_get(bytes)
    }
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.0.len()).map(|index| self.0.get(index).map(<[u8]>::len))).finish()
    }
}
