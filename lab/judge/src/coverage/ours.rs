//! Our coverage of a recording, by source file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::peers::Counted;
use crate::{Outcome, command};

/// What `hodo report coverage` has of a source file.
#[derive(Default)]
pub(super) struct Covered {
    pub(super) lines: BTreeMap<u64, u64>,
    /// By name.
    pub(super) functions: BTreeMap<String, u64>,
    /// Conditional jumps of each line: taken, not taken.
    pub(super) branches: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Covered {
    /// The count of the opening brace of a function that a line declares: gcov counts the declaration, and the code of a
    /// call begins at the brace.
    pub(super) fn brace_of(&self, line: u64, theirs: &Counted) -> Option<&u64> {
        let (next, count) = self.lines.range(line + 1..).next()?;
        (theirs.declared.contains_key(&line) && !theirs.lines.contains_key(next)).then_some(count)
    }
}

/// Returns the coverage of each source.
pub(super) fn covered(recording: &Path, binary: &Path, sources: &[PathBuf]) -> Outcome<Vec<Covered>> {
    let module = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut report = Command::new(command::hodo());
    report.args(["report", "coverage", "--by", "all", "-q", "--format", "jsonl"]).arg(recording);
    let mut files: Vec<Covered> = sources.iter().map(|_| Covered::default()).collect();
    let mut known: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for line in command::capture(&mut report)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        if row["module"].as_str() != Some(module.as_str()) {
            continue;
        }
        let location = row["line"].as_str().and_then(|location| location.rsplit_once(':'));
        let (file, number) = location.ok_or("a row without a line")?;
        let index = *known.entry(file.to_owned()).or_insert_with(|| {
            let path = Path::new(file).canonicalize().ok();
            sources.iter().position(|source| path.as_ref() == Some(source))
        });
        let Some(covered) = index.map(|index| &mut files[index]) else { continue };
        let (number, count) = (number.parse()?, |column: &str| row[column].as_u64().unwrap_or(0));
        match row["kind"].as_str() {
            Some("line") => *covered.lines.entry(number).or_default() += count("executions"),
            Some("function") => {
                let name = row["function"].as_str().unwrap_or_default().to_owned();
                *covered.functions.entry(name).or_default() += count("executions");
            }
            _ => covered.branches.entry(number).or_default().push((count("taken"), count("not_taken"))),
        }
    }
    Ok(files)
}
