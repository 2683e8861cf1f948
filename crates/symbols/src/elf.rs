//! Reads what an ELF file declares about its code (System V ABI, "Object Files").

use std::ops::Range;

use gimli::RunTimeEndian;
use hodo_code::{Bits, Isa};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, FileKind, Object, ObjectSegment, ObjectSymbol};

use crate::names::StringTable;
use crate::plt::{self, PltEntry};
use crate::table::Extent;
use crate::unwind;

/// Linkers create about five loadable segments, and searches among them are linear.
const MOST_SEGMENTS: usize = 256;

/// Linkers create about forty sections; a look-up by name iterates over all of them.
const MOST_SECTIONS: usize = 1024;

/// A segment of notes has a few dozen bytes.
const LARGEST_NOTES: u64 = 1 << 16;

/// A loadable segment (`PT_LOAD`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSegment {
    pub(crate) file_offset: u64,
    pub(crate) file_size: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) executable: bool,
}

/// The symbol of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol<'a> {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Whether it is a function, not an assembly label.
    pub(crate) is_function: bool,
    pub(crate) is_local: bool,
    pub(crate) is_weak: bool,
    /// Without the version after `@`.
    pub(crate) name: &'a [u8],
}

/// The content of a file, in file order.
#[derive(Debug, Default)]
pub(crate) struct Image<'a> {
    pub(crate) segments: Vec<LoadSegment>,
    /// Executable sections, by address.
    pub(crate) sections: Vec<Range<u64>>,
    pub(crate) symbols: Vec<Symbol<'a>>,
    pub(crate) plt: Vec<PltEntry<'a>>,
    /// Code ranges described by `.eh_frame`, which have no names.
    pub(crate) unwind: Vec<Extent>,
    pub(crate) build_id: &'a [u8],
    /// The instruction set of its functions; `None` if it is not supported.
    pub(crate) isa: Option<Isa>,
    /// A message about the unreadable parts, if there are any.
    pub(crate) problem: Option<String>,
}

