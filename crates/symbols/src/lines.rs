//! Inlined frames and source lines from DWARF.

use std::borrow::Cow;

use addr2line::Context;
use gimli::{DwarfSections, EndianSlice, RunTimeEndian, SectionId};
use object::{Object, ObjectSection};

use crate::demangle;
use crate::elf::check_count;

/// The DWARF sections of an ELF file, borrowed or decompressed.
#[derive(Debug)]
pub struct DebugSections<'a> {
    sections: DwarfSections<Cow<'a, [u8]>>,
    endian: RunTimeEndian,
}

/// A function at an address, possibly inlined into the next frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The demangled name, if DWARF contains one.
    pub function: Option<String>,
    /// The source file's path.
    pub file: Option<String>,
    /// The line in `file`, from 1.
    pub line: Option<u32>,
    /// The column in `line`, from 1.
    pub column: Option<u32>,
    /// Whether its code was inlined into the next frame.
    pub inlined: bool,
}

/// Looks up frames and lines by address. It caches parsed units, so it belongs to one thread.
pub struct Lines<'a> {
    context: Context<EndianSlice<'a, RunTimeEndian>>,
}

impl<'a> DebugSections<'a> {
    /// Reads the DWARF sections of a program, library or separate debug file; `None` if the file has none.
    ///
    /// # Errors
    /// If it is no ELF file, has too many sections, or a section cannot be decompressed.
    pub fn read(bytes: &'a [u8]) -> Result<Option<DebugSections<'a>>, String> {
        let file = object::File::parse(bytes).map_err(|e| format!("ELF file: {e}"))?;
        check_count(file.sections().count())?;
        if file.section_by_name(".debug_info").is_none() {
            return Ok(None);
        }
        let sections = DwarfSections::load(|id| section(&file, id))?;
        let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Ok(Some(DebugSections { sections, endian }))
    }
}

impl DebugSections<'_> {
    /// The sections as gimli types.
    pub(crate) fn dwarf(&self) -> gimli::Dwarf<EndianSlice<'_, RunTimeEndian>> {
        self.sections.borrow(|data| EndianSlice::new(data, self.endian))
    }
}

fn section<'a>(file: &object::File<'a>, id: SectionId) -> Result<Cow<'a, [u8]>, String> {
    // Debugging information compresses to a half or a tenth. A ratio of a hundred in a large section is an attack.
    const LARGE_SECTION: u64 = 1 << 20;
    const LARGEST_RATIO: u64 = 100;
    let Some(section) = file.section_by_name(id.name()) else { return Ok(Cow::Borrowed(&[])) };
    let error = |e| format!("section {}: {e}", id.name());
    let data = section.compressed_data().map_err(error)?;
    let (packed, unpacked) = (data.data.len() as u64, data.uncompressed_size);
    if unpacked > LARGE_SECTION && unpacked / LARGEST_RATIO > packed {
        return Err(format!("section {}: {packed} bytes claim to decompress to {unpacked}", id.name()));
    }
    data.decompress().map_err(error)
}

impl<'a> Lines<'a> {
    /// Reads the headers and address ranges of all units. `shared` is the file of
    /// [`DebugReferences::shared`](crate::DebugReferences::shared).
    ///
    /// # Errors
    /// If the headers or address ranges are damaged.
    pub fn new(
        sections: &'a DebugSections<'_>,
        shared: Option<&'a DebugSections<'_>>,
    ) -> Result<Lines<'a>, String> {
        let borrow = |data: &'a Cow<'_, [u8]>| EndianSlice::new(data, sections.endian);
        let mut dwarf = sections.sections.borrow(borrow);
        if let Some(shared) = shared {
            dwarf.set_sup(shared.sections.borrow(borrow));
        }
        let context = Context::from_dwarf(dwarf).map_err(|e| format!("DWARF: {e}"))?;
        Ok(Lines { context })
    }

    /// The functions at a file address, innermost first; all but the last are inlined. Empty if DWARF has no readable
    /// entry for the address.
    pub fn frames_at(&self, address: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let Ok(mut dwarf_frames) = self.context.find_frames(address).skip_all_loads() else { return frames };
        while let Ok(Some(frame)) = dwarf_frames.next() {
            let function = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: function.map(|name| demangle(&name).into_owned()),
                file: location.and_then(|l| l.file).map(str::to_owned),
                line: location.and_then(|l| l.line),
                column: location.and_then(|l| l.column).filter(|&column| column > 0),
                inlined: true,
            });
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.inlined = false;
        }
        frames
    }
}
