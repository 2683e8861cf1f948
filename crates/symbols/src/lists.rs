//! Reads lists of functions in text form: perf maps of run-time compilers, and the kernel's symbols.

use std::str;

/// A function in a perf map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry<'a> {
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// The name.
    pub name: &'a [u8],
}

/// Reads the functions of a `perf-PID.map` in the order of their generation (Linux,
/// `tools/perf/Documentation/jit-interface.txt`). A line has hexadecimal address, hexadecimal size and name; invalid
/// lines, such as one that is cut short, are skipped.
pub fn perf_map(bytes: &[u8]) -> impl Iterator<Item = MapEntry<'_>> {
    bytes.split(|&byte| byte == b'\n').filter_map(|line| {
        let (address, rest) = word(line)?;
        let (size, name) = word(rest)?;
        let name = name.trim_ascii();
        let entry = MapEntry { address: hexadecimal(address)?, size: hexadecimal(size)?, name };
        (entry.size > 0 && !name.is_empty()).then_some(entry)
    })
}

/// A kernel symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEntry<'a> {
    /// The address.
    pub address: u64,
    /// The type, as in `nm`: `t` and `T` are code, `w` and `W` weak symbols; capitals are visible in other files.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
    /// The symbol's module; empty for the kernel itself.
    pub module: &'a [u8],
}

/// Reads the functions in a copy of `/proc/kallsyms` (proc(5)), in file order. A line has address, type, name and, in
/// brackets, the module. Labels within functions, which modules for Arm and RISC-V have, are left out.
pub fn kallsyms(bytes: &[u8]) -> impl Iterator<Item = KernelEntry<'_>> {
    bytes.split(|&byte| byte == b'\n').filter_map(|line| {
        let (address, rest) = word(line)?;
        let (kind, rest) = word(rest)?;
        let (name, module) = word(rest)?;
        let module = module.trim_ascii();
        let module =
            module.strip_prefix(b"[").and_then(|module| module.strip_suffix(b"]")).unwrap_or_default();
        let address = hexadecimal(address)?;
        let kind = *kind.first().filter(|kind| b"tTwW".contains(kind))?;
        let is_label = name.starts_with(b"$") || name.starts_with(b".L");
        (!is_label).then_some(KernelEntry { address, kind, name, module })
    })
}

/// Splits the first word from a line.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    (end > 0).then(|| line.split_at(end))
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_perf_map_are_read_and_invalid_lines_are_skipped() {
        let map = b"3ef414c0 398 RegExp:[{(]\n0x3ef418a0 0x10 LazyCompile:a b \nnonsense\n10 0 empty\n7f00";
        let entries: Vec<MapEntry<'_>> = perf_map(map).collect();
        let first = MapEntry { address: 0x3ef4_14c0, size: 0x398, name: b"RegExp:[{(]" };
        assert_eq!(entries, [first, MapEntry { address: 0x3ef4_18a0, size: 0x10, name: b"LazyCompile:a b" }]);
    }

    #[test]
    fn functions_of_the_kernel_and_of_modules_are_read() {
        let list = b"ffffffff81000000 T _text\nffffffff82000000 D data\nffffffffc0001000 t $x\t[ext4]\n\
                     ffffffffc0001000 t probe\t[ext4]\nffffffffc0001008 t .L0 \t[ext4]\nx";
        let entries: Vec<KernelEntry<'_>> = kallsyms(list).collect();
        let text = KernelEntry { address: 0xffff_ffff_8100_0000, kind: b'T', name: b"_text", module: b"" };
        let probe =
            KernelEntry { address: 0xffff_ffff_c000_1000, kind: b't', name: b"probe", module: b"ext4" };
        assert_eq!(entries, [text, probe]);
    }
}
