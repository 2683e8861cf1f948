//! `cargo xtask tidy`: the rules of the repository that compilers and clippy don't check.
//!
//! ```text
//! cargo metadata ──► dependencies ─┐
//! folders        ──► lists, map   ─┼─► findings: path, line, what is wrong
//! text of files  ──► rules, seams ─┘
//! ```

mod files;
mod house;
mod rules;
mod rust;
mod seams;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, fs, path::Path};

use crate::{Outcome, command};

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file or folder, from the root.
    path: String,
    /// The line, if the violation is in one; the first is 1.
    line: Option<usize>,
    /// What is wrong, and what would be right.
    what: String,
}

impl Finding {
    fn at(path: &str, line: Option<usize>, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

/// Checks the repository; the error contains the number of findings.
pub(crate) fn run(_arguments: &[String]) -> Outcome {
    let findings = check(&command::root())?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: all rules hold");
            Ok(())
        }
        count => Err(format!("{count} rules broken").into()),
    }
}

/// All violations in the tree under `root`, in order of path.
fn check(root: &Path) -> Outcome<Vec<Finding>> {
    let files = files::list(root)?;
    let mut findings = Vec::new();
    house::check(root, &files, &mut findings)?;
    seams::check(root, &files, &mut findings)?;
    let ratchet = read_ratchet(root)?;
    rules::check(root, &files, &ratchet, &mut findings)?;
    findings.sort();
    Ok(findings)
}

/// Lengths above the limit that are permitted for now, by `PATH` or `PATH:FUNCTION`.
type Ratchet = BTreeMap<String, usize>;

/// The file of the [`Ratchet`]: a name and a number of lines per line; `#` begins a comment.
const RATCHET: &str = "xtask/tidy.ratchet";

fn read_ratchet(root: &Path) -> Outcome<Ratchet> {
    let Ok(text) = fs::read_to_string(root.join(RATCHET)) else {
        return Ok(Ratchet::new());
    };
    let mut ratchet = Ratchet::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (name, lines) =
            line.rsplit_once(' ').ok_or_else(|| format!("{RATCHET}: no number in `{line}`"))?;
        let lines = lines.parse().map_err(|_| format!("{RATCHET}: no number in `{line}`"))?;
        ratchet.insert(name.to_owned(), lines);
    }
    Ok(ratchet)
}
