//! Names in a file, and as a module keeps them.

/// The names of a symbol table, which may cost no more to read than several readings of the table.
///
/// Names may share bytes, so a crafted file could say the same megabytes millions of times; in real
/// ones only endings are shared.
pub(crate) struct StringTable<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> StringTable<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> StringTable<'a> {
        StringTable { bytes, left: bytes.len().saturating_mul(8) }
    }

    /// The name at an offset, without the version that follows an `@`; empty where there is none.
    pub(crate) fn name(&mut self, offset: u32) -> &'a [u8] {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let rest = rest.get(..self.left).unwrap_or(rest);
        let end = memchr::memchr2(0, b'@', rest).unwrap_or(rest.len());
        self.left -= end;
        rest.get(..end).unwrap_or_default()
    }
}

/// Where a name lies in [`Names`]; empty for a function without a name.
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

/// All names, one after the other, within a limit.
///
/// String tables share suffixes, so a crafted file could name the same text millions of times; real
/// ones say each name about once and fit into the size of their file, which is the limit.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    limit: usize,
}

impl Names {
    /// No names yet; all together will take at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Names {
        Names { text: String::new(), limit: limit.min(u32::MAX as usize) }
    }

    /// Keeps the parts, one after the other, as one name; the empty name where the limit is reached.
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

    /// The text of a name that this gave out.
    pub(crate) fn get(&self, name: Name) -> &str {
        let offset = name.offset as usize;
        &self.text[offset..offset + name.length as usize]
    }

    /// Gives back memory that was kept for growth.
    pub(crate) fn finish(mut self) -> Names {
        self.text.shrink_to_fit();
        self
    }
}
