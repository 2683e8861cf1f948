//! Exceptions in a hot path.

use crate::{
    Evidence, Finding, Rule,
    evidence::figure,
    text::{count, percent, share},
};

/// Functions through which every thrown exception passes.
const RAISES: &[&str] = &["_Unwind_RaiseException", "__cxa_throw", "rust_panic", "_Unwind_ForcedUnwind"];
/// Largest acceptable share of the executed instructions.
const THRESHOLD: f64 = 0.05;

pub(crate) const RULE: Rule = Rule {
    name: "exceptions",
    help: "exceptions that take more than 5 % of the executed instructions",
    needs: &[("functions", "")],
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
                    "Exceptions are thrown in a hot path: {} ran {} times and executed {} instructions with what it \
                     called, {} of all (threshold {}), {} each time.",
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
