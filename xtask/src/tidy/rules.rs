//! Rules for text and names.

use std::{collections::BTreeSet, fs, path::Path};

use super::{Finding, RATCHET, Ratchet, files::File, rust};
use crate::Outcome;

/// The maximum number of lines of a function.
const FUNCTION_LINES: usize = 70;

/// The maximum number of lines of a file of code.
const FILE_LINES: usize = 600;

/// The folders and files that may contain `unsafe`, and why.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/bytes/", "mapped input: the one place for reading"),
    ("crates/code/src/native/", "machine code, and the way into it"),
    ("crates/libipt/src/c/", "the C interface of libipt"),
    ("crates/sql/src/percentile.rs", "aggregates that SQLite calls for each row"),
    ("crates/sql/src/virtual_table.rs", "the C layout of SQLite's virtual tables"),
    ("crates/sql/src/series.rs", "the C layout of SQLite's virtual tables"),
    ("crates/native/src/arena.rs", "memory shared with recorded programs"),
    ("crates/native/src/process.rs", "system calls about other processes"),
    ("native/runtime/src/raw.rs", "memory by address: translated code, and the recorded program's"),
    ("native/runtime/src/stubs.rs", "the way between translated code and the runtime"),
    ("native/runtime/src/sys.rs", "system calls without libc"),
    ("emulator/", "the C interface of QEMU's plugins"),
];

/// Names that fit any folder.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc", "core"];

/// Marks of unfinished work. In two parts, so that this file passes its own check.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Files of code, by extension.
const CODE: &[&str] = &["rs", "c", "h", "cpp", "py", "sh", "asm", "ts", "tsx", "css"];

/// Files of prose and settings, by extension.
const TEXT: &[&str] = &["md", "toml", "ratchet"];

/// Adds the findings about each file.
pub(crate) fn check(root: &Path, files: &[File], ratchet: &Ratchet, findings: &mut Vec<Finding>) -> Outcome {
    let mut lengths = Lengths { ratchet, too_long: BTreeSet::new(), findings };
    for file in files {
        names(file, lengths.findings);
        let is_code = CODE.contains(&file.extension());
        // Fixtures are input: they need not follow the rules.
        if file.path.starts_with("fixtures/") || !(is_code || TEXT.contains(&file.extension())) {
            continue;
        }
        let text = fs::read_to_string(root.join(&file.path))?;
        spaces(file, &text, lengths.findings);
        if is_code {
            unfinished(file, &text, lengths.findings);
            lengths.check(&file.path, None, text.lines().count(), FILE_LINES);
        }
        if file.extension() == "rs" {
            let masked = rust::mask(&text);
            unsafety(file, &text, &masked, lengths.findings);
            for function in rust::functions(&masked) {
                let name = format!("{}:{}", file.path, function.name);
                lengths.check(&name, Some(function.line), function.lines, FUNCTION_LINES);
            }
        }
    }
    lengths.stale();
    Ok(())
}

fn names(file: &File, findings: &mut Vec<Finding>) {
    for part in file.path.split('/') {
        let stem = part.split_once('.').map_or(part, |(stem, _)| stem);
        if EMPTY_NAMES.contains(&stem) {
            findings.push(Finding::at(
                &file.path,
                None,
                format!("`{part}` says nothing: name it by what it holds"),
            ));
        }
    }
}

fn spaces(file: &File, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(text.lines()) {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::at(&file.path, Some(number), "space at the end of the line"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::at(&file.path, None, "no newline at the end"));
    }
}

fn unfinished(file: &File, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(text.lines()) {
        for word in UNFINISHED.iter().filter(|word| line.contains(*word)) {
            findings.push(Finding::at(
                &file.path,
                Some(number),
                format!("{word}: do it, or make it an issue"),
            ));
        }
        if line.contains(concat!("dbg", "!(")) {
            findings.push(Finding::at(&file.path, Some(number), "a debugging print"));
        }
    }
}

/// `unsafe` occurs only where it is permitted, and each block and implementation explains why it is sound.
fn unsafety(file: &File, text: &str, masked: &str, findings: &mut Vec<Finding>) {
    let allowed = UNSAFE.iter().any(|(folder, _)| file.path.starts_with(folder));
    let lines: Vec<&str> = text.lines().collect();
    for offset in rust::occurrences(masked, "unsafe") {
        let line = rust::line_of(masked, offset);
        if !allowed {
            findings.push(Finding::at(&file.path, Some(line), "`unsafe` has no place here"));
        }
        let after = masked[offset + "unsafe".len()..].trim_start();
        let claims = after.starts_with('{') || after.starts_with("impl");
        if claims && !explained(&lines, line - 1) {
            findings.push(Finding::at(&file.path, Some(line), "`unsafe` without a `// SAFETY:` comment"));
        }
    }
}

/// Whether the line, or the comment above its statement, explains why it is sound.
fn explained(lines: &[&str], index: usize) -> bool {
    let above = lines[..index].iter().rev().map(|line| line.trim());
    let mut in_comment = false;
    for line in above {
        if line.starts_with("//") {
            in_comment = true;
            if line.contains("SAFETY:") {
                return true;
            }
        } else if in_comment || line.is_empty() || line.ends_with([';', '{', '}']) {
            break;
        }
    }
    lines[index].contains("SAFETY:")
}

/// Lengths, compared with their limits and with the ratchet, which may only shrink.
struct Lengths<'a> {
    ratchet: &'a Ratchet,
    /// The names of those above the limit.
    too_long: BTreeSet<String>,
    findings: &'a mut Vec<Finding>,
}

impl Lengths<'_> {
    fn check(&mut self, name: &str, line: Option<usize>, lines: usize, limit: usize) {
        if lines <= limit {
            return;
        }
        let path = name.split(':').next().unwrap_or(name);
        self.too_long.insert(name.to_owned());
        match self.ratchet.get(name) {
            Some(&allowed) if lines < allowed => {
                let what = format!("{name} shrank to {lines} lines: lower it from {allowed} in {RATCHET}");
                self.findings.push(Finding::at(path, line, what));
            }
            Some(&allowed) if lines == allowed => {}
            _ => self.findings.push(Finding::at(
                path,
                line,
                format!("{name} has {lines} lines, at most {limit}"),
            )),
        }
    }

    /// Entries of the ratchet that are no longer too long.
    fn stale(&mut self) {
        for name in self.ratchet.keys().filter(|name| !self.too_long.contains(*name)) {
            self.findings.push(Finding::at(
                RATCHET,
                None,
                format!("{name} is within the limit: remove it here"),
            ));
        }
    }
}
