//! Entries of the procedure linkage table, which no symbol names (x86-64 psABI, "Procedure Linkage Table").

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable, Sym};

use crate::elf::{addresses, name_at};

/// One entry: a few instructions that jump to where a word of memory says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PltEntry<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) target: Target<'a>,
}

/// What the dynamic linker writes into the word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    /// The address of the symbol with this name.
    Symbol(&'a [u8]),
    /// What the function at this address returns (`R_X86_64_IRELATIVE`).
    ChosenBy(u64),
}

/// All entries of `.plt`, `.plt.sec` and `.plt.got` whose relocation is found.
pub(crate) fn read<'a, Elf: FileHeader<Endian = Endianness>>(
    sections: &SectionTable<'a, Elf>,
    endian: Endianness,
    bytes: &'a [u8],
) -> Vec<PltEntry<'a>> {
    let relocations = relocations(sections, endian, bytes);
    let mut by_word = relocations.clone();
    by_word.sort_by_key(|r| r.word);
    let mut entries = Vec::new();
    for section in sections.iter() {
        let name = sections.section_name(endian, section).unwrap_or_default();
        if !name.starts_with(b".plt") {
            continue;
        }
        let code = section.data(endian, bytes).unwrap_or_default();
        let size = if section.sh_entsize(endian).into() == 8 { 8 } else { 16 };
        let starts = (addresses(section, endian).start..).step_by(size);
        for (start, code) in starts.zip(code.chunks_exact(size)) {
            let relocation = match Jump::of(code, start) {
                Some(Jump::ThroughWord(word)) => {
                    by_word.binary_search_by_key(&word, |r| r.word).ok().and_then(|index| by_word.get(index))
                }
                Some(Jump::Lazy(index)) => relocations.get(index as usize).filter(|r| r.lazy),
                None => None,
            };
            let end = start.saturating_add(size as u64);
            entries.extend(relocation.map(|r| PltEntry { start, end, target: r.target }));
        }
    }
    entries
}

/// How an entry goes on.
enum Jump {
    /// `jmp *displacement(%rip)`
    ThroughWord(u64),
    /// `push $index`, then a jump to the first entry: the way to the dynamic linker, which resolves
    /// the relocation with this index.
    Lazy(u32),
}

impl Jump {
    fn of(code: &[u8], address: u64) -> Option<Jump> {
        const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        let unmarked = code.strip_prefix(ENDBR64).unwrap_or(code);
        // `bnd`, of the withdrawn MPX, precedes jumps in older binaries.
        let unmarked = unmarked.strip_prefix(&[0xf2]).unwrap_or(unmarked);
        let (opcode, operand) = unmarked.split_at_checked(2)?;
        match (opcode, operand.first_chunk(), unmarked.get(1..)?.first_chunk()) {
            ([0xff, 0x25], Some(&displacement), _) => {
                let next = address.wrapping_add((code.len() - operand.len() + 4) as u64);
                Some(Jump::ThroughWord(next.wrapping_add_signed(i32::from_le_bytes(displacement).into())))
            }
            ([0x68, _], _, Some(&index)) => Some(Jump::Lazy(u32::from_le_bytes(index))),
            _ => None,
        }
    }
}

/// A relocation that fills a word with the address of a function.
#[derive(Clone, Copy)]
struct Relocation<'a> {
    word: u64,
    target: Target<'a>,
    /// One of `.rela.plt`, where entries that push an index count from.
    lazy: bool,
}

/// The relocations of functions; those of `.rela.plt` first and in their order.
fn relocations<'a, Elf: FileHeader<Endian = Endianness>>(
    sections: &SectionTable<'a, Elf>,
    endian: Endianness,
    bytes: &'a [u8],
) -> Vec<Relocation<'a>> {
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM).unwrap_or_default();
    let strings = sections.section(symbols.string_section()).and_then(|s| s.data(endian, bytes));
    let strings = strings.unwrap_or_default();
    let is_lazy = |section| sections.section_name(endian, section).is_ok_and(|name| name == b".rela.plt");
    let mut lazy_first: Vec<&Elf::SectionHeader> = sections.iter().collect();
    lazy_first.sort_by_key(|section| !is_lazy(section));
    let mut found = Vec::new();
    for section in lazy_first {
        let Ok(Some((entries, _))) = section.rela(endian, bytes) else { continue };
        for entry in entries {
            let target = match entry.r_type(endian, false) {
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                    let symbol = entry.symbol(endian, false).and_then(|index| symbols.symbol(index).ok());
                    Target::Symbol(symbol.map_or(&[], |s| name_at(strings, s.st_name(endian))))
                }
                elf::R_X86_64_IRELATIVE => Target::ChosenBy(entry.r_addend(endian).into() as u64),
                _ => continue,
            };
            found.push(Relocation { word: entry.r_offset(endian).into(), target, lazy: is_lazy(section) });
        }
    }
    found
}
