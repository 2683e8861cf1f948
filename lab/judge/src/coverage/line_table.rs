//! The line table and the disassembly, read by a program that is not ours: which lines have code, and of which kind.

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
    /// The lines with code of functions that the compiler adds: gcc's, which begin and end the counting.
    pub(super) with_added_function: BTreeSet<u64>,
    /// The number of conditional jumps of each line that has any.
    pub(super) conditional_jumps: BTreeMap<u64, usize>,
    /// The lines after which another line always runs: no branch leads into its begin, out of the first or into its middle.
    pub(super) always_next: BTreeMap<u64, u64>,
}

/// Reads the line table of each source.
pub(super) fn read(binary: &Path, sources: &[PathBuf]) -> Outcome<Vec<LineTable>> {
    let objdump = |arguments: &[&str]| command::capture(Command::new("objdump").args(arguments).arg(binary));
    let code = Code::of(&objdump(&["--disassemble", "--no-show-raw-insn"])?);
    let names = sources.iter().map(|source| source.file_name().unwrap_or_default().to_string_lossy());
    let names: Vec<String> = names.map(String::from).collect();
    let ranges = ranges(&objdump(&["--dwarf=decodedline", "--wide"])?, &names);
    Ok((0..names.len()).map(|index| LineTable::of(&ranges, index, &code)).collect())
}

/// The kinds of instructions that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Jump,
    Conditional,
    Return,
    Other,
}

/// Disassembled code.
#[derive(Debug, Default)]
struct Code {
    /// By address: its kind, and whether it is in a function that the compiler adds.
    instructions: BTreeMap<u64, (Kind, bool)>,
    /// Where direct jumps lead.
    targets: BTreeSet<u64>,
}

impl Code {
    /// Reads lines such as `0000000000001129 <f>:` and `  59cc8:  jmp  59d77 <f+0x172>`.
    fn of(disassembly: &str) -> Code {
        let mut code = Code::default();
        let mut is_added = false;
        for line in disassembly.lines() {
            if let Some((_, name)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
                is_added = name.starts_with("_sub_I_") || name.starts_with("_sub_D_");
                continue;
            }
            let Some((address, instruction)) = line.trim_start().split_once(':') else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            let mut words =
                instruction.split_whitespace().filter(|word| *word != "bnd" && *word != "notrack");
            let (name, operand) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let kind = match name {
                "nop" | "nopw" | "nopl" => Kind::Nothing,
                "jmp" => Kind::Jump,
                "ret" => Kind::Return,
                name if name.starts_with('j') => Kind::Conditional,
                _ => Kind::Other,
            };
            code.instructions.insert(address, (kind, is_added));
            if matches!(kind, Kind::Jump | Kind::Conditional) {
                code.targets.extend(u64::from_str_radix(operand, 16));
            }
        }
        code
    }

    fn kinds(&self, begin: u64, end: u64) -> impl Iterator<Item = Kind> {
        self.instructions.range(begin..end).map(|(_, &(kind, _))| kind)
    }

    /// Whether no jump leads out of code, nor into it after its begin.
    fn is_straight(&self, begin: u64, end: u64) -> bool {
        self.targets.range(begin + 1..end).next().is_none()
            && self.kinds(begin, end).all(|kind| matches!(kind, Kind::Nothing | Kind::Other))
    }

    /// Whether a jump leads into code up to its own first jump. What follows that is other code, such as a counter.
    fn is_entered(&self, begin: u64, end: u64) -> bool {
        let mut leaves = self.instructions.range(begin..end);
        let leaves = leaves.find(|(_, (kind, _))| !matches!(kind, Kind::Nothing | Kind::Other));
        let last = leaves.map_or(end - 1, |(&address, _)| address);
        self.targets.range(begin..=last).next().is_some()
    }
}

/// Consecutive code of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    /// The index of the source; `None` for another file.
    source: Option<usize>,
    /// The line; 0 if the code has none.
    line: u64,
    begin: u64,
    end: u64,
}