impl<'a> Image<'a> {
    /// Reads what is readable.
    pub(crate) fn read(bytes: &'a [u8]) -> Image<'a> {
        let mut image = Image::default();
        let result = match FileKind::parse(bytes) {
            Ok(FileKind::Elf64) => image.read_class::<FileHeader64<Endianness>>(bytes),
            Ok(FileKind::Elf32) => image.read_class::<FileHeader32<Endianness>>(bytes),
            _ => {
                let start = bytes.get(..4).unwrap_or(bytes);
                Err(format!("not an ELF file: it starts with {start:02x?}, expected [7f, 45, 4c, 46]"))
            }
        };
        image.problem = result.err();
        image
    }

    fn read_class<Elf: FileHeader<Endian = Endianness>>(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let header = Elf::parse(bytes).map_err(|e| format!("ELF header: {e}"))?;
        let endian = header.endian().map_err(|e| format!("ELF header: {e}"))?;
        self.isa = instruction_set(header.e_machine(endian), header.is_type_64());
        let programs = header.program_headers(endian, bytes).map_err(|e| format!("program headers: {e}"))?;
        let loaded = programs.iter().filter(|p| p.p_type(endian) == elf::PT_LOAD);
        self.segments = loaded.take(MOST_SEGMENTS).map(|p| LoadSegment::of(p, endian)).collect();
        let notes =
            programs.iter().take(MOST_SEGMENTS).filter(|p| p.p_filesz(endian).into() <= LARGEST_NOTES);
        let mut notes = notes.map(|p| p.notes(endian, bytes));
        self.build_id = notes.find_map(|notes| build_id(notes, endian)).unwrap_or_default();
        let sections = header.sections(endian, bytes).map_err(|e| format!("section headers: {e}"))?;
        check_count(sections.len())?;
        // The program headers of a separate debug file may not refer to its notes, so sections come first.
        let mut notes =
            within_file(sections.iter().filter(|s| s.sh_type(endian) == elf::SHT_NOTE), endian, bytes);
        let build_id = notes.find_map(|s| build_id(s.notes(endian, bytes), endian));
        self.build_id = build_id.unwrap_or(self.build_id);
        self.sections =
            sections.iter().filter(|s| is_code(*s, endian)).map(|s| addresses(s, endian)).collect();
        if header.e_machine(endian) == elf::EM_X86_64 {
            self.plt = plt::read(&sections, endian, bytes);
        }
        let address_size = if header.is_class_64() { 8 } else { 4 };
        let problems = [
            self.read_symbols(&sections, endian, bytes, elf::SHT_SYMTAB).err(),
            self.read_symbols(&sections, endian, bytes, elf::SHT_DYNSYM).err(),
            self.read_unwind(&sections, endian, bytes, address_size).err(),
        ];
        problems.into_iter().flatten().next().map_or(Ok(()), Err)
    }

    fn read_symbols<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        sections: &SectionTable<'a, Elf>,
        endian: Endianness,
        bytes: &'a [u8],
        kind: elf::SectionType,
    ) -> Result<(), String> {
        let table = sections.symbols(endian, bytes, kind).map_err(|e| format!("symbol table: {e}"))?;
        if table.is_empty() {
            return Ok(());
        }
        let strings = sections.section(table.string_section()).and_then(|s| s.data(endian, bytes));
        let mut strings = StringTable::new(strings.map_err(|e| format!("symbol names: {e}"))?);
        for (index, symbol) in table.enumerate() {
            let section = table.symbol_section(endian, symbol, index).ok().flatten();
            let section = section.and_then(|index| sections.section(index).ok());
            let in_code = section.is_some_and(|s| is_code(s, endian));
            if !in_code || !names_code(symbol) {
                continue;
            }
            let name = strings.name(symbol.st_name(endian));
            let is_mark = match self.isa {
                Some(Isa::A64 | Isa::A32) => is_mapping_symbol(name),
                // The name of the code's extensions may follow.
                Some(Isa::RiscV(_)) => is_mapping_symbol(name) || name.starts_with(b"$xrv"),
                _ => false,
            };
            if name.is_empty() || is_mark {
                continue;
            }
            self.symbols.push(Symbol {
                address: symbol.st_value(endian).into() & !self.state_bit(),
                size: symbol.st_size(endian).into(),
                is_function: symbol.st_type() != elf::STT_NOTYPE,
                is_local: symbol.st_bind() == elf::STB_LOCAL,
                is_weak: symbol.st_bind() == elf::STB_WEAK,
                name,
            });
        }
        Ok(())
    }

    /// Returns the bit of a function's address that says whether it is T32, not A32.
    fn state_bit(&self) -> u64 {
        u64::from(self.isa == Some(Isa::A32))
    }

    fn read_unwind<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        sections: &SectionTable<'a, Elf>,
        endian: Endianness,
        bytes: &'a [u8],
        address_size: u8,
    ) -> Result<(), String> {
        let Some((_, section)) = sections.section_by_name(endian, b".eh_frame") else { return Ok(()) };
        let data = section.data(endian, bytes).map_err(|e| format!(".eh_frame: {e}"))?;
        let gimli_endian = match endian {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let address = section.sh_addr(endian).into();
        unwind::read(data, address, (gimli_endian, address_size), &mut self.unwind)
            .map_err(|e| format!(".eh_frame: {e}"))
    }
}

impl LoadSegment {
    fn of<Header: ProgramHeader<Endian = Endianness>>(header: &Header, endian: Endianness) -> LoadSegment {
        LoadSegment {
            file_offset: header.p_offset(endian).into(),
            file_size: header.p_filesz(endian).into(),
            address: header.p_vaddr(endian).into(),
            size: header.p_memsz(endian).into(),
            executable: header.p_flags(endian).contains(elf::PF_X),
        }
    }
}

/// References from a file to its debugging information in other files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugReferences {
    /// The build id, which determines `.build-id/xx/yyyy.debug`; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Name of the separate debug file and the CRC-32 of its bytes (`.gnu_debuglink`).
    pub link: Option<(String, u32)>,
    /// Name and build id of a file shared by several debug files (`.gnu_debugaltlink`, made by dwz).
    pub shared: Option<(String, Vec<u8>)>,
}

