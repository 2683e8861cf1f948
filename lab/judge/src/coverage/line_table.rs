//! The compiler's line table, read by a program that is not ours: which lines have code, and which of it is only a jump.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Outcome, command};

/// What the line table has of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LineTable {
    /// The lines to which an instruction of the program belongs.
    pub(super) with_code: BTreeSet<u64>,
    /// The lines of which some code is one unconditional jump and nothing else: the way out of a block, or `break`.
    pub(super) with_lone_jump: BTreeSet<u64>,
}

/// Reads the line table of each source.
pub(super) fn read(binary: &Path, sources: &[PathBuf]) -> Outcome<Vec<LineTable>> {
    let objdump = |arguments: &[&str]| command::capture(Command::new("objdump").args(arguments).arg(binary));
    let jumps = jumps(&objdump(&["--disassemble", "--no-show-raw-insn"])?);
    let names = sources.iter().map(|source| source.file_name().unwrap_or_default().to_string_lossy());
    let names: Vec<String> = names.map(String::from).collect();
    Ok(tables(&objdump(&["--dwarf=decodedline", "--wide"])?, &jumps, &names))
}

/// Returns the addresses of unconditional jumps, each with that of the next instruction, from lines such as
/// `  59cc8:  jmp  59d77 <f+0x172>`.
fn jumps(disassembly: &str) -> BTreeMap<u64, u64> {
    let instructions = disassembly.lines().filter_map(|line| {
        let (address, instruction) = line.trim_start().split_once(':')?;
        Some((u64::from_str_radix(address, 16).ok()?, instruction.trim_start()))
    });
    let mut jumps = BTreeMap::new();
    let mut jump = None;
    for (address, instruction) in instructions {
        if let Some(jump) = jump.take() {
            jumps.insert(jump, address);
        }
        jump = instruction.starts_with("jmp ").then_some(address);
    }
    jumps
}

/// Reads rows such as `paper.c  259  0x5cbb  x`, whose files are named without their folders.
fn tables(rows: &str, jumps: &BTreeMap<u64, u64>, names: &[String]) -> Vec<LineTable> {
    let mut tables = vec![LineTable::default(); names.len()];
    // The row before, of one of the sources: its index, line and address.
    let mut before: Option<(usize, u64, u64)> = None;
    for row in rows.lines() {
        let mut words = row.split_whitespace();
        let (Some(file), Some(line), Some(address)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let hexadecimal = address.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let Some(address) = hexadecimal else { continue };
        if let Some((index, line, start)) = before.take()
            && jumps.get(&start) == Some(&address)
        {
            tables[index].with_lone_jump.insert(line);
        }
        // The end of a sequence has no line.
        let index = names.iter().position(|name| name == file);
        if let (Some(index), Ok(line)) = (index, line.parse()) {
            tables[index].with_code.insert(line);
            before = Some((index, line, address));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_sources_and_jumps_are_read() {
        let disassembly = "0000000000001129 <f>:\n    1129:\tpush   %rbp\n    1131:\tjmp    1140 <f+0x17>\n    \
                           1136:\tjne    1129 <f>\n    1140:\tret\n";
        let jumps = jumps(disassembly);
        assert_eq!(jumps, BTreeMap::from([(0x1131, 0x1136)]));
        let rows = "CU: ./a.c:\nFile name  Line number  Starting address  View  Stmt\n\
                    a.c  7  0x1129  x\na.c  9  0x1131  1  x\na.c  7  0x1136  x\n/usr/b.h:\nb.h  8  0x1140  x\n\
                    a.c  -  0x1150\n";
        let [table] = <[LineTable; 1]>::try_from(tables(rows, &jumps, &["a.c".to_owned()])).expect("one");
        assert_eq!(table.with_code, BTreeSet::from([7, 9]));
        assert_eq!(table.with_lone_jump, BTreeSet::from([9]));
    }
}
