//! What a format reads: the bytes of one file or of a folder's, and a place for what it unpacks.

use std::fmt;

use elsa::sync::FrozenVec;

/// The files of a recording.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The file, or the first of the folder's.
    pub bytes: &'a [u8],
    /// The folder's other files.
    pub parts: Vec<Part<'a>>,
    /// Where unpacked bytes are kept.
    pub unpacked: &'a Unpacked,
}

/// One more file of a recording.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Its name in the folder.
    pub name: String,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// A recording that is one file.
    pub fn file(bytes: &'a [u8], unpacked: &'a Unpacked) -> Input<'a> {
        Input { bytes, parts: Vec::new(), unpacked }
    }
}

/// Bytes that were unpacked, kept for as long as recordings borrow from them.
#[derive(Default)]
pub struct Unpacked(FrozenVec<Vec<u8>>);

impl Unpacked {
    /// Keeps bytes.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.0.push_get(bytes)
    }
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.0.len()).map(|index| self.0.get(index).map(<[u8]>::len))).finish()
    }
}
