//! The line table from DWARF: where statements begin.

use std::{collections::HashMap, ops::Range};

use gimli::{Dwarf, EndianSlice, RunTimeEndian, Unit};
use hodo_model::{SourceLine, Statement};

use crate::lines::DebugSections;

type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;

/// Limit on rows; more mean a damaged file, or one too large for memory.
const MOST_ROWS: usize = 1 << 26;

/// The source line of the code from an address up to the next row.
#[derive(Clone, Copy, Debug)]
struct LineRow {
    address: u64,
    /// Index of the file, or [`NO_FILE`].
    file: u32,
    line: u32,
    /// Whether a statement begins there (`is_stmt`).
    statement: bool,
}

/// The line tables of a file, by address.
#[derive(Debug, Default)]
pub struct Rows {
    files: Vec<String>,
    rows: Vec<LineRow>,
}

/// The file of the row at the end of a sequence: the code after it has no line.
const NO_FILE: u32 = u32::MAX;

impl Rows {
    /// Reads the line tables of all units, and skips damaged ones.
    pub fn read(sections: &DebugSections<'_>) -> Rows {
        let dwarf = sections.dwarf();
        let mut rows = Rows::default();
        let mut names = HashMap::new();
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            if let Ok(unit) = dwarf.unit(header) {
                // Keeps the rows before the damage.
                let _ = rows.add_unit(&dwarf, &unit, &mut names);
            }
        }
        // If one sequence ends where another begins, the beginning counts: ends sort first.
        rows.rows.sort_by_key(|row| (row.address, row.file != NO_FILE));
        rows
    }

    fn add_unit<'a>(
        &mut self,
        dwarf: &Dwarf<Bytes<'a>>,
        unit: &Unit<Bytes<'a>>,
        names: &mut HashMap<String, u32>,
    ) -> gimli::Result<()> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut files: HashMap<u64, u32> = HashMap::new();
        let mut table = program.rows();
        while let Some((header, row)) = table.next_row()? {
            if self.rows.len() >= MOST_ROWS {
                break;
            }
            let address = row.address();
            if row.end_sequence() {
                self.rows.push(LineRow { address, file: NO_FILE, line: 0, statement: false });
                continue;
            }
            let Some(line) = row.line() else { continue };
            let file = match files.get(&row.file_index()) {
                Some(&file) => file,
                None => {
                    let entry = row.file(header);
                    let name = entry.and_then(|entry| path(dwarf, unit, header, entry)).unwrap_or_default();
                    let next = self.files.len() as u32;
                    let file = *names.entry(name.clone()).or_insert(next);
                    if file == next {
                        self.files.push(name);
                    }
                    files.insert(row.file_index(), file);
                    file
                }
            };
            let line = u32::try_from(line.get()).unwrap_or(u32::MAX);
            self.rows.push(LineRow { address, file, line, statement: row.is_stmt() });
        }
        Ok(())
    }

    /// Returns the addresses at which statements of a line begin, in order; consecutive rows of the line count once.
    /// `file` is the end of the source file's path.
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<u64> {
        let is_file = |path: &String| {
            path.strip_suffix(file).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let files: Vec<bool> = self.files.iter().map(is_file).collect();
        let is_line = |row: &LineRow| row.line == line && files.get(row.file as usize) == Some(&true);
        let mut addresses = Vec::new();
        let mut after_line = false;
        for row in &self.rows {
            if is_line(row) && row.statement && !after_line {
                addresses.push(row.address);
            }
            after_line = is_line(row);
        }
        addresses.dedup();
        addresses
    }

    /// Returns the statements that have code, in order of address.
    pub fn statements(&self) -> impl Iterator<Item = Statement<'_>> {
        let with_code = self.rows.windows(2).filter(|pair| pair[0].address < pair[1].address);
        with_code.filter_map(|pair| {
            let address = pair[0].address;
            let SourceLine { file, line, begins, .. } = self.line_at(address)?;
            (begins && line > 0).then_some(Statement { address, file, line })
        })
    }

    /// Whether all code of a range has the same source line, or none.
    pub fn is_one_line(&self, range: Range<u64>) -> bool {
        let first = self.rows.partition_point(|row| row.address <= range.start);
        let line = |row: &LineRow| (row.file != NO_FILE).then_some((row.file, row.line));
        let at_start = first.checked_sub(1).and_then(|before| line(&self.rows[before]));
        let mut inside = self.rows[first..].iter().take_while(|row| row.address < range.end);
        inside.all(|row| line(row) == at_start)
    }

    /// The source line of the code at an address.
    pub fn line_at(&self, address: u64) -> Option<SourceLine<'_>> {
        let end = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(end.checked_sub(1)?)?;
        let file = self.files.get(row.file as usize)?;
        let mut same_address = self.rows[..end].iter().rev().take_while(|row| row.address == address);
        let begins = same_address.any(|other| other.statement && other.line == row.line);
        Some(SourceLine { file, line: row.line, begins, is_entry: row.address == address })
    }
}

/// The path of a file: absolute, or below its directory, which may be below the unit's.
fn path<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    header: &gimli::LineProgramHeader<Bytes<'a>>,
    entry: &gimli::FileEntry<Bytes<'a>>,
) -> Option<String> {
    let text = |value| dwarf.attr_string(unit, value).ok().map(|text| text.to_string_lossy().into_owned());
    let mut path = text(entry.path_name())?;
    let folder = entry.directory(header).and_then(text);
    let unit_folder = unit.comp_dir.map(|folder| folder.to_string_lossy().into_owned());
    for folder in [folder, unit_folder].into_iter().flatten() {
        if !path.starts_with('/') {
            path = format!("{folder}/{path}");
        }
    }
    Some(path)
}
