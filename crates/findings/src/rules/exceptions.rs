//! Exceptions in a hot path.

use std::collections::BTreeMap;

use crate::{
    Evidence, Finding, Rule,
    call_tree::{self, TREE},
    evidence::figure,
    text::{self, count, percent, share},
};

/// Functions through which every thrown exception passes.
const RAISES: &[&str] = &["_Unwind_RaiseException", "__cxa_throw", "rust_panic", "_Unwind_ForcedUnwind"];
/// Largest acceptable share of the executed instructions.
const THRESHOLD: f64 = 0.05;

pub(crate) const RULE: Rule = Rule {
    name: "exceptions",
    help: "exceptions that take more than 5 % of the executed instructions",
    needs: &[("functions", ""), TREE],
    find,
};

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(("functions", "")) {
        let whole = figure(table, "instructions");
        let rows = evidence.rows(("functions", ""));
        let raises =
            rows.iter().filter(|row| RAISES.iter().any(|name| row.text("function").starts_with(name)));
        let Some(most) = raises.max_by_key(|row| row.integer("total_instructions")) else { continue };
        // A throw may jump to the unwinder instead of calling it.
        let calls = most.integer("calls").saturating_add(most.integer("jumps"));
        let instructions = most.integer("total_instructions");
        let part = share(instructions, whole);
        if part > THRESHOLD {
            findings.push(Finding {
                rule: RULE.name,
                weight: part,
                sentence: format!(
                    "Exceptions are thrown in a hot path{}: {} ran {} times and executed {} instructions with what it \
                     called, {} of all (threshold {}), {} each time.",
                    thrower(evidence).map_or_else(String::new, |name| format!(", by {}", text::name(&name))),
                    most.text("function"),
                    count(calls),
                    count(instructions),
                    percent(part),
                    percent(THRESHOLD),
                    count(instructions / calls.max(1)),
                ),
                command: "report functions".to_owned(),
            });
        }
    }
    findings
}

/// Returns the function that raised the most exceptions.
fn thrower(evidence: &Evidence<'_>) -> Option<String> {
    let is_raise = |function: &str| RAISES.iter().any(|name| function.starts_with(name));
    let rows = evidence.rows(TREE);
    let mut throwers: BTreeMap<&str, u64> = BTreeMap::new();
    call_tree::visit(&rows, |node| {
        let caller = node.callers.last().map_or("", |caller| caller.text("function"));
        if is_raise(node.row.text("function")) && !is_raise(caller) && !caller.is_empty() {
            let raised = throwers.entry(caller).or_default();
            *raised = raised.saturating_add(node.row.integer("entries"));
        }
    });
    throwers.into_iter().max_by_key(|(_, raised)| *raised).map(|(name, _)| name.to_owned())
}
