//! Brendan Gregg's "folded stacks": a line such as `main;parse;read 1200` for each path, with its instructions.

use std::{collections::BTreeMap, io};

use hodo_model::{Loss, table::RecordBatch};

use crate::{Content, Export, Output, PathRow, Paths, path_rows, paths::printable};

pub(crate) const EXPORT: Export = Export {
    name: "folded",
    help: "instructions of each call path, as text for flamegraph.pl and speedscope",
    content: Content::Paths(begin),
};

struct Folded<'o> {
    out: Output<'o>,
    /// The path of the last row: frames joined by `;`.
    path: String,
    /// End offset of each frame in `path`.
    ends: Vec<usize>,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Paths + 'o>> {
    Ok(Box::new(Folded { out, path: String::new(), ends: Vec::new() }))
}

impl Paths for Folded<'_> {
    fn row(&mut self, row: &PathRow<'_>) -> io::Result<()> {
        self.ends.truncate(row.depth);
        self.path.truncate(self.ends.last().copied().unwrap_or(0));
        self.path.extend((!self.ends.is_empty()).then_some(';'));
        // A semicolon would end the frame.
        self.path.push_str(&printable(row.function).replace(';', "\\x3b"));
        self.ends.push(self.path.len());
        match row.own[0] {
            0 => Ok(()),
            instructions => writeln!(self.out, "{} {instructions}", self.path),
        }
    }

    /// Losses have no place in this format; `hodo` prints them.
    fn finish(self: Box<Self>, _: &[Loss]) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes the difference of two profiles as `difffolded.pl` does: each path with its instructions before and after, for
/// `flamegraph.pl`, which colours a path by the difference. Paths are in alphabetical order.
///
/// # Errors
/// Those of the writer.
pub fn differential(before: &[RecordBatch], after: &[RecordBatch], out: Output<'_>) -> io::Result<()> {
    let mut paths: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, batches) in [before, after].into_iter().enumerate() {
        let mut lines = Vec::new();
        let mut folded = begin(&mut lines)?;
        for batch in batches {
            let known = path_rows(batch, |row| folded.row(row))?;
            assert!(known, "the report of call paths has their columns");
        }
        drop(folded);
        for line in String::from_utf8(lines).expect("names are text").lines() {
            let (path, instructions) = line.rsplit_once(' ').expect("a line ends with its number");
            let sum = &mut paths.entry(path.to_owned()).or_default()[side];
            *sum = sum.saturating_add(instructions.parse().expect("it is an integer"));
        }
    }
    for (path, [before, after]) in paths {
        writeln!(out, "{path} {before} {after}")?;
    }
    out.flush()
}
