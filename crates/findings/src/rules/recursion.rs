//! Recursion that goes deep.

use crate::{
    Evidence, Finding, Rule,
    call_tree::{TREE, TreeRow},
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
    evidence.trees().iter().filter_map(|tree| {
        let whole = figure(tree.table, "instructions");
        let mut deepest: Option<(&TreeRow, &str)> = None;
        tree.visit(|node| {
            let depth = node.row.recursion;
            let is_deeper = depth > THRESHOLD && deepest.is_none_or(|(row, _)| depth > row.recursion);
            if is_deeper && share(node.row.total_instructions, whole) > LEAST {
                let caller = node.callers.last().map_or("", |caller| tree.text(caller.function));
                deepest = Some((node.row, caller));
            }
        });
        let (row, caller) = deepest?;
        let weight = share(row.total_instructions, whole);
        let mut numbers = Numbers::default();
        let sentence = format!(
            "{} calls itself, up to {} deep (threshold {}), from {}: {} calls with {} of the run. Each level takes memory of the \
             stack until the last one returns.",
            numbers.function("function", tree.text(row.function)),
            numbers.count("depth", row.recursion),
            numbers.count("threshold", THRESHOLD),
            numbers.function("caller", caller),
            numbers.count("calls", row.entries),
            numbers.percent("share", weight),
        );
        let (command, link) = ("report tree".to_owned(), link::flame());
        Some(Finding { rule: RULE.name, weight, sentence, command, link, numbers: numbers.list() })
    }).collect()
}