/// Finds an ELF file's references to debugging information; none if `bytes` is no ELF file.
pub fn debug_references(bytes: &[u8]) -> DebugReferences {
    let Ok(file) = object::File::parse(bytes) else { return DebugReferences::default() };
    if check_count(file.sections().count()).is_err() {
        return DebugReferences::default();
    }
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    DebugReferences {
        build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
        link: file.gnu_debuglink().ok().flatten().map(|(name, crc)| (text(name), crc)),
        shared: file.gnu_debugaltlink().ok().flatten().map(|(name, id)| (text(name), id.to_vec())),
    }
}

/// Returns address and file content of each loadable segment of a program or core file.
///
/// # Errors
/// Why the file cannot be read, as a message.
pub fn loaded_segments(bytes: &[u8]) -> Result<Vec<(u64, &[u8])>, String> {
    let file = object::File::parse(bytes).map_err(|error| format!("ELF file: {error}"))?;
    let segments = file.segments().take(MOST_SEGMENTS);
    let held = segments.filter_map(|segment| Some((segment.address(), segment.data().ok()?)));
    Ok(held.filter(|(_, data)| !data.is_empty()).collect())
}

/// The address of a symbol in an ELF file.
pub fn symbol_address(bytes: &[u8], name: &str) -> Option<u64> {
    let file = object::File::parse(bytes).ok()?;
    file.symbols().find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address())
}

/// Rejects files that would take hours to read.
pub(crate) fn check_count(sections: usize) -> Result<(), String> {
    let most = MOST_SECTIONS;
    if sections <= most {
        Ok(())
    } else {
        Err(format!("section headers: {sections}, expected at most {most}"))
    }
}

/// Returns the instruction set of a machine. AArch32 programs have functions in two sets; A32 is that of `_start`.
fn instruction_set(machine: elf::Machine, is_64: bool) -> Option<Isa> {
    match machine {
        elf::EM_X86_64 => Some(Isa::X86_64),
        elf::EM_386 => Some(Isa::X86(Bits::B32)),
        elf::EM_AARCH64 => Some(Isa::A64),
        elf::EM_ARM => Some(Isa::A32),
        elf::EM_RISCV if is_64 => Some(Isa::RV64),
        elf::EM_RISCV => Some(Isa::RV32),
        _ => None,
    }
}

/// Returns whether a name marks where code and data begin (ELF for the Arm Architecture, "Mapping symbols").
fn is_mapping_symbol(name: &[u8]) -> bool {
    matches!(name, [b'$', b'x' | b'a' | b't' | b'd'] | [b'$', b'x' | b'a' | b't' | b'd', b'.', ..])
}

/// Finds the GNU build id in the notes of a section or segment.
fn build_id<'a, Elf: FileHeader<Endian = Endianness>>(
    notes: object::Result<Option<NoteIterator<'a, Elf>>>,
    endian: Endianness,
) -> Option<&'a [u8]> {
    let mut notes = notes.ok().flatten()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return Some(note.desc());
        }
    }
    None
}

/// Whether a symbol is a function or an assembly label, which is untyped and visible.
fn names_code<Symbol: Sym<Endian = Endianness>>(symbol: &Symbol) -> bool {
    let hidden = [elf::STV_HIDDEN, elf::STV_INTERNAL].contains(&symbol.st_visibility());
    match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
        elf::STT_NOTYPE => !hidden,
        _ => false,
    }
}

fn is_code<Section: SectionHeader<Endian = Endianness>>(section: &Section, endian: Endianness) -> bool {
    section.sh_flags(endian).contains(elf::SHF_ALLOC | elf::SHF_EXECINSTR)
}

/// Yields sections until their total size exceeds the file. A crafted file can describe the same bytes tens of
/// thousands of times; this bounds the time to that of reading the file.
pub(crate) fn within_file<'a, Section: SectionHeader<Endian = Endianness>>(
    sections: impl Iterator<Item = &'a Section>,
    endian: Endianness,
    bytes: &[u8],
) -> impl Iterator<Item = &'a Section> {
    let mut left = bytes.len() as u64;
    sections.take_while(move |section| {
        let rest = left.checked_sub(section.sh_size(endian).into());
        left = rest.unwrap_or(0);
        rest.is_some()
    })
}

/// The address range of a section.
pub(crate) fn addresses<Section: SectionHeader<Endian = Endianness>>(
    section: &Section,
    endian: Endianness,
) -> Range<u64> {
    let start = section.sh_addr(endian).into();
    start..start.saturating_add(section.sh_size(endian).into())
}
