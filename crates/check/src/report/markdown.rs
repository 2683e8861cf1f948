//! Verdicts as Markdown, for a comment on a pull request.

use std::fmt::Write;

use super::{Report, grouped, percent, reason, variance};
use crate::verdict::Outcome;

pub(super) fn write(report: &Report<'_>) -> String {
    let failed: Vec<_> = report.verdicts.iter().filter(|verdict| !verdict.passes()).collect();
    let mut text = match failed.len() {
        0 => "**Performance: no case grew beyond its limits.**\n".to_owned(),
        1 => "**Performance: one case fails.**\n".to_owned(),
        count => format!("**Performance: {count} cases fail.**\n"),
    };
    if !failed.is_empty() {
        text.push('\n');
    }
    for verdict in &failed {
        _ = writeln!(text, "- **{}**: {}", escaped(&verdict.case), reason(verdict));
    }
    text.push_str(
        "\n| | case | count | before | now | change | limit |\n|---|---|---|---:|---:|---:|---:|\n",
    );
    for verdict in report.verdicts {
        for change in &verdict.changes {
            let mark = match change.outcome {
                Outcome::Over => "❌",
                Outcome::Changed if change.now.middle > change.before.middle => "▲",
                Outcome::Changed => "▼",
                Outcome::Same => "",
            };
            let (before, growth) = match verdict.is_known {
                true => (grouped(change.before.middle), percent(change.before.change(&change.now))),
                false => ("–".to_owned(), "–".to_owned()),
            };
            let limit = change.limit.map_or("–".to_owned(), |limit| limit.to_string());
            _ = writeln!(
                text,
                "| {mark} | {} | {} | {before} | {} | {} | {limit} |",
                escaped(&verdict.case),
                escaped(&change.subject.name()),
                grouped(change.now.middle),
                growth,
            );
        }
    }
    let varying: Vec<String> = report
        .verdicts
        .iter()
        .filter_map(|verdict| Some(format!("- {}: {}", escaped(&verdict.case), variance(verdict)?)))
        .collect();
    if !varying.is_empty() {
        _ = write!(text, "\nVariance:\n{}\n", varying.join("\n"));
    }
    text
}

/// Text in a cell of a table or in a line.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|")
}
