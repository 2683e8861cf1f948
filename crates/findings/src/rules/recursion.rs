//! Recursion that goes deep.

use crate::{
    Evidence, Finding, Row, Rule,
    call_tree::{self, TREE},
    evidence::figure,
    link,
    numbers::Numbers,
    text::share,
};

/// Largest acceptable number of calls of a function that are open at once.
const THRESHOLD: u64 = 500;
/// Least share of the run of the function and what it calls.
const LEAST: f64 = 0.1;

pub(crate) const RULE: Rule = Rule {
    name: "deep-recursion",
    help: "functions of which more than 500 calls were open at once, with more than 10 % of the executed instructions",
    needs: &[TREE],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    evidence.tables(TREE).filter_map(|table| {
        let rows = Row::all(table);
        let mut deepest: Option<(&Row<'_>, &str)> = None;
        call_tree::visit(&rows, |node| {
            let depth = node.row.integer("recursion");
            let weight = share(node.row.integer("total_instructions"), figure(table, "instructions"));
            let is_deeper = deepest.is_none_or(|(row, _)| depth > row.integer("recursion"));
            if depth > THRESHOLD && weight > LEAST && is_deeper {
                let caller = node.callers.last().map_or("", |caller| caller.text("function"));
                deepest = Some((node.row, caller));
            }
        });
        let (row, caller) = deepest?;
        let weight = share(row.integer("total_instructions"), figure(table, "instructions"));
        let mut numbers = Numbers::default();
        let sentence = format!(
            "{} calls itself, up to {} deep (threshold {}), from {}: {} calls with {} of the run. Each level takes memory of the \
             stack until the last one returns.",
            numbers.function("function", row.text("function")),
            numbers.count("depth", row.integer("recursion")),
            numbers.count("threshold", THRESHOLD),
            numbers.function("caller", caller),
            numbers.count("calls", row.integer("entries")),
            numbers.percent("share", weight),
        );
        let (command, link) = ("report tree".to_owned(), link::flame());
        Some(Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() })
    }).collect()
}
