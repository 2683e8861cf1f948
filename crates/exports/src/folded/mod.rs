//! Brendan Gregg's "folded stacks": a line such as `main;parse;read 1200` for each path, with its instructions.

use std::io;

use hodo_model::Loss;

use crate::{Content, Export, Output, PathRow, Paths, paths::printable};

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
