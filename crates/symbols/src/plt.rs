//! Reads the procedure linkage table, whose entries have no symbols (x86-64 psABI, "Procedure Linkage Table").

use std::ops::Range;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable, Sym};

use crate::elf::{addresses, within_file};
use crate::names::StringTable;

/// Whether symbol and type of relocations are laid out as on MIPS64 EL.
const IS_MIPS64EL: bool = false;

/// An entry of the table: a few instructions that jump to the address in a word of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PltEntry<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) target: Target<'a>,
}

/// The value that the dynamic linker writes to the word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    /// The address of the symbol with this name.
    Symbol(&'a [u8]),
    /// The return value of the function at this address (`R_X86_64_IRELATIVE`).
    ChosenBy(u64),
}

/// Reads the entries of `.plt`, `.plt.sec` and `.plt.got` that have a relocation.
pub(crate) fn read<'a, Elf: FileHeader<Endian = Endianness>>(
    sections: &SectionTable<'a, Elf>,
    endian: Endianness,
    bytes: &'a [u8],
) -> Vec<PltEntry<'a>> {
    let relocations = relocations(sections, endian, bytes);
    let mut by_word = relocations.clone();
    by_word.sort_by_key(|r| r.word);
    let mut entries = Vec::new();
    let is_plt = |section| sections.section_name(endian, section).is_ok_and(|name| name.starts_with(b".plt"));
    for section in within_file(sections.iter().filter(|&s| is_plt(s)), endian, bytes) {
        let code = section.data(endian, bytes).unwrap_or_default();
        for (jump, range) in jumps(code, addresses(section, endian).start) {
            let relocation = match jump {
                Jump::ThroughWord(word) => {
                    by_word.binary_search_by_key(&word, |r| r.word).ok().and_then(|index| by_word.get(index))
                }
                Jump::Lazy(index) => relocations.get(index as usize).filter(|r| r.lazy),
            };
            let (start, end) = (range.start, range.end);
            entries.extend(relocation.map(|r| PltEntry { start, end, target: r.target }));
        }
    }
    entries
}

/// The jump of an entry.
#[derive(Clone, Copy)]
enum Jump {
    /// `jmp *displacement(%rip)`
    ThroughWord(u64),
    /// `push $index`, then a jump to the first entry, which calls the dynamic linker to resolve the relocation with
    /// this index.
    Lazy(u32),
}

/// Finds the entries of a section. They begin at multiples of 8 bytes and are 8 or 16 bytes long; no header reliably
/// states which.
fn jumps(code: &[u8], address: u64) -> Vec<(Jump, Range<u64>)> {
    const STEP: usize = 8;
    let mut entries: Vec<(Jump, Range<u64>)> = Vec::new();
    let mut offset = 0;
    while let Some(entry) = code.get(offset..).filter(|rest| !rest.is_empty()) {
        let start = address.wrapping_add(offset as u64);
        let Some((jump, length)) = Jump::decode(entry, start) else {
            offset += STEP;
            continue;
        };
        if let Some((_, previous)) = entries.last_mut() {
            previous.end = previous.end.min(start);
        }
        entries.push((jump, start..start.saturating_add(2 * STEP as u64)));
        offset += length.next_multiple_of(STEP);
    }
    entries
}

impl Jump {
    /// Decodes the jump at the beginning of `code`. Returns it with the length of its instructions in bytes.
    fn decode(code: &[u8], address: u64) -> Option<(Jump, usize)> {
        const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        let unmarked = code.strip_prefix(ENDBR64).unwrap_or(code);
        // In older binaries, the `bnd` prefix of the withdrawn MPX precedes jumps.
        let unmarked = unmarked.strip_prefix(&[0xf2]).unwrap_or(unmarked);
        let prefixes = code.len() - unmarked.len();
        match *unmarked {
            [0xff, 0x25, a, b, c, d, ..] => {
                let length = prefixes + 6;
                let next = address.wrapping_add(length as u64);
                let displacement = i32::from_le_bytes([a, b, c, d]);
                Some((Jump::ThroughWord(next.wrapping_add_signed(displacement.into())), length))
            }
            [0x68, a, b, c, d, ..] => Some((Jump::Lazy(u32::from_le_bytes([a, b, c, d])), prefixes + 5)),
            _ => None,
        }
    }
}

/// A relocation that writes the address of a function to a word.
#[derive(Clone, Copy)]
struct Relocation<'a> {
    word: u64,
    target: Target<'a>,
    /// Whether it is in `.rela.plt`, to which pushed indices refer.
    lazy: bool,
}

/// The relocations of functions, those of `.rela.plt` first in their order.
fn relocations<'a, Elf: FileHeader<Endian = Endianness>>(
    sections: &SectionTable<'a, Elf>,
    endian: Endianness,
    bytes: &'a [u8],
) -> Vec<Relocation<'a>> {
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM).unwrap_or_default();
    let strings = sections.section(symbols.string_section()).and_then(|s| s.data(endian, bytes));
    let mut strings = StringTable::new(strings.unwrap_or_default());
    let is_lazy = |section| sections.section_name(endian, section).is_ok_and(|name| name == b".rela.plt");
    let rela = sections.iter().filter(|s| s.sh_type(endian) == elf::SHT_RELA);
    let mut lazy_first: Vec<&Elf::SectionHeader> = within_file(rela, endian, bytes).collect();
    lazy_first.sort_by_key(|section| !is_lazy(section));
    let mut relocations = Vec::new();
    for section in lazy_first {
        let Ok(Some((entries, _))) = section.rela(endian, bytes) else { continue };
        for entry in entries {
            let target = match entry.r_type(endian, IS_MIPS64EL) {
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                    let symbol =
                        entry.symbol(endian, IS_MIPS64EL).and_then(|index| symbols.symbol(index).ok());
                    Target::Symbol(symbol.map_or(&[], |s| strings.name(s.st_name(endian))))
                }
                elf::R_X86_64_IRELATIVE => Target::ChosenBy(entry.r_addend(endian).into() as u64),
                _ => continue,
            };
            let word = entry.r_offset(endian).into();
            relocations.push(Relocation { word, target, lazy: is_lazy(section) });
        }
    }
    relocations
}
