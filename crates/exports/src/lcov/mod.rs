//! lcov's tracefile: by source file (`SF`), executions of each function (`FN`, `FNDA`), of both ways of each conditional
//! branch (`BRDA`) and of each line (`DA`).
//!
//! Source: `geninfo(1)` of lcov.

use std::{collections::BTreeMap, io};

use hodo_model::Loss;

use crate::{Content, Coverage, CoverageRow, Covered, Export, Output, loss_line, paths::printable};

pub(crate) const EXPORT: Export = Export {
    name: "lcov",
    help: "coverage: exact executions of lines, functions and branches, for genhtml and editors",
    content: Content::Coverage(begin),
};

struct Lcov<'o> {
    out: Output<'o>,
    files: BTreeMap<String, SourceFile>,
}

/// What is known of a source file. Two modules may contain the same source.
#[derive(Default)]
struct SourceFile {
    /// Executions by the first line and the name.
    functions: BTreeMap<(u64, String), u64>,
    /// The branches of each line, in order of their addresses.
    branches: BTreeMap<u64, Vec<Branch>>,
    /// Executions by line.
    lines: BTreeMap<u64, u64>,
}

struct Branch {
    executions: u64,
    /// Executions of each way: taken, not taken.
    ways: [u64; 2],
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Coverage + 'o>> {
    Ok(Box::new(Lcov { out, files: BTreeMap::new() }))
}

/// Adds to a sum.
fn add(sum: &mut u64, executions: u64) {
    *sum = sum.saturating_add(executions);
}

/// Returns a path without `.` and `..` as far as possible: genhtml would write pages outside its folder.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match (part, parts.last()) {
            (".", _) | ("..", Some(&"")) => {}
            ("..", Some(&last)) if last != ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

impl SourceFile {
    fn write(&self, name: &str, out: Output<'_>) -> io::Result<()> {
        writeln!(out, "TN:\nSF:{}", printable(name))?;
        // A name identifies a function within a file.
        let mut functions: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for ((line, function), executions) in &self.functions {
            add(&mut functions.entry(function).or_insert((*line, 0)).1, *executions);
        }
        for (function, (line, _)) in &functions {
            writeln!(out, "FN:{line},{}", printable(function))?;
        }
        for (function, (_, executions)) in &functions {
            writeln!(out, "FNDA:{executions},{}", printable(function))?;
        }
        let hit = functions.values().filter(|(_, executions)| *executions > 0).count();
        writeln!(out, "FNF:{}\nFNH:{hit}", functions.len())?;
        self.write_branches(out)?;
        for (line, executions) in &self.lines {
            writeln!(out, "DA:{line},{executions}")?;
        }
        let hit = self.lines.values().filter(|&&executions| executions > 0).count();
        writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", self.lines.len())
    }

    fn write_branches(&self, out: Output<'_>) -> io::Result<()> {
        let (mut all, mut hit) = (0, 0);
        for (line, branches) in &self.branches {
            for (block, Branch { executions, ways }) in branches.iter().enumerate() {
                for (way, count) in ways.iter().enumerate() {
                    all += 1;
                    hit += u64::from(*count > 0);
                    // A dash stands for a branch that was never reached.
                    match executions {
                        0 => writeln!(out, "BRDA:{line},{block},{way},-")?,
                        _ => writeln!(out, "BRDA:{line},{block},{way},{count}")?,
                    }
                }
            }
        }
        writeln!(out, "BRF:{all}\nBRH:{hit}")
    }
}

impl Coverage for Lcov<'_> {
    fn row(&mut self, row: &CoverageRow<'_>) -> io::Result<()> {
        let &CoverageRow { file, line, executions, covered, .. } = row;
        let file = self.files.entry(plain(file)).or_default();
        match covered {
            Covered::Line => add(file.lines.entry(line).or_default(), executions),
            Covered::Function { name } => {
                add(file.functions.entry((line, name.to_owned())).or_default(), executions);
            }
            Covered::Branch { taken, not_taken } => {
                let ways = [taken, not_taken];
                file.branches.entry(line).or_default().push(Branch { executions, ways });
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let Lcov { out, files } = *self;
        for loss in losses {
            writeln!(out, "# {}", printable(&loss_line(loss)))?;
        }
        files.iter().try_for_each(|(name, file)| file.write(name, out))?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_no_detours() {
        for (path, expected) in [
            ("/a/b/../../c.c", "/c.c"),
            ("./csu/../csu/start.c", "csu/start.c"),
            ("../a.c", "../a.c"),
            ("/../a.c", "/a.c"),
            ("a.c", "a.c"),
        ] {
            assert_eq!(plain(path), expected);
        }
    }
}
