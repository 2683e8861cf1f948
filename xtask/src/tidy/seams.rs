//! Module boundaries: text that some folders must not contain.

use std::{fs, path::Path};

use super::{Finding, files::File, rust};
use crate::Outcome;

/// Text that the code in some folders must not contain.
struct Seam {
    folders: &'static [&'static str],
    text: &'static str,
    why: &'static str,
}

const SEAMS: &[Seam] = &[
    Seam {
        folders: &["crates/"],
        text: concat!("Experiment", "<'"),
        why: "an Experiment owns its traces, and has no lifetime",
    },
    Seam {
        folders: &["crates/formats/src/ftrace/", "crates/formats/src/perf/"],
        text: "ctf::",
        why: "events of ftrace and perf do not pass through CTF; their classes are in `crate::events`",
    },
];

/// The folder of analyses, and the folders that must not name one.
const ANALYSES: &str = "crates/analyses/src/";
const BLIND: &[&str] = &["crates/cli/src/", "crates/engine/src/", "crates/views/src/", "crates/model/src/"];

/// Adds the violations of boundaries.
pub(crate) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Outcome {
    let code = |file: &&File| file.extension() == "rs";
    let mut names: Vec<String> = Vec::new();
    for file in files.iter().filter(code).filter(|file| file.path.starts_with(ANALYSES)) {
        names.extend(names_of_reports(&fs::read_to_string(root.join(&file.path))?));
    }
    for file in files.iter().filter(code) {
        let within = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
        let seams = SEAMS.iter().filter(|seam| within(seam.folders)).collect::<Vec<_>>();
        if seams.is_empty() && !within(BLIND) {
            continue;
        }
        let text = fs::read_to_string(root.join(&file.path))?;
        let masked = rust::mask(&text);
        let mut report = |offset: usize, what: &str| {
            findings.push(Finding::at(&file.path, Some(rust::line_of(&text, offset)), what));
        };
        for seam in seams {
            masked.match_indices(seam.text).for_each(|(offset, _)| report(offset, seam.why));
        }
        for name in names.iter().filter(|_| within(BLIND)) {
            let why = format!(
                "the report `{name}` is named: what it needs, and its role, belong to its description"
            );
            for way in
                [format!("\"{name}\" =>"), format!("report(\"{name}\")"), format!("kind == \"{name}\"")]
            {
                let is_code = |offset: usize| {
                    !text[..offset].rsplit('\n').next().unwrap_or("").trim_start().starts_with("//")
                };
                text.match_indices(&way)
                    .filter(|(offset, _)| is_code(*offset))
                    .for_each(|(offset, _)| report(offset, &why));
            }
        }
    }
    Ok(())
}

/// The names in the descriptions of reports.
fn names_of_reports(text: &str) -> Vec<String> {
    let descriptions = text.split("Description {").skip(1);
    let name = |rest: &str| rest.split_once("name: \"")?.1.split_once('"').map(|(name, _)| name.to_owned());
    descriptions.filter_map(name).collect()
}
