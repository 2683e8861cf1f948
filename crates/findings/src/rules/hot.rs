//! Where the run is spent, if nothing else stands out.

use std::collections::BTreeMap;

use super::unequal;
use crate::{
    Evidence, Finding, Need, Row, Rule,
    evidence::figure,
    text::{self, count, percent, share, times},
};

/// The most functions that are reported.
const MOST: usize = 3;
/// The least share of the run of the second and third.
const LEAST: f64 = 0.05;

const TREE: Need = ("tree", "");

pub(crate) const RULE: Rule = Rule {
    name: "hot",
    help: "if nothing else stands out: the three functions with the most instructions of their own, the second and third with at least 5 % of the run, and who calls them",
    needs: &[TREE],
    find,
};

/// A function as called by one caller.
#[derive(Default)]
struct Called {
    instructions: u64,
    calls: u64,
}

/// A function with its own instructions.
#[derive(Default)]
struct Hot {
    instructions: u64,
    callers: BTreeMap<String, Called>,
}

/// Returns the functions of a call tree by name and module.
fn functions(rows: &[Row<'_>]) -> BTreeMap<(String, String), Hot> {
    let mut functions: BTreeMap<(String, String), Hot> = BTreeMap::new();
    let mut path: Vec<&Row<'_>> = Vec::new();
    for row in rows {
        path.truncate(usize::try_from(row.integer("depth")).unwrap_or(0));
        // The linker's stubs call nothing of their own.
        let mut callers = path.iter().rev().map(|caller| caller.text("function"));
        let caller = callers.find(|name| !name.ends_with("@plt")).unwrap_or("");
        let key = (row.text("function").to_owned(), row.text("module").to_owned());
        let function = functions.entry(key).or_default();
        let own = row.integer("self_instructions");
        function.instructions = function.instructions.saturating_add(own);
        let called = function.callers.entry(caller.to_owned()).or_default();
        called.instructions = called.instructions.saturating_add(own);
        called.calls = called.calls.saturating_add(row.integer("entries"));
        path.push(row);
    }
    functions
}

fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in evidence.tables(TREE) {
        let whole = figure(table, "instructions");
        let mut hot: Vec<_> = functions(&Row::all(table)).into_iter().collect();
        hot.sort_by_key(|(_, hot)| std::cmp::Reverse(hot.instructions));
        hot.retain(|(_, hot)| hot.instructions > 0);
        for (index, ((name, _), hot)) in hot.iter().take(MOST).enumerate() {
            let weight = share(hot.instructions, whole);
            if index == 0 || weight >= LEAST {
                findings.push(finding(name, hot, weight));
            }
        }
    }
    if let (Some(first), Some(roles)) = (findings.first_mut(), unequal::named_roles(evidence)) {
        first.sentence += &format!(" Threads have roles of their own: {roles} of their instructions.");
    }
    findings
}

fn finding(name: &str, hot: &Hot, weight: f64) -> Finding {
    let most = hot.callers.iter().max_by_key(|(_, called)| called.instructions);
    let part = format!("{} of the run is in {}", percent(weight), text::name(name));
    let sentence = match most {
        Some((caller, called)) if !caller.is_empty() && called.calls > 0 => {
            let each = called.instructions / called.calls;
            let of_caller = share(called.instructions, hot.instructions);
            let mostly =
                if of_caller < 0.9 { format!(", {} of it", percent(of_caller)) } else { String::new() };
            let less = match called.calls > each {
                true => "Fewer calls would make it less",
                false => "Less work in each call would make it less",
            };
            format!(
                "{part}, called by {} {}{mostly}, {} instructions each. {less}.",
                text::name(caller),
                times(called.calls),
                count(each)
            )
        }
        _ => format!(
            "{part} itself, {} instructions. Less work there would make it less.",
            count(hot.instructions)
        ),
    };
    Finding { rule: RULE.name, weight, sentence, command: "report tree".to_owned() }
}
