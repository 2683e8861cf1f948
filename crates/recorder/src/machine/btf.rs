//! Offsets in a kernel's structures, from its own description of its types.
//!
//! Source: Linux, Documentation/bpf/btf.rst.

use std::path::Path;

use hodo_emulator::machine::ModuleLayout;
use object::{Object, ObjectSection};

const MAGIC: u16 = 0xeb9f;
/// The first bytes of a description: the magic number, version 1, no flags, and the length of its header.
const HEADER: [u8; 8] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
/// The bytes of a type's first three words.
const HEAD: usize = 12;
const STRUCT: u32 = 4;

/// The bytes after the first three words of a type.
struct Tail {
    of_type: usize,
    of_member: usize,
}

impl Tail {
    fn of_kind(kind: u32) -> Tail {
        let (of_type, of_member) = match kind {
            1 | 14 | 17 => (4, 0),           // INT, VAR, DECL_TAG
            3 => (12, 0),                    // ARRAY
            STRUCT | 5 | 15 | 19 => (0, 12), // STRUCT, UNION, DATASEC, ENUM64
            6 | 13 => (0, 8),                // ENUM, FUNC_PROTO
            _ => (0, 0),
        };
        Tail { of_type, of_member }
    }
}

/// The offsets of the fields that describe a module in the kernel; `None` if its file has no BTF.
pub(super) fn module_layout(kernel: &Path) -> Option<ModuleLayout> {
    let bytes = std::fs::read(kernel).ok()?;
    match object::File::parse(&*bytes) {
        Ok(file) if file.format() == object::BinaryFormat::Elf => {
            layout(file.section_by_name(".BTF")?.data().ok()?)
        }
        // A bare image, as that of Arm and RISC-V: it contains the section somewhere.
        _ => memchr::memmem::find_iter(&bytes, &HEADER).find_map(|at| layout(&bytes[at..])),
    }
}

fn layout(btf: &[u8]) -> Option<ModuleLayout> {
    let types = Types::parse(btf)?;
    let module = types.members(b"module")?;
    let kallsyms = types.members(b"mod_kallsyms")?;
    let offset_of = |members: &[(&[u8], u64)], name: &[u8]| {
        members.iter().find(|(member, _)| *member == name).map(|&(_, offset)| offset)
    };
    Some(ModuleLayout {
        name: offset_of(&module, b"name")?,
        kallsyms: offset_of(&module, b"kallsyms")?,
        symbols: offset_of(&kallsyms, b"symtab")?,
        count: offset_of(&kallsyms, b"num_symtab")?,
        names: offset_of(&kallsyms, b"strtab")?,
        types: offset_of(&kallsyms, b"typetab")?,
    })
}

/// A description of types.
struct Types<'a> {
    types: &'a [u8],
    names: &'a [u8],
}

impl<'a> Types<'a> {
    /// The header: u16 magic, u8 version, u8 flags, u32 its length, and offset and length of types and of names.
    fn parse(btf: &'a [u8]) -> Option<Types<'a>> {
        let magic = u16::from_le_bytes(btf.get(..2)?.try_into().ok()?);
        let number = |offset: usize| Some(word(btf, offset)? as usize);
        let body = btf.get(number(4)?..)?;
        let section = |offset: usize| body.get(number(offset)?..)?.get(..number(offset + 4)?);
        (magic == MAGIC).then_some(Types { types: section(8)?, names: section(16)? })
    }

    fn name(&self, offset: u32) -> Option<&'a [u8]> {
        self.names.get(offset as usize..)?.split(|&byte| byte == 0).next()
    }

    /// The members of a structure with their offsets in bytes. A type: u32 name, u32 `flag << 31 | kind << 24 | members`,
    /// u32 size; a member: u32 name, u32 type, u32 offset in bits: with the flag, its low 24 bits.
    fn members(&self, structure: &[u8]) -> Option<Vec<(&'a [u8], u64)>> {
        let mut offset = 0;
        while offset < self.types.len() {
            let (name, info) = (word(self.types, offset)?, word(self.types, offset + 4)?);
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let tail = Tail::of_kind(kind);
            let begin = offset + HEAD;
            if kind == STRUCT && self.name(name)? == structure {
                let mask = if info >> 31 == 1 { (1 << 24) - 1 } else { u32::MAX };
                let member = |index: usize| {
                    let member = begin + index * tail.of_member;
                    let bits = u64::from(word(self.types, member + 8)? & mask);
                    Some((self.name(word(self.types, member)?)?, bits / 8))
                };
                return (0..count).map(member).collect();
            }
            offset = begin + tail.of_type + count * tail.of_member;
        }
        None
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types: an integer, `module` and `mod_kallsyms`.
    fn description() -> Vec<u8> {
        let mut names = vec![0];
        let mut types: Vec<u32> = Vec::new();
        let mut named = |name: &str| {
            let offset = names.len() as u32;
            names.extend(name.bytes().chain([0]));
            offset
        };
        types.extend([named("int"), 1 << 24, 4, 32]);
        types.extend([
            named("module"),
            1 << 31 | 4 << 24 | 2,
            64,
            named("name"),
            1,
            24 * 8,
            named("kallsyms"),
            1,
            (32 << 24) | (56 * 8),
        ]);
        types.extend([named("mod_kallsyms"), 4 << 24 | 4, 32]);
        for (index, name) in ["symtab", "num_symtab", "strtab", "typetab"].into_iter().enumerate() {
            types.extend([named(name), 1, index as u32 * 64]);
        }
        let length = types.len() as u32 * 4;
        let header = [1 << 16 | u32::from(MAGIC), 24, 0, length, length, names.len() as u32];
        let words = header.into_iter().chain(types).flat_map(u32::to_le_bytes);
        words.chain(names).collect()
    }

    #[test]
    fn offsets_of_members_are_found() {
        let expected = ModuleLayout { name: 24, kallsyms: 56, symbols: 0, count: 8, names: 16, types: 24 };
        assert_eq!(layout(&description()), Some(expected));
        for length in 0..description().len() {
            _ = layout(&description()[..length]);
        }
        assert_eq!(layout(b"none"), None);
    }
}
