//! What a process of the guest maps: the text of /proc/PID/maps.

/// An executable mapping of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CodeMap {
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) file_offset: u64,
}

/// The executable mappings of a file, from the text of /proc/PID/maps.
pub(super) fn code_of(maps: &str, file: &str) -> Vec<CodeMap> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let code = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[range, access, offset, _, _, name] = words.as_slice() else { return None };
        let (begin, end) = range.split_once('-')?;
        let address = number(begin)?;
        let (length, file_offset) = (number(end)?.checked_sub(address)?, number(offset)?);
        (name == file && access.contains('x')).then_some(CodeMap { address, length, file_offset })
    };
    maps.lines().filter_map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_file_is_what_it_maps_executable() {
        let maps = "00200000-00207000 r--p 00000000 00:02 12  /init\n00207000-0021c000 r-xp 00006000 00:02 12  /init\n\
                    7f00-7f01 r-xp 0 00:00 0  [vdso]\n7f02-7f03 rw-p 0 00:00 0\n";
        assert_eq!(
            code_of(maps, "/init"),
            [CodeMap { address: 0x20_7000, length: 0x1_5000, file_offset: 0x6000 }]
        );
    }
}
