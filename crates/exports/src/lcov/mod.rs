//! lcov's tracefile: executions of each source line (`DA`), by source file (`SF`).
//!
//! Source: `geninfo(1)` of lcov.

use std::{collections::BTreeMap, io};

use hodo_model::Loss;

use crate::{Content, Export, Lines, Output, loss_line, paths::printable};

pub(crate) const EXPORT: Export = Export {
    name: "lcov",
    help: "exact executions of each source line that ran, for genhtml and editors",
    content: Content::Lines(begin),
};

struct Lcov<'o> {
    out: Output<'o>,
    /// Executions by line, by file.
    files: BTreeMap<String, BTreeMap<u64, u64>>,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Lines + 'o>> {
    Ok(Box::new(Lcov { out, files: BTreeMap::new() }))
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

impl Lines for Lcov<'_> {
    fn line(&mut self, file: &str, line: u64, executions: u64) -> io::Result<()> {
        // Two modules may contain the same source.
        let sum = self.files.entry(plain(file)).or_default().entry(line).or_default();
        *sum = sum.saturating_add(executions);
        Ok(())
    }

    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let Lcov { out, files } = *self;
        for loss in losses {
            writeln!(out, "# {}", printable(&loss_line(loss)))?;
        }
        for (file, lines) in files {
            writeln!(out, "TN:\nSF:{}", printable(&file))?;
            for (line, executions) in &lines {
                writeln!(out, "DA:{line},{executions}")?;
            }
            let hit = lines.values().filter(|&&executions| executions > 0).count();
            writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", lines.len())?;
        }
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
