//! Why a rule finds something in an input, or nothing.

use crate::{
    Evidence, Finding, Rule, rules,
    text::{WIDTH, count, wrapped},
};

/// Returns what a rule looks for, what it read, and why it found something or nothing. `findings` applies all rules.
pub fn why(rule: &Rule, evidence: &Evidence<'_>, findings: fn(&Evidence<'_>) -> Vec<Finding>) -> String {
    let mut text = wrapped(&format!("{}: {}.", rule.name, rule.help), WIDTH).join("\n") + "\n\n";
    for &need in rule.needs {
        let (report, view) = need;
        let view = if view.is_empty() { String::new() } else { format!(" --by {view}") };
        let tables: Vec<_> = evidence.tables(need).collect();
        let rows: u64 = tables.iter().map(|table| table.row_count() as u64).sum();
        text += &match tables.is_empty() {
            true => format!("not in this input: {report}{view}\n"),
            false => format!("read: {report}{view}, {} rows\n", count(rows)),
        };
    }
    let found: Vec<_> = findings(evidence).into_iter().filter(|finding| finding.rule == rule.name).collect();
    let result = match (found.is_empty(), (rule.find)(evidence).is_empty()) {
        (false, _) => found.iter().map(|finding| format!("It fired: {}", finding.sentence)).collect(),
        (true, false) => vec!["It did not fire: other rules found something.".to_owned()],
        (true, true) => vec![format!("It did not fire: {}.", reason(rule, evidence))],
    };
    text + "\n" + &result.iter().flat_map(|line| wrapped(line, WIDTH)).collect::<Vec<_>>().join("\n") + "\n"
}

fn reason(rule: &Rule, evidence: &Evidence<'_>) -> String {
    let has = |need| evidence.tables(need).any(|table| table.row_count() > 0);
    if !rule.needs.iter().any(|&need| has(need)) {
        return "the tables that it reads have no rows in this input".to_owned();
    }
    match rule.name {
        name if name == rules::tails::RULE.name => rules::tails::why(evidence),
        name if name == rules::growth::RULE.name => rules::growth::why(evidence),
        name if name == rules::unequal::RULE.name => rules::unequal::why(evidence),
        _ => "no row of these passes the threshold".to_owned(),
    }
}
