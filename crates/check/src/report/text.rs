//! Verdicts as text.

use std::fmt::Write;

use super::{Report, amounts, variance};
use crate::verdict::Outcome;

pub(super) fn write(report: &Report<'_>) -> String {
    let mut text = String::new();
    for verdict in report.verdicts {
        let word = if verdict.passes() { "ok  " } else { "FAIL" };
        let runs = if verdict.runs == 1 { "1 run".to_owned() } else { format!("{} runs", verdict.runs) };
        _ = writeln!(text, "{word} {} ({runs})", verdict.case);
        if !verdict.is_known {
            _ = writeln!(text, "     the baseline has no counts of it");
        }
        for change in &verdict.changes {
            let mark = match change.outcome {
                Outcome::Over => "FAIL",
                Outcome::Changed => "    ",
                Outcome::Same => continue,
            };
            _ = writeln!(text, "{mark}   {} {}", change.subject.name(), amounts(change));
        }
        for cause in &verdict.causes {
            _ = writeln!(text, "     because {}", cause.sentence());
        }
        if let Some(line) = variance(verdict) {
            _ = writeln!(text, "     {line}");
        }
    }
    let failed = report.verdicts.iter().filter(|verdict| !verdict.passes()).count();
    let passed = report.verdicts.len() - failed;
    _ = writeln!(text, "{passed} passed, {failed} failed");
    text
}
