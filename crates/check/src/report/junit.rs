//! Verdicts as results of tests, in JUnit's XML.

use std::fmt::Write;

use super::{Report, amounts, reason, variance};

pub(super) fn write(report: &Report<'_>) -> String {
    let failures = report.verdicts.iter().filter(|verdict| !verdict.passes()).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    _ = writeln!(
        text,
        "<testsuites>\n  <testsuite name=\"hodo check\" tests=\"{}\" failures=\"{failures}\" errors=\"0\">",
        report.verdicts.len()
    );
    for verdict in report.verdicts {
        _ = writeln!(text, "    <testcase name=\"{}\" classname=\"hodo check\">", escaped(&verdict.case));
        if !verdict.passes() {
            let reason = escaped(&reason(verdict));
            _ = writeln!(text, "      <failure type=\"growth\" message=\"{reason}\">{reason}</failure>");
        }
        let counts =
            verdict.changes.iter().map(|change| format!("{} {}", change.subject.name(), amounts(change)));
        let lines: Vec<String> = counts.chain(variance(verdict)).collect();
        _ = writeln!(text, "      <system-out>{}</system-out>", escaped(&lines.join("\n")));
        text.push_str("    </testcase>\n");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// Text in an attribute or element.
fn escaped(text: &str) -> String {
    let plain = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // XML has no other control characters.
    plain.replace(|character: char| character.is_control() && character != '\n', "?")
}
