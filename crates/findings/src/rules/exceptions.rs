//! Exceptions in a hot path: who throws them, who catches them, what they cost.

use std::collections::BTreeMap;

use crate::{
    Evidence, Finding, Rule,
    call_tree::{TREE, TreeRow},
    evidence::{FUNCTIONS, figure},
    link,
    numbers::Numbers,
    text::{count, share},
};

/// Functions through which every thrown exception passes.
const RAISES: &[&str] = &["_Unwind_RaiseException", "__cxa_throw", "rust_panic", "_Unwind_ForcedUnwind"];
/// Largest acceptable share of the executed instructions.
const THRESHOLD: f64 = 0.05;

pub(crate) const RULE: Rule = Rule {
    name: "exceptions",
    help: "exceptions that take more than 5 % of the executed instructions; where most are thrown, and where caught",
    needs: &[TREE],
    find,
};

/// Functions that begin the handling of an exception, called where it is caught.
const CATCHES: &[&str] = &["__cxa_begin_catch", "__rust_panic_cleanup"];
/// Begins of the names of functions of a language's library that catch for their caller.
const WRAPPERS: &[&str] = &["std::panic", "core::panic", "__rust_try"];

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(FUNCTIONS) {
        let whole = figure(table, "instructions");
        let rows = evidence.rows(FUNCTIONS);
        let raises = rows.iter().filter(|row| is_of(RAISES, row.text("function")));
        let Some(most) = raises.max_by_key(|row| row.integer("total_instructions")) else { continue };
        // A throw may jump to the unwinder instead of calling it.
        let calls = most.integer("calls").saturating_add(most.integer("jumps"));
        let instructions = most.integer("total_instructions");
        let part = share(instructions, whole);
        if part <= THRESHOLD {
            continue;
        }
        let mut numbers = Numbers::default();
        let thrown = mostly("thrown", by_caller(evidence, RAISES), &mut numbers);
        let caught = mostly("caught", by_caller(evidence, CATCHES), &mut numbers);
        findings.push(Finding {
            rule: RULE.name,
            weight: part,
            sentence: format!(
                "Exceptions are thrown in a hot path{thrown}{caught}: {} ran {} times and executed {} instructions with what \
                 it called, {} of all (threshold {}), {} each time.",
                numbers.function("function", most.text("function")),
                numbers.count("count", calls),
                numbers.count("instructions", instructions),
                numbers.percent("share", part),
                numbers.percent("threshold", THRESHOLD),
                numbers.count("instructions_each", instructions / calls.max(1)),
            ),
            command: "report functions".to_owned(),
            link: link::flame(),
            numbers: numbers.list(),
        });
    }
    findings
}

fn is_of(names: &[&str], function: &str) -> bool {
    names.iter().any(|name| function.starts_with(name))
}

/// Says in which function most exceptions are thrown, or caught, and how many.
fn mostly(what: &'static str, by: BTreeMap<String, u64>, numbers: &mut Numbers) -> String {
    let Some((function, most)) = by.iter().max_by_key(|(_, count)| **count) else { return String::new() };
    let all = by.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let [by_name, count_name] = match what {
        "thrown" => ["thrown_by", "thrown_there"],
        _ => ["caught_by", "caught_there"],
    };
    let verb = if what == "thrown" { ", by" } else { ", and caught by" };
    let name = numbers.function(by_name, function);
    let times = numbers.times(count_name, *most);
    if *most == all { format!("{verb} {name}") } else { format!("{verb} {name} {times} of {}", count(all)) }
}

/// Returns how often each function called one of these, without those that catch for their caller.
fn by_caller(evidence: &Evidence<'_>, names: &[&str]) -> BTreeMap<String, u64> {
    let mut callers: BTreeMap<String, u64> = BTreeMap::new();
    for tree in evidence.trees() {
        let [is_one, is_wrapper] = [names, WRAPPERS].map(|names| tree.marked(|name| is_of(names, name)));
        tree.visit(|node| {
            let is_outer = |caller: &&TreeRow| is_one[caller.function as usize];
            if !is_one[node.row.function as usize] || node.callers.last().is_some_and(is_outer) {
                return;
            }
            let caller = node.callers.iter().rev().find(|caller| !is_wrapper[caller.function as usize]);
            if let Some(caller) = caller {
                let count = callers.entry(tree.text(caller.function).to_owned()).or_default();
                *count = count.saturating_add(node.row.entries);
            }
        });
    }
    callers
}
