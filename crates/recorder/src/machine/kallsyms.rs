//! The kernel's symbols, as /proc/kallsyms lists them: an address in 16 digits, a type, a name.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

/// Positions in a line.
const DIGITS: usize = 16;
const KIND: usize = 17;
const NAME: usize = 19;

/// The lines about code: types t and w.
pub(super) fn text_symbols(path: &Path) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let line = line?;
        if line.get(KIND).is_some_and(|kind| b"tTwW".contains(kind)) {
            kept.extend(line);
            kept.push(b'\n');
        }
    }
    Ok(kept)
}

/// The address of the first symbol of this name.
pub(super) fn address(kallsyms: &[u8], name: &[u8]) -> Option<u64> {
    let line = kallsyms.split(|&byte| byte == b'\n').find(|line| line.get(NAME..) == Some(name))?;
    u64::from_str_radix(std::str::from_utf8(line.get(..DIGITS)?).ok()?, 16).ok()
}

/// The end of the page with the last symbol of the kernel itself, if it lies behind `start`. A tab and its name follow the
/// symbols of a module.
pub(super) fn last(kallsyms: &[u8], start: u64) -> Option<u64> {
    const PAGE: u64 = 4096;
    let own = kallsyms.split(|&byte| byte == b'\n').filter(|line| !line.contains(&b'\t'));
    let address = |line: &[u8]| u64::from_str_radix(std::str::from_utf8(line.get(..DIGITS)?).ok()?, 16).ok();
    let last = own.filter_map(address).max()?;
    (last > start).then(|| (last + 1).next_multiple_of(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_ends_behind_its_last_symbol_and_not_behind_those_of_modules() {
        let text = b"ffff800008010000 T _stext\nffff800008d00fff t last\nffff800009000000 t f\t[module]\n";
        let start = address(text, b"_stext").unwrap();
        assert_eq!(last(text, start), Some(0xffff_8000_08d0_1000));
        assert_eq!(last(text, 0xffff_8000_08d0_0fff), None);
    }
}