/// Reads rows such as `paper.c  259  0x5cbb  x`, whose files are named without their folders or with them. Returns code up to
/// the next row, in order of address.
fn ranges(rows: &str, names: &[String]) -> Vec<Range> {
    let mut starts = Vec::new();
    for row in rows.lines() {
        let mut words = row.split_whitespace();
        let (Some(file), Some(line), Some(address)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let hexadecimal = address.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let Some(address) = hexadecimal else { continue };
        let file = file.rsplit('/').next().unwrap_or(file);
        // The end of a sequence has no line.
        let line = line.parse().ok();
        let source = names.iter().position(|name| name == file).filter(|_| line.is_some());
        starts.push(Range { source, line: line.unwrap_or(0), begin: address, end: address });
    }
    // Of several rows of an address, the last counts.
    starts.sort_by_key(|range| range.begin);
    for index in 1..starts.len() {
        starts[index - 1].end = starts[index].begin;
    }
    starts
}

impl LineTable {
    /// The table of the source with this index.
    fn of(ranges: &[Range], source: usize, code: &Code) -> LineTable {
        let mut table = LineTable::default();
        for &Range { line, begin, end, .. } in ranges.iter().filter(|range| range.source == Some(source)) {
            // A row without an instruction is of an empty `asm`, for one.
            if begin < end {
                table.with_code.insert(line);
            }
            if code.kinds(begin, end).find(|&kind| kind != Kind::Nothing) == Some(Kind::Jump) {
                table.with_lone_jump.insert(line);
            }
            if code.instructions.get(&begin).is_some_and(|&(_, is_added)| is_added) {
                table.with_added_function.insert(line);
            }
            let conditional = code.kinds(begin, end).filter(|&kind| kind == Kind::Conditional).count();
            if conditional > 0 {
                *table.conditional_jumps.entry(line).or_default() += conditional;
            }
        }
        table.always_next = always_next(&pieces(ranges), source, code);
        table
    }
}

/// Joins the rows of a line that follow each other.
fn pieces(ranges: &[Range]) -> Vec<Range> {
    let mut pieces: Vec<Range> = Vec::new();
    for &range in ranges.iter().filter(|range| range.begin < range.end) {
        match pieces.last_mut() {
            Some(last) if (last.source, last.line) == (range.source, range.line) => last.end = range.end,
            _ => pieces.push(range),
        }
    }
    pieces
}

/// Finds lines that always run directly before another one, wherever either of them has code.
fn always_next(pieces: &[Range], source: usize, code: &Code) -> BTreeMap<u64, u64> {
    let mut next: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let mut before: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.source == Some(source)) {
        let follows = |first: &Range, second: &Range| {
            [first, second].iter().all(|piece| piece.source == Some(source))
                && code.is_straight(first.begin, first.end)
                && !code.is_entered(second.begin, second.end)
        };
        let note = |map: &mut BTreeMap<u64, Option<u64>>, other: Option<u64>| {
            let known = map.entry(piece.line).or_insert(other);
            if *known != other {
                *known = None;
            }
        };
        let after = pieces.get(index + 1).filter(|after| follows(piece, after));
        note(&mut next, after.map(|after| after.line));
        let earlier = index.checked_sub(1).map(|index| &pieces[index]);
        note(&mut before, earlier.filter(|earlier| follows(earlier, piece)).map(|earlier| earlier.line));
    }
    let both = next.into_iter().filter_map(|(line, next)| Some((line, next?)));
    both.filter(|(line, next)| before.get(next) == Some(&Some(*line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_sources_and_jumps_are_read() {
        let disassembly = "0000000000001129 <f>:\n    1129:\tpush   %rbp\n    1131:\tjmp    1140 <f+0x17>\n    \
                           1133:\tlock addq $0x1,0x8(%rip)\n    1136:\tjne    1129 <f>\n    1140:\tret\n\
                           0000000000001150 <_sub_I_00100_0>:\n    1150:\tret\n";
        let rows = "CU: ./a.c:\nFile name  Line number  Starting address  View  Stmt\n\
                    a.c  7  0x1129  x\n/src/a.c  9  0x1131  1  x\na.c  7  0x1136  x\n/usr/b.h:\nb.h  8  0x1140  x\n\
                    a.c  11  0x1150  x\na.c  -  0x1160\n";
        let ranges = ranges(rows, &["a.c".to_owned()]);
        let table = LineTable::of(&ranges, 0, &Code::of(disassembly));
        assert_eq!(table.with_code, BTreeSet::from([7, 9, 11]));
        // The counter after the jump has no row of its own.
        assert_eq!(table.with_lone_jump, BTreeSet::from([9]));
        assert_eq!(table.with_added_function, BTreeSet::from([11]));
        assert_eq!(table.conditional_jumps, BTreeMap::from([(7, 1)]));
    }

    #[test]
    fn a_line_always_follows_another_only_without_a_branch_between() {
        let rows = "a.c 1 0x10 x\na.c 2 0x11 x\na.c 3 0x12 x\na.c 4 0x14 x\na.c - 0x16\n";
        let straight = "10:\tnop\n11:\tpush %rax\n12:\tcall 40 <g>\n14:\tret\n";
        let always = |disassembly: &str| {
            LineTable::of(&ranges(rows, &["a.c".to_owned()]), 0, &Code::of(disassembly)).always_next
        };
        assert_eq!(always(straight), BTreeMap::from([(1, 2), (2, 3), (3, 4)]));
        // Into the begin of line 3, and out of line 1.
        assert_eq!(always(&format!("{straight}20:\tjne 12 <f+2>\n")), BTreeMap::from([(1, 2), (3, 4)]));
        assert_eq!(always(&straight.replace("nop", "je 30")), BTreeMap::from([(2, 3), (3, 4)]));
        // Into the middle of line 4, which a nop begins.
        let entered = straight.replace("14:\tret", "14:\tnop\n15:\tret\n20:\tjne 15 <f+5>");
        assert_eq!(always(&entered), BTreeMap::from([(1, 2), (2, 3)]));
        // Line 2 is elsewhere too, with another line after it.
        let elsewhere = rows.replace("a.c - 0x16", "a.c 2 0x16\na.c 9 0x17\na.c - 0x18");
        let more = format!("{straight}16:\tnop\n17:\tret\n");
        let table = LineTable::of(&ranges(&elsewhere, &["a.c".to_owned()]), 0, &Code::of(&more));
        assert_eq!(table.always_next, BTreeMap::from([(3, 4)]));
    }
}
