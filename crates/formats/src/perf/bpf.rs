//! Code of BPF programs, which perf copies from the kernel when a recording ends.
//!
//! The section is u32 count, then for each program u32 info_len, u32 data_len, u64 arrays (a bit mask of the arrays
//! present), `bpf_prog_info` (linux/bpf.h), and the data. Pointers in `bpf_prog_info` are replaced by offsets into the
//! data.

use hodo_bytes::{Cursor, Eof};

use super::file::Section;
use crate::recording::BpfProgram;

/// Offsets in `bpf_prog_info`.
mod offset {
    pub(super) const ID: usize = 4;
    pub(super) const JITED_PROG_LEN: usize = 16;
    pub(super) const JITED_PROG_INSNS: usize = 24;
    pub(super) const NR_JITED_KSYMS: usize = 104;
    pub(super) const NR_JITED_FUNC_LENS: usize = 108;
    pub(super) const JITED_KSYMS: usize = 112;
    pub(super) const JITED_FUNC_LENS: usize = 120;
}

/// Reads the programs whose code the kernel exported.
///
/// # Errors
/// A section that is cut short.
pub(super) fn programs<'a>(section: Section<'a>) -> Result<Vec<BpfProgram<'a>>, Eof> {
    let mut cursor = section.cursor();
    let count = cursor.u32()?;
    let mut programs = Vec::new();
    for _ in 0..count {
        let (info_size, data_size) = (cursor.u32()?, cursor.u32()?);
        let _arrays = cursor.u64()?;
        let info = ByOffset { offset: cursor.offset(), bytes: cursor.take(info_size as usize)? };
        let data = ByOffset { offset: cursor.offset(), bytes: cursor.take(data_size as usize)? };
        programs.push(BpfProgram { id: info.u32(offset::ID)?, functions: functions(info, data)? });
    }
    Ok(programs)
}

/// Bytes read by offset.
#[derive(Clone, Copy)]
struct ByOffset<'a> {
    offset: u64,
    bytes: &'a [u8],
}

impl<'a> ByOffset<'a> {
    fn cursor_at(&self, offset: usize) -> Result<Cursor<'a>, Eof> {
        let mut cursor = Cursor::new(self.bytes, self.offset);
        cursor.take(offset)?;
        Ok(cursor)
    }

    fn u32(&self, offset: usize) -> Result<u32, Eof> {
        self.cursor_at(offset)?.u32()
    }

    /// Returns a cursor at the position in `data` that a pointer field refers to.
    fn pointer(&self, offset: usize, data: ByOffset<'a>) -> Result<Cursor<'a>, Eof> {
        let target = self.cursor_at(offset)?.u64()?;
        data.cursor_at(usize::try_from(target).unwrap_or(usize::MAX))
    }
}

/// Reads address and code of each function. Older kernels do not export the addresses.
fn functions<'a>(info: ByOffset<'a>, data: ByOffset<'a>) -> Result<Vec<(u64, &'a [u8])>, Eof> {
    if info.bytes.len() < offset::JITED_FUNC_LENS + 8 {
        return Ok(Vec::new());
    }
    let count = info.u32(offset::NR_JITED_KSYMS)?.min(info.u32(offset::NR_JITED_FUNC_LENS)?);
    let mut code = info.pointer(offset::JITED_PROG_INSNS, data)?;
    let mut left = info.u32(offset::JITED_PROG_LEN)?;
    let mut addresses = info.pointer(offset::JITED_KSYMS, data)?;
    let mut lengths = info.pointer(offset::JITED_FUNC_LENS, data)?;
    let mut functions = Vec::new();
    for _ in 0..count {
        let (address, length) = (addresses.u64()?, lengths.u32()?);
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
        functions.push((address, code.take(length as usize)?));
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section with one program of two functions.
    fn section() -> Vec<u8> {
        let mut info = vec![0; 128];
        let mut set = |offset: usize, bytes: &[u8]| info[offset..][..bytes.len()].copy_from_slice(bytes);
        set(offset::ID, &42u32.to_le_bytes());
        set(offset::JITED_PROG_LEN, &5u32.to_le_bytes());
        set(offset::JITED_PROG_INSNS, &0u64.to_le_bytes());
        set(offset::NR_JITED_KSYMS, &2u32.to_le_bytes());
        set(offset::NR_JITED_FUNC_LENS, &2u32.to_le_bytes());
        set(offset::JITED_KSYMS, &8u64.to_le_bytes());
        set(offset::JITED_FUNC_LENS, &24u64.to_le_bytes());
        let addresses = [0x1000u64, 0x2000].map(u64::to_le_bytes).concat();
        let lengths = [2u32, 3].map(u32::to_le_bytes).concat();
        let data = [&b"abcde\0\0\0"[..], &addresses, &lengths].concat();
        let sizes = [1u32, 128, data.len() as u32].map(u32::to_le_bytes).concat();
        [&sizes[..], &0u64.to_le_bytes(), &info, &data].concat()
    }

    #[test]
    fn each_function_has_its_address_and_code() {
        let bytes = section();
        let programs = programs(Section { offset: 0, bytes: &bytes }).unwrap();
        let functions = vec![(0x1000, &b"ab"[..]), (0x2000, &b"cde"[..])];
        assert_eq!(programs, [BpfProgram { id: 42, functions }]);
    }

    #[test]
    fn a_section_that_is_cut_short_is_an_error() {
        let bytes = section();
        (0..bytes.len()).for_each(|end| {
            assert!(programs(Section { offset: 0, bytes: &bytes[..end] }).is_err(), "{end}");
        });
    }
}
