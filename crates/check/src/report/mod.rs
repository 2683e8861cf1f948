//! Verdicts for people and for other programs: a file for each format, and their list.

mod json;
mod junit;
mod markdown;
mod sarif;
mod text;

use crate::{
    Verdict,
    verdict::{Change, Outcome, Varying},
};

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Report<'v> {
    /// The verdicts, in the order of the configuration.
    pub verdicts: &'v [Verdict],
    /// The path of the configuration.
    pub configuration: &'v str,
}

/// A format of reports.
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// Writes a report.
    pub write: fn(&Report<'_>) -> String,
}

/// The formats.
pub const FORMATS: &[Format] = &[
    Format { name: "text", help: "for people", write: text::write },
    Format { name: "markdown", help: "for a comment on a pull request", write: markdown::write },
    Format { name: "json", help: "for programs", write: json::write },
    Format { name: "junit", help: "for what shows the results of tests", write: junit::write },
    Format { name: "sarif", help: "for what shows findings beside the code", write: sarif::write },
];

/// A number with a comma between each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of instructions, rounded above a million.
pub(crate) fn short(number: f64) -> String {
    match number {
        number if number >= 1e9 => format!("{:.2} G", number / 1e9),
        number if number >= 1e6 => format!("{:.2} M", number / 1e6),
        number => grouped(number.round() as u64),
    }
}

/// A relative change with its sign.
fn percent(change: f64) -> String {
    match change.is_finite() {
        true => format!("{:+.2} %", change * 100.0),
        false => "new".to_owned(),
    }
}

/// What a change is, without what it is of: `+4.10 % (17,712,192 → 18,438,391; limit 1 %)`.
fn amounts(change: &Change) -> String {
    let (before, now) = (grouped(change.before.middle), grouped(change.now.middle));
    let limit = change.limit.map_or(String::new(), |limit| format!("; limit {limit}"));
    format!("{} ({before} → {now}{limit})", percent(change.before.change(&change.now)))
}

/// Why a verdict fails, in one line.
fn reason(verdict: &Verdict) -> String {
    if !verdict.is_known {
        return "the baseline has no counts of it".to_owned();
    }
    let over = verdict.changes.iter().filter(|change| change.outcome == Outcome::Over);
    let over: Vec<String> =
        over.map(|change| format!("{} {}", change.subject.name(), amounts(change))).collect();
    let causes: Vec<String> = verdict.causes.iter().map(crate::causes::Cause::sentence).collect();
    match causes.is_empty() {
        true => over.join("; "),
        false => format!("{}: {}", over.join("; "), causes.join("; ")),
    }
}

/// What differs between executions, in one line; `None` if nothing does.
fn variance(verdict: &Verdict) -> Option<String> {
    let total = verdict.changes.iter().find(|change| change.now.width() > 0)?;
    let functions = verdict
        .varying
        .iter()
        .map(|Varying { function, width }| format!("`{}` by {}", function.function, grouped(*width)));
    let functions: Vec<String> = functions.collect();
    let most =
        if functions.is_empty() { String::new() } else { format!(", most in {}", functions.join(", ")) };
    Some(format!("equal executions differ by {} {}{most}", grouped(total.now.width()), total.subject.name()))
}

#[cfg(test)]
mod tests;
