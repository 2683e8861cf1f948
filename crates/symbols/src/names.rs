//! Names in a file, and their storage in a module.

/// A string table with a limit on the total size of names read: a few times the table.
///
/// Names may overlap, so a crafted file could repeat megabytes of text millions of times. Real files only share
/// suffixes.
pub(crate) struct StringTable<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> StringTable<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> StringTable<'a> {
        StringTable { bytes, left: bytes.len().saturating_mul(8) }
    }

    /// The name at an offset, without the version after `@`; empty if there is none.
    pub(crate) fn name(&mut self, offset: u32) -> &'a [u8] {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let rest = rest.get(..self.left).unwrap_or(rest);
        let end = memchr::memchr2(0, b'@', rest).unwrap_or(rest.len());
        self.left -= end;
        rest.get(..end).unwrap_or_default()
    }
}

/// Position of a name in [`Names`]; empty for a function without a name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Name {
    offset: u32,
    length: u32,
}

impl Name {
    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// All names, concatenated, up to a size limit.
///
/// String tables share suffixes, so a crafted file could repeat text millions of times. Names in real files are about
/// unique and fit into the size of their file, which is the limit.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    limit: usize,
}

impl Names {
    /// Creates an empty list for at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Names {
        Names { text: String::new(), limit: limit.min(u32::MAX as usize) }
    }

    /// Stores the concatenated parts as a name. Returns the empty name if the limit is reached.
    pub(crate) fn push(&mut self, parts: [&[u8]; 2]) -> Name {
        let offset = self.text.len();
        for part in parts {
            match str::from_utf8(part) {
                Ok(text) => self.text.push_str(text),
                Err(_) => self.text.push_str(&String::from_utf8_lossy(part)),
            }
        }
        if self.text.len() > self.limit {
            self.text.truncate(offset);
            return Name::default();
        }
        Name { offset: offset as u32, length: (self.text.len() - offset) as u32 }
    }

    /// The text of a stored name.
    pub(crate) fn get(&self, name: Name) -> &str {
        let offset = name.offset as usize;
        &self.text[offset..offset + name.length as usize]
    }

    /// Frees unused capacity.
    pub(crate) fn finish(mut self) -> Names {
        self.text.shrink_to_fit();
        self
    }
}
